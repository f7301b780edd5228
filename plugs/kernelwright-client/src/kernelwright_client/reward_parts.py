"""The parts of a reward, from weights and the findings of a verdict.

The plugs' client has a copy of this file, so kernels earn the same everywhere: only the standard
library is imported.

    Weights() with a correct kernel, 2 of 2 checks, lower speedup 2.0, share 0.8
    -> compile 0.02, checks 0.03, correct 1.0, speed 0.5 * log2(2) = 0.5, share 0.25 * 0.8 = 0.2
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

PART_NAMES = ("form", "compile", "checks", "correct", "speed", "share", "length", "cheat")
"""The parts whose sum is a reward, as described by `kernelwright.agent.rewards.formula.RewardPart`."""


@dataclass(frozen=True)
class Weights:
    """Values of the complete parts of a reward. The defaults are those of the preset `default`."""

    form: float = 0.0
    """For a program that parses and whose own kernels do the work."""
    compile: float = 0.02
    checks: float = 0.03
    """For the share of passed checks among the checks made: partial credit for an incorrect
    kernel.
    """
    correct: float = 1.0
    speed: float = 0.5
    """For the lower 95 % bound of the speedup, converted by `scale`."""
    share: float = 0.25
    """For the share of GPU time in the candidate's own kernels, 0 to 1."""
    length: float = -0.02
    """Added for a truncated reply; 0 or less."""
    cheat: float = -0.25
    """Replaces all other parts for a candidate that tried to deceive the judge."""
    scale: str = "log2"
    """log2: twice as fast is 1, half as fast is -1. ratio: twice as fast is 2."""
    baseline: str = "eager"
    """Baseline of the speedup: eager, or compile (torch.compile, if the verdict was requested to
    time it).
    """
    slowest: float = 0.25
    """Smallest rewarded speedup; smaller speedups count as this number."""
    fastest: float = 4.0
    """Largest rewarded speedup; larger speedups count as this number."""
    least_share: float | None = None
    """A correct sample is accepted with probability clip((share - this) / 0.1, 0, 1) (Dr.
    Kernel); None accepts all.
    """
    rewards_narrow_contracts: bool = False
    """Whether a correct kernel whose own checks admit a single size earns like any other."""

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown scale or baseline, and for bounds out of order."""
        if self.scale not in ("log2", "ratio") or self.baseline not in ("eager", "compile"):
            raise ValueError(
                f"scale {self.scale!r}, baseline {self.baseline!r}: log2 or ratio, eager or compile"
            )
        if not 0.0 < self.slowest <= self.fastest:
            raise ValueError(
                f"slowest {self.slowest:g}, fastest {self.fastest:g}: give 0 < slowest <= fastest"
            )


PRESET_WEIGHTS: Mapping[str, Weights] = {
    "default": Weights(),
    "execution": Weights(speed=0.0, share=0.0),
    "autotriton": Weights(compile=0.0, checks=0.0, speed=0.0, share=0.0, length=0.0),
    "kevin": Weights(
        compile=0.0, checks=0.0, correct=0.3, speed=1.0, share=0.0, length=0.0, scale="ratio", slowest=1e-6,
        fastest=100.0,
    ),
    "drkernel": Weights(
        compile=0.0, checks=0.0, correct=0.5, speed=0.5, share=0.5, length=0.0, scale="ratio", slowest=1e-6,
        fastest=3.0, least_share=0.3,
    ),
}  # fmt: skip
"""Named weights; `rl rewards --presets` names the published reward of each."""


@dataclass(frozen=True)
class Findings:
    """The findings of a verdict that determine a reward."""

    follows_rule: bool = False
    """No cheat, and a program whose own kernels do the work."""
    is_cheat: bool = False
    compiled: bool = False
    checks_passed: int = 0
    checks_made: int = 0
    correct: bool = False
    is_narrow: bool = False
    """Whether the candidate is correct at too few sizes for a full reward."""
    speedup_low: float | None = None
    """Lower 95 % bound of the speedup over eager; None without timing on a GPU."""
    compile_speedup_low: float | None = None
    """Lower 95 % bound of the speedup over torch.compile."""
    share: float | None = None
    """Share of GPU time in the candidate's own kernels; None if not measured."""
    is_cut_off: bool = False
    """Whether the reply ended at its token limit."""


def reward_parts(weights: Weights, findings: Findings) -> dict[str, float]:
    """Returns the parts whose sum is the reward, by PART_NAMES. Equal findings always earn the
    same.
    """
    follows = findings.follows_rule
    earns = (
        follows
        and findings.correct
        and (weights.rewards_narrow_contracts or not findings.is_narrow)
    )
    # A missing or infinite measurement earns nothing.
    share = findings.share if findings.share is not None and math.isfinite(findings.share) else 0.0
    checks_made = findings.checks_made
    return {
        "form": weights.form if follows else 0.0,
        "compile": weights.compile if follows and findings.compiled else 0.0,
        "checks": weights.checks * findings.checks_passed / checks_made
        if follows and checks_made
        else 0.0,
        "correct": weights.correct if earns else 0.0,
        "speed": weights.speed * _worth(weights, findings) if earns else 0.0,
        "share": weights.share * min(max(share, 0.0), 1.0) if earns else 0.0,
        "length": weights.length if findings.is_cut_off else 0.0,
        "cheat": weights.cheat if findings.is_cheat else 0.0,
    }


def rewarded_speedup(weights: Weights, findings: Findings) -> float | None:
    """Returns the rewarded speedup before clipping; None if not measured."""
    speedup = findings.speedup_low if weights.baseline == "eager" else findings.compile_speedup_low
    return speedup if speedup is not None and math.isfinite(speedup) and speedup > 0 else None


def clipped_speedup(weights: Weights, speedup: float) -> float:
    """Returns a speedup clipped to the rewarded bounds."""
    return min(max(speedup, weights.slowest), weights.fastest)


def _worth(weights: Weights, findings: Findings) -> float:
    speedup = rewarded_speedup(weights, findings)
    if speedup is None:
        return 0.0
    clipped = clipped_speedup(weights, speedup)
    return math.log2(clipped) if weights.scale == "log2" else clipped


def is_kept(weights: Weights, findings: Findings, candidate_hash: str) -> bool:
    """Returns whether a sample trains: a correct candidate with little work of its own may be
    rejected.

    The random draw is seeded by the candidate's hash, so repeated calls agree.
    """
    if weights.least_share is None or not findings.correct:
        return True
    if findings.share is None or not math.isfinite(findings.share):
        return False
    share = min(max(findings.share, 0.0), 1.0)
    # The chance rises linearly from 0 to 1 over a tenth of the share.
    chance = min(max((share - weights.least_share) / 0.1, 0.0), 1.0)
    return random.Random(candidate_hash).random() < chance
