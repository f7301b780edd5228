"""The outcomes of comparisons, as the process that replays a candidate tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelwright.tools.replaying.interpreter.comparisons.messages import (
    ToldOutcomes,
    read_outcomes,
)
from kernelwright.tools.replaying.messages import failure_of_forgery
from kernelwright.tools.report import Failed

if TYPE_CHECKING:
    from kernelwright.tools.replaying.replayer import Replayer


def told_outcomes(replayer: Replayer, seconds_left: Callable[[], float]) -> ToldOutcomes:
    """Returns the comparisons of the candidate, with their outcomes of the whole verdict and how near operands came
    since this was called before, and the results that never varied. Raises Failed.
    """
    answer = replayer.ask({"do": "comparisons", "forget": "misses"}, seconds=seconds_left())
    try:
        return read_outcomes(answer)
    except ValueError as error:
        raise Failed(failure_of_forgery(str(error))) from error


def forget_outcomes(replayer: Replayer, seconds_left: Callable[[], float]) -> None:
    """Has the outcomes of earlier verdicts forgotten. Raises Failed."""
    replayer.ask({"do": "comparisons", "forget": "outcomes"}, seconds=seconds_left())
