"""Steps of a record that note the outcomes of their comparisons when they are replayed, for one program or for many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import (
    COMBINING,
    DATA,
    Compared,
    call_on_data,
    comparisons_of,
    origin_of,
    sites_of_caller,
)

Run = Callable[..., Any]
Together = Callable[[list[Any], Sequence[bool]], Any]


class Step(NamedTuple):
    """An operation that is being recorded."""

    name: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    made: Any
    """Its result."""
    run: Run
    """Does it for one program."""
    together: Together | None
    """Does it for many programs at once."""
    operands: tuple[int, ...]
    """The slots of its handles."""
    is_quick: bool
    """Whether `run` takes the values of `operands`, not all values."""


def noting_outcomes(step: Step, slot_of: Callable[[Any], int]) -> Step:
    """The step, which also notes the outcomes of what it compares; as it is where that is nothing.

    slot_of: gives the slot of a handle's value.
    """
    if step.name in COMBINING:
        return _noting_inside(step)
    compared = comparisons_of(step.name, step.arguments, step.made)
    if compared is None or not step.operands:
        return step
    count = len(step.operands)
    operands = (*step.operands, *map(slot_of, compared.masks))
    run = (
        _noting(compared, step.run, count)
        if step.is_quick
        else _noting_of_all(compared, step.run, operands, count)
    )
    together = None if step.together is None else _noting_together(compared, step.together, count)
    return step._replace(run=run, together=together, operands=operands)


def _noting(compared: Compared, run: Run, count: int) -> Run:
    def noted(*values: Any) -> Any:
        made = run(*values[:count])
        compared.note(values[:count], made, values[count:])
        return made

    return noted


def _noting_of_all(compared: Compared, run: Run, operands: Sequence[int], count: int) -> Run:
    def noted(values: Any) -> Any:
        made = run(values)
        needed = [values[slot] for slot in operands]
        compared.note(needed[:count], made, needed[count:])
        return made

    return noted


def _noting_together(compared: Compared, together: Together, count: int) -> Together:
    from kernelwright.tools.replaying.interpreter.recording.whole_batches import aligned

    def noted(values: list[Any], leads: Sequence[bool]) -> Any:
        if not any(leads[:count]):  # the masks alone differ from program to program
            raise ValueError(
                "programs that compare the same values under different masks are not batched"
            )
        made = together(values[:count], leads[:count])
        spread = aligned(values, leads)
        compared.note(spread[:count], made, spread[count:])
        return made

    return noted


def _noting_inside(step: Step) -> Step:
    """A combination whose function is the kernel's own: what that compares is noted where it is called."""
    given = (*step.arguments, *step.named.values())
    flat = [
        one for value in given for one in (value if isinstance(value, tuple | list) else (value,))
    ]
    if max(map(origin_of, flat), default=0) < DATA:
        return step
    sites, run, together = sites_of_caller(), step.run, step.together

    def alone(*values: Any) -> Any:
        return call_on_data(sites, lambda: run(*values))

    def many(values: list[Any], leads: Sequence[bool]) -> Any:
        assert together is not None
        return call_on_data(sites, lambda: together(values, leads))

    return step._replace(
        run=run if step.is_quick else alone, together=None if together is None else many
    )
