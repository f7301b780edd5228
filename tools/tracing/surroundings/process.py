"""Changes the process of a candidate's host code: torch's modes, the clock, the environment."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from kernelwright.tools.trace.trace import Change

YEARS_AHEAD = (2, 40)
DISTRIBUTED_LAUNCHER = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "CI": "1",
}
"""Environment variables set by `torchrun`."""
_seconds_ahead = 0.0


@contextlib.contextmanager
def changed(changes: Collection[Change], rng: random.Random) -> Iterator[None]:
    """Context manager that applies these changes to the process; those of inputs and modules are
    ignored."""
    with contextlib.ExitStack() as stack:
        for change, enter in _CONTEXTS.items():
            if change in changes:
                stack.enter_context(enter(rng))
        yield


# ------------------------------------------------------------------ the clock
def install_clock() -> None:
    """Lets `changed` shift all of Python's clocks.

    Called once per process, before a candidate is imported, since the candidate may store a clock
    under another name.
    """
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, _ahead(getattr(time, name), 1))
        setattr(time, f"{name}_ns", _ahead(getattr(time, f"{name}_ns"), 10**9))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    strftime = time.strftime
    localtime = time.localtime
    time.strftime = lambda text, moment=None: strftime(text, moment or localtime())
    setattr(datetime, "datetime", _Datetime)  # noqa: B010
    setattr(datetime, "date", _Date)  # noqa: B010


def _ahead(clock: Callable[[], Any], unit: int) -> Callable[[], Any]:
    return lambda: clock() + type(unit)(_seconds_ahead) * unit


def _of_now(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda seconds=None: function(time.time() if seconds is None else seconds)


class _AlsoInstances(type):
    """Instances of the replaced class count as instances of the replacement."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


class _Datetime(datetime.datetime, metaclass=_AlsoInstances):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Returns the current moment of the shifted clock, in a time zone."""
        return super().fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        """Returns the current moment of the shifted clock, in UTC and without a time zone."""
        return super().fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """Returns the current moment of the shifted clock."""
        return cls.now()


class _Date(datetime.date, metaclass=_AlsoInstances):
    @classmethod
    def today(cls) -> Any:
        """Returns the current day of the shifted clock."""
        return super().fromtimestamp(time.time())


@contextlib.contextmanager
def _years_ahead(rng: random.Random) -> Iterator[None]:
    global _seconds_ahead
    _seconds_ahead = float(rng.randrange(*YEARS_AHEAD) * 365 * 86_400 + rng.randrange(86_400))
    try:
        yield
    finally:
        _seconds_ahead = 0.0


# ------------------------------------------------------------------ torch and the environment
@contextlib.contextmanager
def _float64_by_default(_: random.Random) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _autocast(_: random.Random) -> Iterator[None]:
    """Reports autocast as enabled to host code; operators convert nothing, since the reference's
    would, too."""
    before = torch.is_autocast_enabled
    setattr(torch, "is_autocast_enabled", lambda *_: True)  # noqa: B010
    try:
        yield
    finally:
        setattr(torch, "is_autocast_enabled", before)  # noqa: B010


@contextlib.contextmanager
def _another_number_of_threads(_: random.Random) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _deterministic(_: random.Random) -> Iterator[None]:
    settings: Any = torch.utils.deterministic  # its stub has no attribute
    cudnn = torch.backends.cudnn
    before = settings.fill_uninitialized_memory, cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filled memory would hide that a kernel reads what nothing wrote.
    settings.fill_uninitialized_memory = False
    cudnn.benchmark = True
    cudnn.deterministic = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        settings.fill_uninitialized_memory, cudnn.benchmark, cudnn.deterministic = before


@contextlib.contextmanager
def _another_environment(_: random.Random) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(DISTRIBUTED_LAUNCHER)
    try:
        yield
    finally:
        for name in DISTRIBUTED_LAUNCHER.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)


@contextlib.contextmanager
def _seeded(rng: random.Random) -> Iterator[None]:
    before = random.getstate()
    of_torch = torch.get_rng_state()
    seed = rng.randrange(1 << 31)
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
        torch.set_rng_state(of_torch)


_CONTEXTS: dict[Change, Callable[[random.Random], contextlib.AbstractContextManager[Any]]] = {
    Change.GRADIENTS: lambda _: torch.enable_grad(),
    Change.DEFAULT_TYPE: _float64_by_default,
    Change.AUTOCAST: _autocast,
    Change.CLOCK: _years_ahead,
    Change.THREADS: _another_number_of_threads,
    Change.DETERMINISTIC: _deterministic,
    Change.ENVIRONMENT: _another_environment,
    Change.SEEDED: _seeded,
}
