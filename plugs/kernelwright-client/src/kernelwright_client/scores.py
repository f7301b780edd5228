"""What a verdict says, and what it is worth: pure functions of the service's answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kernelwright_client.feedback import feedback_of
from kernelwright_client.reward_parts import (
    PRESET_WEIGHTS,
    Findings,
    Weights,
    is_kept,
    reward_parts,
)

CHEAT = "cheat"


@dataclass(frozen=True)
class Reward:
    """A reward in its parts."""

    total: float | None
    """The sum of the parts; None where nothing was found out about the candidate, so that it must not train."""
    parts: Mapping[str, float]
    """form, compile, checks, correct, speed, share, length and cheat, weighed; of a user's own function, total."""
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
    """Over eager PyTorch, at the median; None where nothing was timed."""
    speedup_low: float | None = None
    """Lower 95 % bound of the speedup: what a reward pays, so that the noise of the clock earns nothing."""
    compile_speedup: float | None = None
    """Over torch.compile; None where the verdict was not asked to time it (`options={"torch_compile": True}`)."""
    compile_speedup_low: float | None = None
    speed_of_light: float | None = None
    """The roofline's time over the candidate's, 0 to 1."""
    milliseconds: float | None = None
    """The candidate's median time of one call."""
    share: float | None = None
    """Of the work in the candidate's own kernels, 0 to 1."""
    time_share: float | None = None
    """Of GPU time in the candidate's own kernels, 0 to 1."""
    checks_passed: int = 0
    checks_made: int = 0
    narrow_contract: str = ""
    """Why a correct kernel is right at too few sizes; empty for every other."""
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
            trouble=trouble,
            explanation=why,
            answer=status or {},
            verdict_id=(status or {}).get("verdict_id", ""),
        )

    @property
    def is_cheat(self) -> bool:
        """Whether the candidate tried to deceive the judge."""
        return self.fault == CHEAT

    @property
    def findings(self) -> Findings:
        """What a reward looks at."""
        return Findings(
            follows_rule=self.gate > 0.0,
            is_cheat=self.is_cheat,
            compiled=self.compiled,
            checks_passed=self.checks_passed,
            checks_made=self.checks_made,
            correct=self.correct,
            is_narrow=bool(self.narrow_contract),
            speedup_low=self.speedup_low,
            compile_speedup_low=self.compile_speedup_low,
            share=self.time_share,
        )

    def reward(self, pays: Pays = None) -> Reward:
        """What it is worth: by weights, by a preset's name, or by a function of the user's own, which is given the
        score and returns a number, or None for a sample that must not train. None takes the preset `default`.
        """
        total: float | None = None
        if callable(pays):
            total = None if self.mask else pays(self)
            parts = {"total": total or 0.0}
        else:
            weights = weights_of(pays)
            parts = reward_parts(weights, self.findings)
            if not self.mask and is_kept(
                weights, self.findings, str(self.answer.get("candidate_hash", ""))
            ):
                total = math.fsum(parts.values())
        return Reward(total, parts, self.ended_at, self.fault or self.trouble, self.explanation)

    def without_answer(self) -> dict[str, Any]:
        """As JSON, without the report."""
        told = asdict(self)
        del told["answer"]
        return told

    def feedback(self, *, goes_on: bool = False) -> str:
        """What a policy is told of it, in a few lines: for rollouts of several turns.

        goes_on: a correct kernel is to be made faster, so that its bound and its slowest launch are told.
        """
        if self.trouble:
            return "The judge could not look at this kernel. Hand in the same kernel again."
        return feedback_of(
            self.correct, self.explanation, self.answer.get("report") or {}, goes_on=goes_on
        )


Pays = Weights | str | Mapping[str, Any] | Callable[[Score], float | None] | None
"""What pays a score: weights, a preset's name, weights as a table, or a function; None for the preset `default`."""


def weights_of(pays: Weights | str | Mapping[str, Any] | None) -> Weights:
    """Returns the weights that are meant. Raises ValueError for a preset or a weight that there is not."""
    if pays is None or isinstance(pays, Weights):
        return pays or Weights()
    if isinstance(pays, str):
        if pays not in PRESET_WEIGHTS:
            raise ValueError(f"no reward {pays!r}: choose {', '.join(PRESET_WEIGHTS)}")
        return PRESET_WEIGHTS[pays]
    if unknown := sorted(set(pays) - {weight.name for weight in fields(Weights)}):
        raise ValueError(
            f"no weight {', '.join(unknown)}: choose {', '.join(w.name for w in fields(Weights))}"
        )
    return Weights(**pays)
