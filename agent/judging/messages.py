"""The messages between a pool and a judge process, as JSON: nothing is ever unpickled."""

from __future__ import annotations

from typing import Literal

from kernelwright.tools.faults import Value
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import Environment, Report

ErrorKind = Literal["problem", "infrastructure", "cancelled", "ended", "lost", "internal"]
"""The exceptions that travel, by name (verdict_maker.exception_of)."""


class VerdictRequest(Value):
    """Asks a judge to make this verdict."""

    kind: Literal["ask"] = "ask"
    number: int
    problem: Problem
    source: str
    options: Options
    reference: TrialOutcome | None = None
    """The outcome of a trial of the reference that the asking process knows; None where the judge is to try it."""


class StopRequest(Value):
    """Asks a judge to stop this verdict at its next step."""

    kind: Literal["stop"] = "stop"
    number: int


class JudgeReady(Value):
    """A judge says that it has begun."""

    kind: Literal["ready"] = "ready"
    environment: Environment


class JudgeAlive(Value):
    """A judge says every few seconds that it lives, whatever it does; one that is silent longer is taken for dead."""

    kind: Literal["alive"] = "alive"


class VerdictStep(Value):
    """A judge says which step a verdict is at."""

    kind: Literal["step"] = "step"
    number: int
    doing: str


class VerdictReply(Value):
    """A judge gives a verdict."""

    kind: Literal["judged"] = "judged"
    number: int
    report: Report
    is_last: bool = False
    """Whether the judge makes no more verdicts: this one has ended its device for this process."""
    reference: TrialOutcome | None = None
    """The outcome of the trial of the reference, where the judge made it and the reference works."""


class VerdictError(Value):
    """A judge says why there is no verdict. `number` is None where the judge itself could not begin."""

    kind: Literal["trouble"] = "trouble"
    number: int | None
    error: ErrorKind
    message: str
    is_last: bool = False
    """Whether the judge makes no more verdicts: this one has ended its device for this process."""


ToJudge = VerdictRequest | StopRequest
FromJudge = JudgeReady | JudgeAlive | VerdictStep | VerdictReply | VerdictError
