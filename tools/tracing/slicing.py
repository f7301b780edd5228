"""Finds the earlier steps that a call needs, by a backward slice over the tape.

Runs in a candidate's process, on plain data. Example: the tape `a = zeros(4)`, `b = ones(4)`,
`a.add_(1)`, `c = neg(b)`, with c required, gives `b = ones(4)`, `c = neg(b)`. With a required it
gives `a = zeros(4)`, `a.add_(1)`: the in-place step touches a's storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernelwright.tools.trace.trace import Json, tensors_in

Step = dict[str, Any]
Parts = tuple[Step, set[int], set[int]]
"""A step, the tensors that it reads or writes, and those that it makes."""


def read_and_written(step: Step) -> tuple[set[int], set[int]]:
    """Returns the numbers of the tensors that a step reads or writes, and of those that it makes."""
    if "kernel" in step:
        return set(tensors_in([*step["args"].values(), step.get("reaches", [])])), set()
    if "op" in step:
        return set(tensors_in(step["args"])) | set(tensors_in(step["kwargs"])), set(
            tensors_in(step["out"])
        )
    if "data" in step:
        return set(tensors_in(step.get("addresses", []))), {step["t"]}
    used = set[int]()
    outputs = set[int]()
    for inner in step["alternatives"]:
        for inner_step in inner:
            u, m = read_and_written(inner_step)
            used = used | u
            outputs = outputs | m
    return used, outputs


def used_from_outside(steps: Iterable[Step]) -> set[int]:
    """Returns the numbers of tensors that the steps use but do not make."""
    available: set[int] = set()
    used: set[int] = set()
    for step in steps:
        reads, makes = read_and_written(step)
        used |= reads - available
        available |= makes
    return used


def needed_steps(
    history: list[Step],
    required: set[int],
    storages: list[int],
    *,
    mutates: Callable[[Step], bool],
    always: Callable[[Step], bool],
    cache: dict[int, Parts] | None = None,
) -> list[Step]:
    """Returns the steps of `history`, in order, that make or change the required tensors, and those
    selected by `always`.

    Random steps are always needed, since they advance the generator. A step that changes memory in
    place, and every launch, is needed if it touches the storage of a needed tensor. cache: results
    of earlier calls on the same history, by identity.
    """
    cache = {} if cache is None else cache
    needed = set(required)
    regions = {storages[n] for n in required}
    selected: list[Step] = []
    for step in reversed(history):
        if (parts := cache.get(id(step))) is None:
            parts = cache[id(step)] = (step, *read_and_written(step))
        _, used, outputs = parts
        touches = (
            bool(outputs & needed)
            or always(step)
            or (mutates(step) and any(storages[n] in regions for n in used))
        )
        if touches:
            selected.append(step)
            needed |= used | outputs
            regions |= {storages[n] for n in used}
    return selected[::-1]


def renamed(value: Json, names: dict[int, int]) -> Json:
    """Returns a value (a step, a list of steps) with other tensor numbers."""
    if isinstance(value, dict):
        if "kernel" in value and isinstance(
            value.get("args"), dict
        ):  # a kernel's parameter may be called `t`
            remaining = {k: renamed(v, names) for k, v in value.items() if k != "args"}
            return remaining | {"args": {k: renamed(v, names) for k, v in value["args"].items()}}
        if "t" in value and isinstance(value["t"], int):
            remaining = {k: renamed(v, names) for k, v in value.items() if k != "t"}
            return {**remaining, "t": names.get(value["t"], value["t"])}
        return {k: renamed(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v, names) for v in value]
    return value


def canonical(steps: list[Step], outputs: Json, roots: Iterable[int]) -> Json:
    """Returns steps and outputs with tensors numbered by first appearance; an older tensor n
    becomes -1 - n.

    Two calls with equal canonical forms make the same steps.
    """
    names: dict[int, int] = {}
    for root in roots:
        names.setdefault(root, len(names))
    for number in _numbers(steps):
        names.setdefault(number, len(names))
    outside = {
        n: -1 - n for n in used_from_outside(steps) | set(tensors_in(outputs)) if n not in names
    }
    return [renamed(_without_lines(steps), names | outside), renamed(outputs, names | outside)]


def _numbers(steps: list[Step]) -> Iterator[int]:
    """Yields numbers of the tensors made by the steps, in order."""
    for step in steps:
        _, outputs = read_and_written(step)
        yield from sorted(outputs)


def _without_lines(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: _without_lines(v) for k, v in value.items() if k != "line"}
    if isinstance(value, list):
        return [_without_lines(v) for v in value]
    return value
