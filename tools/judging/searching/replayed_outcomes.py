"""Requests outcomes of comparisons from the replaying process."""

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
    """Returns the candidate's comparisons with all outcomes, nearest operands since the previous
    call, and constant results. Raises Failed."""
    answer = replayer.ask({"do": "comparisons", "forget": "misses"}, seconds=seconds_left())
    try:
        return read_outcomes(answer)
    except ValueError as error:
        raise Failed(failure_of_forgery(str(error))) from error


def forget_outcomes(replayer: Replayer, seconds_left: Callable[[], float]) -> None:
    """Resets outcomes of earlier verdicts. Raises Failed."""
    replayer.ask({"do": "comparisons", "forget": "outcomes"}, seconds=seconds_left())
