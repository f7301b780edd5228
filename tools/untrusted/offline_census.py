"""The census of a run without a GPU: operators as the GPU's census counts them, operators of the candidate's own opened, threads counted."""

from __future__ import annotations

import _thread
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tools.dispatch import without_dynamo
from tools.untrusted.census import Census

_own: dict[str, Callable[..., Any]] = {}
"""Operators that the candidate registered, by qualified name: what they run."""
_STARTERS = ("_start_new_thread", "_start_joinable_thread", "start_new_thread", "start_joinable_thread")
"""How threading (with an underscore) and _thread start threads, up to Python 3.12 and from 3.13 on."""
_state: dict[str, Any] = {"watched": False, "hooked": False}
threads: Counter[str] = Counter()


@without_dynamo
class OfflineCensus(TorchDispatchMode):
    """Notes each operator, and steps into the candidate's own, where fake tensors would stop at their declared shapes and never launch."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Census()
        self._paused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = _own.get(func._schema.name) if hasattr(func, "_schema") else None
        if own is not None:
            with self:
                return own(*args, **(kwargs or {}))
        made = func(*args, **(kwargs or {}))
        if not self._paused:
            self.counts.note(func, args, kwargs or {}, made)
        return made

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Round what tuning does: it happens once, not at each call."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1


def watch_libraries() -> None:
    """From now on the candidate's `torch.library.custom_op` and `triton_op` are remembered. A second import may register them anew."""
    _own.clear()
    count_threads()
    if _state["watched"]:
        return
    _state["watched"] = True
    for name in ("custom_op", "triton_op"):
        original = getattr(torch.library, name, None)
        if original is not None:
            setattr(torch.library, name, _remembering(original))


def _remembering(original: Any) -> Any:
    def register(name: str, fn: Any = None, /, **options: Any) -> Any:
        def decorate(function: Any) -> Any:
            _own[name] = function
            return original(name, function, **options)

        return decorate if fn is None else decorate(fn)

    return register


def count_threads() -> None:
    """Counts threads that are started from now on."""
    threads.clear()
    if _state["hooked"]:
        return
    _state["hooked"] = True

    for module in (threading, _thread):
        for name in _STARTERS:
            if original := getattr(module, name, None):
                setattr(module, name, _counting(original))


def _counting(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(*args: Any, **kwargs: Any) -> Any:
        threads["started"] += 1
        return original(*args, **kwargs)

    return start
