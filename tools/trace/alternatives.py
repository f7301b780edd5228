"""Selects choice numbers that take every configuration of a call's autotuned launches at least
once. Trusted: reads a trace.

Example: two choices with 3 and 2 alternatives. Number n takes alternatives (n % 3, n % 2). If
number 0 has been run, alternatives 0 and 0 are covered; number 1 adds (1, 1), number 2 adds
alternative 2 of the first choice. The result is [1, 2].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernelwright.tools.report import clean_text
from kernelwright.tools.trace.trace import Choice, Launch, Step, Traced

MAX_CONFIGURATIONS = 256
"""Maximum number of configurations checked separately at a size."""


def configurations_not_taken(
    steps: Sequence[Step], traced: Traced, covered_numbers: Iterable[int]
) -> list[int]:
    """Returns numbers that take configurations missing from those of `covered_numbers`.

    A choice among n alternatives takes alternative `number % n`. Configurations that differ only in
    warps and stages count as equal, unless a kernel's source reads num_warps.
    """
    choices = [step for step in steps if isinstance(step, Choice) and step.alternatives]
    forms = [
        [_form(alternative, traced) for alternative in choice.alternatives] for choice in choices
    ]
    covered = {
        (position, choice_forms[number % len(choice_forms)])
        for number in covered_numbers
        for position, choice_forms in enumerate(forms)
    }
    uncovered: list[int] = []
    for number in range(max((len(choice_forms) for choice_forms in forms), default=0)):
        new = {
            (position, choice_forms[number % len(choice_forms)])
            for position, choice_forms in enumerate(forms)
        } - covered
        if new:
            covered |= new
            uncovered.append(number)
    return uncovered[:MAX_CONFIGURATIONS]


def configuration_named(steps: Sequence[Step], number: int) -> str:
    """Returns Triton's label of the configuration that a number takes at the first autotuned
    launch; the number if unlabelled."""
    choice = next((step for step in steps if isinstance(step, Choice) and step.alternatives), None)
    position = number % len(choice.alternatives) if choice is not None else 0
    label = (
        choice.labels[position]
        if choice is not None and position < len(choice.labels)
        else str(number)
    )
    return clean_text(label, 120)


def _form(alternative: Sequence[Any], traced: Traced) -> str:
    return repr(
        [_launch(step, traced) if isinstance(step, Launch) else step for step in alternative]
    )


def _launch(step: Launch, traced: Traced) -> Any:
    kernel = traced.kernels[step.kernel]
    asks = any("num_warps" in function.text for function in traced.functions.values())
    options = kernel.options if asks else ()
    return kernel.function, kernel.signature, kernel.constants, options, step.grid, step.args
