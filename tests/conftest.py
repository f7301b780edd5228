"""What every test may rely on."""

import gc
import operator
import os
import random
import signal
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.gpu_lock import gpu_lock

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator
    from kernelwright.tools.problem import Problem


def pytest_configure() -> None:
    """Started in the background by a shell without job control, a process ignores Ctrl-C, and so do its children:
    here tests send it to them.
    """
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        # Of the cores, a worker's own share: threads of torch that wait for each other's core spin, and take its time.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    gc.disable()  # until all tests are collected: what is imported meanwhile stays
    # The same examples in every run, and none is too slow: how long one takes is this machine's load.
    settings.register_profile("repeatable", deadline=None, derandomize=True)
    settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that judges every candidate of the catalogues (tests/catalogue_sample.py)."""
    parser.addoption(
        "--whole-catalogue",
        action="store_true",
        help="judge every exploit, honest and broken kernel, not a stratified sample of each",
    )


def gpu_present() -> bool:
    """Whether CUDA finds a GPU and this torch can use it."""
    from kernelwright.tools.hardware.gpus import read_driver
    from kernelwright.tools.hardware.machine_info import version

    return bool(read_driver().gpus) and not (version("torch") or "").endswith("+cpu")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests marked `gpu` where there is none, before any fixture of theirs is made, and deselects
    the candidates outside of the sample.
    """
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
    outside = [item for item in items if item.get_closest_marker("whole_catalogue")]
    if outside and not config.getoption("--whole-catalogue") and len(outside) < len(items):
        config.hook.pytest_deselected(items=outside)
        items[:] = [item for item in items if item.get_closest_marker("whole_catalogue") is None]


def pytest_collection_finish() -> None:
    """What imports have made, a million objects, is not looked through again whenever garbage is sought."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Extensions count what is left of theirs as the process ends."""
    gc.unfreeze()
    gc.enable()


verdicts: Counter[str] = Counter()
"""Of this test so far, by problem."""


def _seed() -> None:
    """Every generator that a test may draw from without saying so; torch's and numpy's where they are loaded."""
    verdicts.clear()
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


@pytest.fixture(autouse=True)
def shares_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps other GPU tests of this machine waiting while a test marked `alone_on_gpu` runs."""
    if request.node.get_closest_marker("gpu") is None or not gpu_present():
        yield
        return
    with gpu_lock(alone=request.node.get_closest_marker("alone_on_gpu") is not None):
        yield


@pytest.fixture(autouse=True, scope="session")
def fixed_draws() -> Iterator[None]:
    """Judges of this process draw the same inputs and sizes in every run: a test says what a verdict is, and a draw
    that nobody has seen before must not decide it. Judges of other processes draw as users' do.
    """
    from kernelwright.tools.judging.judge import Judge

    drawn = Judge.seed_for

    def seed_for(judge: Judge, problem: "Problem") -> int:
        """The draws are the problem's, the sizes are others for each verdict of one test."""
        drawn(judge, problem)  # which notes that it knows the problem
        verdicts[problem.hash] += 1
        told = f"{verdicts[problem.hash]} {problem.source}".encode()
        return zlib.crc32(problem.source.encode()) >> 1 << 16 | zlib.crc32(told) & 0xFFFF

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "seed_for", seed_for)
        yield


@pytest.fixture(autouse=True, scope="session")
def warm_processes() -> Iterator[None]:
    """Evaluators of this process share their warm processes (tests/kept_processes.py)."""
    from tests.kept_processes import keeping

    with keeping():
        yield


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluators of this test start processes of their own, and end them as they are closed."""
    from kernelwright.tools.evaluation import pipeline
    from tests import kept_processes

    monkeypatch.setattr(pipeline, "new_zygote", kept_processes.new_zygote)


@pytest.fixture(scope="session")
def evaluator() -> "Iterator[Evaluator]":
    """One judge on the CPU for all tests that want no more of it than verdicts; its processes start once."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    with Evaluator(device="cpu", workers=1) as found:
        yield found
