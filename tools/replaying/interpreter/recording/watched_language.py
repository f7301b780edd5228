"""The interpreter while a recorder watches one program: each operation of the builder, and each look into a value, goes
by the recorder. Other programs that have their turn meanwhile are not watched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import carrying_origins
from kernelwright.tools.replaying.interpreter.recording.language import language


class Watcher(Protocol):
    """A recorder, as this module knows it."""

    busy: int
    """Not 0 while an operation is done: what that looks into is no decision."""

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Does an operation that the kernel asks for."""

    def read(self, handle: Any, data: Any) -> None:
        """Notes that Python reads the contents of a value."""


active: list[Watcher] = []
"""The recorder of the program that runs, where there is one."""


def watch(watcher: Watcher) -> None:
    """From now on the interpreter tells this recorder what the program does."""
    lang = language()
    lang.handle.data = property(_data_of, _set_data)
    lang.semantic.builder = _Watched(watcher, lang.builder)
    active.append(watcher)


def look_away() -> None:
    """Ends what `watch` began last."""
    lang = language()
    active.pop()
    lang.semantic.builder = lang.builder
    del lang.handle.data


def letting_others_run(turn: Callable[[], None]) -> Callable[[], None]:
    """The same for a program that may be recorded at this moment: what others do meanwhile is no part of its record."""

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
    """The builder, whose operations go by a recorder."""

    def __init__(self, watcher: Watcher, builder: Any) -> None:
        self._watcher, self._builder = watcher, builder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._builder, name)
        if not name.startswith(("create_", "get_")) or not callable(found):
            return found
        call = self._watcher.call

        def operation(*arguments: Any, **named: Any) -> Any:
            return call(name, found, arguments, named)

        self.__dict__[name] = operation
        return operation


def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the language that looks into its tensors, as one operation."""
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


def _set_data(handle: Any, data: Any) -> None:
    handle.__dict__["data"] = data
