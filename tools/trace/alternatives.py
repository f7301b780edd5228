"""Which numbers of a choice take every configuration of the autotuned launches of a call once. Trusted: it reads a
trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernelwright.tools.report import clean_text
from kernelwright.tools.trace.trace import Choice, Launch, Step, Traced

MAX_CONFIGURATIONS = 256
"""Configurations that are checked by themselves at one size, at most."""


def configurations_not_taken(
    steps: Sequence[Step], traced: Traced, taken: Iterable[int]
) -> list[int]:
    """Numbers that take what none of the numbers in `taken` has.

    Every choice among n alternatives takes alternative `number % n`. Configurations that differ in their warps and
    stages alone are one, unless a kernel's text asks for the number of warps.
    """
    choices = [step for step in steps if isinstance(step, Choice) and step.alternatives]
    forms = [
        [_form(alternative, traced) for alternative in choice.alternatives] for choice in choices
    ]
    seen = {(place, of[number % len(of)]) for number in taken for place, of in enumerate(forms)}
    found: list[int] = []
    for number in range(max((len(of) for of in forms), default=0)):
        new = {(place, of[number % len(of)]) for place, of in enumerate(forms)} - seen
        if new:
            seen |= new
            found.append(number)
    return found[:MAX_CONFIGURATIONS]


def configuration_named(steps: Sequence[Step], number: int) -> str:
    """Triton's text of what a number takes at the first autotuned launch; the number where it has none."""
    choice = next((step for step in steps if isinstance(step, Choice) and step.alternatives), None)
    place = number % len(choice.alternatives) if choice is not None else 0
    label = (
        choice.labels[place] if choice is not None and place < len(choice.labels) else str(number)
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
