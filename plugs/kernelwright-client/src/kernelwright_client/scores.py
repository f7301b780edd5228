"""What a verdict says, and what it is worth: pure functions of the service's answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

CHEAT = "cheat"


@dataclass(frozen=True)
class Weights:
    """What each part of a reward is worth when it is whole. The defaults are those of `rl`'s formula `default`, whose
    0.05 for compiling and for passed checks is given for compiling here.
    """

    compiled: float = 0.05
    correct: float = 1.0
    speed: float = 0.5
    """Of the logarithm to base 2 of the speedup over eager PyTorch: twice as fast is worth it whole."""
    share: float = 0.25
    """Of the GPU time that is spent in the candidate's own kernels."""
    cheat: float = -0.25
    """Instead of everything else, for a candidate that tried to deceive the judge."""
    slowest: float = 0.25
    """Speedups below count as this."""
    fastest: float = 4.0
    """Speedups above count as this."""


@dataclass(frozen=True)
class Reward:
    """A reward in its parts."""

    total: float | None
    """The sum of the parts; None where nothing was found out about the candidate, so that it must not train."""
    parts: Mapping[str, float]
    """gate (0 or 1, what the others are multiplied with), compiled, correct, speed, share and cheat, weighed."""
    ended_at: str
    """source, compile, interpreted, correctness or profile; `unscored` where there is no verdict."""
    failure_kind: str = ""
    """The fault of the candidate (`mismatch` ...), or the trouble that left it unscored; empty for a correct one."""
    explanation: str = ""

    @property
    def masked(self) -> bool:
        """Whether it must not train."""
        return self.total is None

    def flat(self, prefix: str = "") -> dict[str, float]:
        """The parts as a table of numbers for a trainer's log."""
        return {f"{prefix}{name}": value for name, value in self.parts.items()}


@dataclass(frozen=True)
class Score:
    """What the service found out about one candidate."""

    verdict_id: str = ""
    ended_at: str = "unscored"
    compiled: bool = False
    correct: bool = False
    gate: float = 0.0
    """0 for a cheat, a text that is no candidate, and a problem that wrong answers would pass."""
    speedup: float | None = None
    """Over eager PyTorch; None where nothing was timed."""
    share: float | None = None
    """Of the work in the candidate's own kernels, 0 to 1."""
    fault: str | None = None
    mask: bool = True
    """Whether this must not train: the machine's trouble, or a fault that a loaded machine may cause."""
    explanation: str = ""
    trouble: str = ""
    """Why there is no verdict; empty where there is one."""
    answer: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The service's whole answer, with the report."""

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Score:
        """Of the status of a verdict that has ended (docs/reference/service.md)."""
        told, error = status.get("score"), status.get("error") or {}
        if told is None:
            why = error.get("message") or f"the verdict ended as {status.get('state')}"
            return cls.unscored(error.get("code") or status.get("state") or "failed", why, status)
        known = {name: told[name] for name in told if name in cls.__dataclass_fields__}
        return cls(verdict_id=status["verdict_id"], answer=status, **known)

    @classmethod
    def unscored(cls, trouble: str, why: str, status: Mapping[str, Any] | None = None) -> Score:
        """Where there is no verdict, which is never the candidate's fault."""
        return cls(
            trouble=trouble, explanation=why, answer=status or {}, verdict_id=(status or {}).get("verdict_id", "")
        )

    def reward(self, weights: Weights | None = None) -> Reward:
        """What it is worth. Speed and share count for what was timed on a GPU only."""
        parts = self._parts(weights or Weights())
        total = None if self.mask else math.fsum(value for name, value in parts.items() if name != "gate")
        return Reward(total, parts, self.ended_at, self.fault or self.trouble, self.explanation)

    def _parts(self, weights: Weights) -> dict[str, float]:
        timed = self.correct and self.speedup is not None and self.speedup > 0.0
        clipped = min(max(self.speedup or 1.0, weights.slowest), weights.fastest)
        return {
            "gate": self.gate,
            "compiled": self.gate * weights.compiled * self.compiled,
            "correct": self.gate * weights.correct * self.correct,
            "speed": self.gate * weights.speed * math.log2(clipped) if timed else 0.0,
            "share": self.gate * weights.share * (self.share or 0.0) if timed else 0.0,
            "cheat": weights.cheat if self.fault == CHEAT else 0.0,
        }

    def without_answer(self) -> dict[str, Any]:
        """As JSON, without the report."""
        told = asdict(self)
        del told["answer"]
        return told

    def feedback(self) -> str:
        """What a policy is told of it, in a few lines: for rollouts of several turns."""
        if self.trouble:
            return "The judge could not look at this kernel. Hand in the same kernel again."
        if self.correct:
            speed = f" It runs {self.speedup:.2f} times as fast as eager PyTorch." if self.speedup else ""
            return f"The kernel is correct.{speed}"
        failure = (self.answer.get("report") or {}).get("failure") or {}
        where = failure.get("where") or {}
        line = f"\nline {where['line']}: {where.get('text', '')}" if where.get("line") else ""
        hint = (failure.get("mismatch") or {}).get("hint", "")
        return f"The kernel is not correct: {self.explanation}{line}{chr(10) + hint if hint else ''}"
