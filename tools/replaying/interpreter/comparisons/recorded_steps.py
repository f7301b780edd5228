"""Adds recording of outcomes to steps of a record, for replays of single programs and of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernelwright.tools.replaying.interpreter.comparisons.constant_results import (
    ObservedResult,
    lanes_alive,
)
from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import (
    COMBINING_OPERATIONS,
    DATA,
    KEEPING_VALUES,
    Compared,
    call_on_data,
    comparisons_of,
    masks_of,
    origin_of,
    result_of,
    sites_of_caller,
)

Run = Callable[..., Any]
Together = Callable[[list[Any], Sequence[bool]], Any]


class RecordedStep(NamedTuple):
    """Operation being recorded."""

    name: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    result: Any
    """Result of the operation."""
    run: Run
    """Runs the operation for a single program."""
    together: Together | None
    """Runs the operation for many programs at once."""
    operands: tuple[int, ...]
    """Slots of the operation's handles."""
    is_quick: bool
    """`run` takes the values of `operands`, not the list of all values."""


def noting(step: RecordedStep, slot_of: Callable[[Any], int]) -> RecordedStep:
    """Returns the step extended to record comparison outcomes, and its values until they vary.

    slot_of: maps a handle to the slot of its value.
    """
    return _noting_values(_noting_outcomes(step, slot_of), slot_of)


def _noting_outcomes(step: RecordedStep, slot_of: Callable[[Any], int]) -> RecordedStep:
    if step.name in COMBINING_OPERATIONS:
        return _noting_inside(step)
    compared = comparisons_of(step.name, step.arguments, step.result)
    if compared is None or not step.operands:
        return step
    count = len(step.operands)
    operands = (*step.operands, *map(slot_of, compared.masks))
    run = (
        _noting(compared, step.run, count)
        if step.is_quick
        else _noting_of_all(compared, step.run, operands, count)
    )
    together = None if step.together is None else _noting_together(compared, step, count)
    return step._replace(run=run, together=together, operands=operands)


def _noting(compared: Compared, run: Run, count: int) -> Run:
    def noted(*values: Any) -> Any:
        output = run(*values[:count])
        compared.note(values[:count], output, values[count:])
        return output

    return noted


def _noting_of_all(compared: Compared, run: Run, operands: Sequence[int], count: int) -> Run:
    def noted(values: Any) -> Any:
        output = run(values)
        needed = [values[slot] for slot in operands]
        compared.note(needed[:count], output, needed[count:])
        return output

    return noted


def _noting_together(compared: Compared, step: RecordedStep, count: int) -> Together:
    from kernelwright.tools.replaying.interpreter.recording.whole_batches import aligned

    def noted(values: list[Any], leads: Sequence[bool]) -> Any:
        output = _run_batch(step, values, leads, count)
        spread = aligned(values, leads)
        compared.note(spread[:count], output, spread[count:])
        return output

    return noted


def _noting_inside(step: RecordedStep) -> RecordedStep:
    """Extends a combination by a function of the kernel: comparisons inside are recorded at each
    call."""
    operands = (*step.arguments, *step.named.values())
    flat = [
        item
        for value in operands
        for item in (value if isinstance(value, tuple | list) else (value,))
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


def _noting_values(step: RecordedStep, slot_of: Callable[[Any], int]) -> RecordedStep:
    """Extends a step to record its values, as long as they are equal."""
    keeps = step.name.removeprefix("create_") in KEEPING_VALUES
    if keeps or isinstance(step.result, list | tuple) or step.result is None:
        return step
    if (result := result_of(step.result)) is None:
        return step
    if result.varied:
        result.varied_when_recorded = True
        return step
    if not step.operands:
        return step
    handle = getattr(step.result, "handle", step.result)
    count, operands = len(step.operands), (*step.operands, *map(slot_of, masks_of(handle)))
    run = _run_noting_values(result, step.run, operands, count, step.is_quick)
    together = None if step.together is None else _noting_values_together(result, step, count)
    return step._replace(run=run, together=together, operands=operands)


def _run_noting_values(
    result: ObservedResult, run: Run, operands: Sequence[int], count: int, is_quick: bool
) -> Run:
    def quick(*values: Any) -> Any:
        output = run(*values[:count])
        if not result.varied:
            result.note(output, lanes_alive(values[count:]))
        return output

    def of_all(values: Any) -> Any:
        output = run(values)
        if not result.varied:
            result.note(output, lanes_alive([values[slot] for slot in operands[count:]]))
        return output

    return quick if is_quick else of_all


def _noting_values_together(result: ObservedResult, step: RecordedStep, count: int) -> Together:
    from kernelwright.tools.replaying.interpreter.recording.whole_batches import aligned

    def noted(values: list[Any], leads: Sequence[bool]) -> Any:
        output = _run_batch(step, values, leads, count)
        if not result.varied:
            spread = aligned([output, *values[count:]], [True, *leads[count:]])
            result.note(spread[0], lanes_alive(spread[1:]))
        return output

    return noted


def _run_batch(step: RecordedStep, values: list[Any], leads: Sequence[bool], count: int) -> Any:
    """Runs a step for a batch of programs. Raises ValueError if the step has no such form.

    values: those of `count` operands, then those of masks. If no operand differs between programs,
    the step runs once.
    """
    import numpy as np

    assert step.together is not None
    if any(leads[:count]):
        return step.together(values[:count], leads[:count])
    if not step.is_quick:
        raise ValueError(
            "programs that compute the same values under different masks are not batched"
        )
    programs = next(len(value) for value, lead in zip(values, leads, strict=True) if lead)
    alone = step.run(*values[:count])
    return np.broadcast_to(alone, (programs, *alone.shape))
