"""Patches the interpreter so that a recorder observes a program: each builder operation and each
access to a value's contents.

Other programs that run in between are not observed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import carrying_origins
from kernelwright.tools.replaying.interpreter.recording.language import language


class Watcher(Protocol):
    """Interface of a recorder."""

    busy: int
    """Nonzero during an operation: its accesses to values are no decisions."""

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Runs an operation of the kernel."""

    def read(self, handle: Any, data: object) -> None:
        """Handles an access by Python to a value's contents."""


active: list[Watcher] = []
"""Stack of recorders; the last observes the running program."""


def watch(watcher: Watcher) -> None:
    """Starts observation by this recorder."""
    lang = language()
    lang.handle.data = property(_data_of, _set_data)
    lang.semantic.builder = _Watched(watcher, lang.builder)
    active.append(watcher)


def look_away() -> None:
    """Ends the observation started last."""
    lang = language()
    active.pop()
    lang.semantic.builder = lang.builder
    del lang.handle.data


def letting_others_run(turn: Callable[[], None]) -> Callable[[], None]:
    """Wraps `turn`, which lets other programs run, so that a recorder does not observe them."""

    def turned() -> None:
        if not active:
            turn()
            return
        watcher = active[-1]
        look_away()
        try:
            turn()
        finally:
            watch(watcher)

    return turned


class _Watched:
    """Proxy of the builder that passes operations through a recorder."""

    def __init__(self, watcher: Watcher, builder: Any) -> None:
        self._watcher = watcher
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._builder, name)
        if not name.startswith(("create_", "get_")) or not callable(attribute):
            return attribute
        call = self._watcher.call

        def operation(*arguments: Any, **named: Any) -> Any:
            return call(name, attribute, arguments, named)

        self.__dict__[name] = operation
        return operation


def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function of the language that reads its tensors, so that it is recorded as a single
    operation."""
    function = carrying_origins(name, function)

    def operation(*arguments: Any, **named: Any) -> Any:
        if not active:
            return function(*arguments, **named)
        return active[-1].call(name, function, arguments, named)

    operation.__name__ = name
    return operation


def _data_of(handle: Any) -> Any:
    data = handle.__dict__["data"]
    watcher = active[-1]
    if not watcher.busy:
        watcher.read(handle, data)
    return data


def _set_data(handle: Any, data: object) -> None:
    handle.__dict__["data"] = data
