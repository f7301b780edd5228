"""Which earlier steps a call needs: a backward slice over what the tape holds.

Runs in a candidate's process; on plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernelwright.tools.trace.trace import Json, tensors_in

Step = dict[str, Any]
Parts = tuple[Step, set[int], set[int]]
"""A step, the tensors that it reads or writes, and those that it makes."""


def read_and_written(step: Step) -> tuple[set[int], set[int]]:
    """Numbers of the tensors that a step reads or writes, and of those that it makes."""
    if "kernel" in step:
        return set(tensors_in([*step["args"].values(), step.get("reaches", [])])), set()
    if "op" in step:
        return set(tensors_in(step["args"])) | set(tensors_in(step["kwargs"])), set(
            tensors_in(step["out"])
        )
    if "data" in step:
        return set(tensors_in(step.get("addresses", []))), {step["t"]}
    used, made = set[int](), set[int]()
    for inner in step["alternatives"]:
        for one in inner:
            u, m = read_and_written(one)
            used, made = used | u, made | m
    return used, made


def used_from_outside(steps: Iterable[Step]) -> set[int]:
    """Numbers that the steps use and do not make themselves."""
    made: set[int] = set()
    used: set[int] = set()
    for step in steps:
        reads, makes = read_and_written(step)
        used |= reads - made
        made |= makes
    return used


def needed_steps(
    history: list[Step],
    wanted: set[int],
    storages: list[int],
    *,
    mutates: Callable[[Step], bool],
    always: Callable[[Step], bool],
    known: dict[int, Parts] | None = None,
) -> list[Step]:
    """The steps of `history`, in order, that make or change the wanted tensors, and those that `always` keeps (random
    ones advance the generator).

    A step that changes memory in place, and every launch, is kept where it touches the storage of a tensor that is
    needed. known: what earlier calls on the same history found of its steps, by identity.
    """
    known = {} if known is None else known
    needed, regions = set(wanted), {storages[n] for n in wanted}
    kept: list[Step] = []
    for step in reversed(history):
        if (parts := known.get(id(step))) is None:
            parts = known[id(step)] = (step, *read_and_written(step))
        _, used, made = parts
        touches = (
            bool(made & needed)
            or always(step)
            or (mutates(step) and any(storages[n] in regions for n in used))
        )
        if touches:
            kept.append(step)
            needed |= used | made
            regions |= {storages[n] for n in used}
    return kept[::-1]


def renamed(value: Json, names: dict[int, int]) -> Json:
    """A value (a step, a list of steps) with tensors called by other numbers."""
    if isinstance(value, dict):
        if "kernel" in value and isinstance(
            value.get("args"), dict
        ):  # a kernel's parameter may be called `t`
            others = {k: renamed(v, names) for k, v in value.items() if k != "args"}
            return others | {"args": {k: renamed(v, names) for k, v in value["args"].items()}}
        if "t" in value and isinstance(value["t"], int):
            others = {k: renamed(v, names) for k, v in value.items() if k != "t"}
            return {**others, "t": names.get(value["t"], value["t"])}
        return {k: renamed(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v, names) for v in value]
    return value


def canonical(steps: list[Step], outputs: Json, roots: Iterable[int]) -> Json:
    """Steps and outputs with the tensors of the call numbered by their first appearance; those that were there
    before keep their own (negative) number.
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
    """Numbers anew, in order, what the steps make."""
    for step in steps:
        _, made = read_and_written(step)
        yield from sorted(made)


def _without_lines(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: _without_lines(v) for k, v in value.items() if k != "line"}
    if isinstance(value, list):
        return [_without_lines(v) for v in value]
    return value
