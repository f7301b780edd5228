"""What is asked of a verdict and what comes back, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CorrectnessResult, Value


@dataclass(frozen=True)
class Rules:
    """What is asked of a candidate."""

    own_work: Rule = field(default_factory=Rule)
    seconds: float = 120.0
    """For all of its replays."""
    may_refuse: float = 0.5
    """Share of the other sizes at which the candidate's host code may raise."""


class AtSize(Value):
    """One size that a candidate is checked at."""

    index: int
    """Of its trace."""
    problem: Problem
    """The problem at this size."""
    sizes: dict[str, int] = {}
    """Module-level integers of the reference that were changed."""
    why: str = ""
    required: bool = False
    """Whether the candidate may not refuse it."""


@dataclass
class JudgeFindings:
    """What a judge found."""

    result: CorrectnessResult
    needs_gpu: str = ""
    """Why no interpreter can run it; then nothing is known of its answers."""

    def with_result(self, result: CorrectnessResult) -> JudgeFindings:
        """The same with another result."""
        return JudgeFindings(result, self.needs_gpu)
