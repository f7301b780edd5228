"""Tracks which tensors of a trace share memory, and which tensors a step reads and writes, by the schemas of operators.
Trusted: it reads a trace, and runs nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kernelwright.tools.operators.operators import operator_named
from kernelwright.tools.trace.trace import (
    Data,
    Launch,
    Operator,
    Step,
    addressed_tensors,
    all_steps,
    tensors_in,
    tensors_of_launch,
)

VIEWS = ("_unsafe_view", "_reshape_alias")
"""Operators that may return a view although their schema says otherwise."""


class SharedMemory:
    """Groups the tensors of a trace's set-up by storage, and keeps apart the tensors that the judge loads."""

    def __init__(self, setup: Iterable[Step], loaded: Collection[int]) -> None:
        self._parent: dict[int, int] = {}
        self._loaded = set(loaded)
        for step in all_steps(setup):
            used, results = numbers_of(step)
            if used and _shares(step):
                for number in results:
                    self._parent[self.storage(number)] = self.storage(used[0])

    def storage(self, number: int) -> int:
        """Returns the number of the tensor that represents all tensors of a storage."""
        while (parent := self._parent.get(number, number)) != number:
            number = parent
        return number

    def follow(self, step: Operator | Launch | Data) -> tuple[list[int], set[int]]:
        """Returns the numbers of the tensors that a step reads, and the storages that it creates or writes to.

        Storages of tensors that the judge loads are left out.
        """
        used, results = numbers_of(step)
        if used and used[0] in self._loaded and _shares(step):
            self._loaded.update(results)
        return used, {
            self.storage(n) for n in (*results, *written_by(step)) if n not in self._loaded
        }

    def first_entry(self, names: dict[int, str], used: Iterable[int]) -> str:
        """Returns the first name in `names`, by storage, of the used tensors, or an empty text."""
        storages = (self.storage(n) for n in used if n not in self._loaded)
        return next((names[storage] for storage in storages if storage in names), "")


def numbers_of(step: Operator | Launch | Data) -> tuple[list[int], list[int]]:
    """Returns the numbers of the tensors that a step takes, and of its results."""
    if isinstance(step, Operator):
        return [*tensors_in(step.args), *tensors_in(step.kwargs)], list(tensors_in(step.out))
    return (
        (tensors_of_launch(step), [])
        if isinstance(step, Launch)
        else (addressed_tensors(step), [step.t])
    )


def written_by(step: Operator | Launch | Data) -> Iterator[int]:
    """Yields the numbers of the tensors that a step writes to: by an operator's schema, or all tensors of a launch."""
    if isinstance(step, Launch):
        yield from tensors_of_launch(step)
    func = operator_named(step.op) if isinstance(step, Operator) else None
    if func is None or not isinstance(step, Operator):
        return
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(
                step.args[number] if number < len(step.args) else step.kwargs.get(argument.name)
            )


def _shares(step: Operator | Launch | Data) -> bool:
    """Returns whether the result of an operator lies in the memory of its first tensor."""
    func = operator_named(step.op) if isinstance(step, Operator) else None
    if func is None:
        return False
    written_first = bool(func._schema.arguments) and getattr(
        func._schema.arguments[0].alias_info, "is_write", False
    )
    return func.is_view or written_first or func.overloadpacket.__name__ in VIEWS
