"""What passes between a pool and a judge process, as JSON: nothing is ever unpickled."""

from __future__ import annotations

from typing import Literal

from kernelwright.tools.faults import Value
from kernelwright.tools.judging.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Environment, Report


class VerdictRequest(Value):
    """Asks a judge to make this verdict."""

    kind: Literal["ask"] = "ask"
    number: int
    problem: Problem
    source: str
    options: Options


class StopRequest(Value):
    """Asks a judge to stop this verdict at its next step."""

    kind: Literal["stop"] = "stop"
    number: int


class JudgeReady(Value):
    """From a judge that has begun."""

    kind: Literal["ready"] = "ready"
    environment: Environment


class JudgeAlive(Value):
    """From a judge, every few seconds, whatever it is at: one that is silent for longer than that is taken for dead."""

    kind: Literal["alive"] = "alive"


class VerdictStep(Value):
    """From a judge: what a verdict is at."""

    kind: Literal["step"] = "step"
    number: int
    doing: str


class VerdictReply(Value):
    """From a judge: the verdict."""

    kind: Literal["judged"] = "judged"
    number: int
    report: Report


class VerdictError(Value):
    """From a judge: no verdict, and why. `number` is None where the judge itself could not begin."""

    kind: Literal["trouble"] = "trouble"
    number: int | None
    error: Literal["problem", "infrastructure", "cancelled", "lost", "internal"]
    message: str


ToJudge = VerdictRequest | StopRequest
FromJudge = JudgeReady | JudgeAlive | VerdictStep | VerdictReply | VerdictError
