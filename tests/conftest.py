"""What every test may rely on."""

import hashlib
import operator
import random
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from kernelwright.tools.problem import Problem


def pytest_configure() -> None:
    """Started in the background by a shell without job control, a process ignores Ctrl-C, and so do its children:
    here tests send it to them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The same examples in every run, and none is too slow: how long one takes is this machine's load.
    settings.register_profile("repeatable", deadline=None, derandomize=True)
    settings.load_profile("repeatable")


def gpu_present() -> bool:
    """Whether CUDA finds a GPU and this torch can use it."""
    from kernelwright.tools.hardware.gpus import read_driver
    from kernelwright.tools.hardware.machine_info import version

    return bool(read_driver().gpus) and not (version("torch") or "").endswith("+cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `gpu` is skipped, and says so, where there is none (before any fixture of it is made)."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))


def _seed() -> None:
    """Every generator that a test may draw from without saying so; torch's and numpy's where they are loaded."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if (module := sys.modules.get(name)) is not None:
            operator.attrgetter(seed)(module)(0)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module draws while it is imported is the same, whichever modules were imported before it."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What fixtures draw is the same in every run, whatever ran before in this process."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """What a test draws is the same, whether or not its fixtures were there already."""
    _seed()


@pytest.fixture(autouse=True, scope="session")
def fixed_draws() -> Iterator[None]:
    """Judges of this process draw the same inputs and sizes for a problem in every run: a test says what a verdict is,
    and a draw that nobody has seen before must not decide it. Judges of other processes draw as users' do.
    """
    from kernelwright.tools.judging.judge import Judge

    drawn = Judge.seed_for

    def seed_for(judge: Judge, problem: "Problem") -> int:
        drawn(judge, problem)  # which notes that it knows the problem
        return int.from_bytes(hashlib.sha256(problem.source.encode()).digest()[:6], "little") >> 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "seed_for", seed_for)
        yield
