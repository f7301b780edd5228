"""The messages between a pool and a judge process, as JSON: nothing is ever unpickled."""

from __future__ import annotations

from typing import Literal

from kernelwright.tools.faults import Value
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import Environment, Report

ErrorKind = Literal["problem", "infrastructure", "cancelled", "ended", "lost", "internal"]
"""Names for exceptions sent between processes (verdict_maker.exception_of)."""


class VerdictRequest(Value):
    """Asks a judge to make this verdict."""

    kind: Literal["ask"] = "ask"
    number: int
    problem: Problem
    source: str
    options: Options
    reference: TrialOutcome | None = None
    """Outcome of an earlier trial of the reference. None: the judge tries the reference."""


class StopRequest(Value):
    """Asks a judge to stop this verdict at its next step."""

    kind: Literal["stop"] = "stop"
    number: int


class JudgeReady(Value):
    """Message of a judge at the end of its start: ready for verdicts."""

    kind: Literal["ready"] = "ready"
    environment: Environment


class JudgeAlive(Value):
    """Message of a judge every few seconds, also during work. A judge without such messages counts
    as dead.
    """

    kind: Literal["alive"] = "alive"


class VerdictStep(Value):
    """Message of a judge at each new step of a verdict."""

    kind: Literal["step"] = "step"
    number: int
    doing: str


class VerdictReply(Value):
    """Message of a judge with a verdict."""

    kind: Literal["judged"] = "judged"
    number: int
    report: Report
    is_last: bool = False
    """True if the judge can make no further verdict, because this one broke the GPU context of its
    process.
    """
    reference: TrialOutcome | None = None
    """Outcome of the reference's trial, if the judge ran the trial and the reference works."""


class VerdictError(Value):
    """Message of a judge with the reason for a missing verdict. number: None if the judge itself
    failed to start.
    """

    kind: Literal["trouble"] = "trouble"
    number: int | None
    error: ErrorKind
    message: str
    is_last: bool = False
    """True if the judge can make no further verdict, because this one broke the GPU context of its
    process.
    """


ToJudge = VerdictRequest | StopRequest
FromJudge = JudgeReady | JudgeAlive | VerdictStep | VerdictReply | VerdictError
