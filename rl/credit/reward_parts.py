"""The parts of a reward, of weights and of what a verdict found out.

The plugs' client has a copy of this file, so that a kernel earns the same everywhere: only the standard library is
imported.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

PART_NAMES = ("form", "compile", "checks", "correct", "speed", "share", "length", "cheat")
"""The parts whose sum is a reward, as `kernelwright.rl.credit.formula.RewardPart` describes them."""


@dataclass(frozen=True)
class Weights:
    """What each part of a reward is worth when it is whole. The defaults are those of the preset `default`."""

    form: float = 0.0
    """Of a program that parses and whose own kernels do the work."""
    compile: float = 0.02
    checks: float = 0.03
    """Of the share of the checks made that were passed: partial credit for a kernel that is not correct."""
    correct: float = 1.0
    speed: float = 0.5
    """Of the lower 95 % bound of the speedup, as `scale` turns it into a number."""
    share: float = 0.25
    """Of the share of GPU time in its own kernels, 0 to 1."""
    length: float = -0.02
    """Added for a reply that is cut off; 0 or less."""
    cheat: float = -0.25
    """Instead of everything else, for a candidate that tried to deceive the judge."""
    scale: str = "log2"
    """log2: twice as fast is 1, half as fast is -1. ratio: twice as fast is 2."""
    baseline: str = "eager"
    """What the speedup is over: eager, or compile (torch.compile, which the verdict must have been asked to time)."""
    slowest: float = 0.25
    """Speedups below count as this."""
    fastest: float = 4.0
    """Speedups above count as this."""
    least_share: float | None = None
    """A correct sample is kept with probability clip((share - this) / 0.1, 0, 1) (Dr. Kernel); None keeps all."""
    rewards_narrow_contracts: bool = False
    """Whether a correct kernel whose own checks take one size alone earns as any other."""

    def __post_init__(self) -> None:
        """Raises ValueError for a scale or a baseline that there is not, and for bounds that are none."""
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
"""Named weights; `rl rewards --presets` says what each reproduces."""


@dataclass(frozen=True)
class Findings:
    """What a verdict found out about one candidate, as far as a reward looks at it."""

    follows_rule: bool = False
    """No cheat, and a program whose own kernels do the work."""
    is_cheat: bool = False
    compiled: bool = False
    checks_passed: int = 0
    checks_made: int = 0
    correct: bool = False
    is_narrow: bool = False
    """Whether it is correct at too few sizes to earn a full reward."""
    speedup_low: float | None = None
    """Lower 95 % bound of the speedup over eager; None where it was not timed on a GPU."""
    compile_speedup_low: float | None = None
    """Lower 95 % bound of the speedup over torch.compile."""
    share: float | None = None
    """The share of GPU time in its own kernels; None where it was not measured."""
    is_cut_off: bool = False
    """Whether the reply ended at the limit of its tokens."""


def reward_parts(weights: Weights, findings: Findings) -> dict[str, float]:
    """Returns the parts whose sum is the reward, by PART_NAMES. Equal findings always earn the same."""
    follows = findings.follows_rule
    earns = (
        follows
        and findings.correct
        and (weights.rewards_narrow_contracts or not findings.is_narrow)
    )
    share = findings.share if findings.share is not None and math.isfinite(findings.share) else 0.0
    made = findings.checks_made
    return {
        "form": weights.form if follows else 0.0,
        "compile": weights.compile if follows and findings.compiled else 0.0,
        "checks": weights.checks * findings.checks_passed / made if follows and made else 0.0,
        "correct": weights.correct if earns else 0.0,
        "speed": weights.speed * _worth(weights, findings) if earns else 0.0,
        "share": weights.share * min(max(share, 0.0), 1.0) if earns else 0.0,
        "length": weights.length if findings.is_cut_off else 0.0,
        "cheat": weights.cheat if findings.is_cheat else 0.0,
    }


def rewarded_speedup(weights: Weights, findings: Findings) -> float | None:
    """Returns the speedup that is rewarded, before it is clipped; None where none was measured."""
    speedup = findings.speedup_low if weights.baseline == "eager" else findings.compile_speedup_low
    return speedup if speedup is not None and math.isfinite(speedup) and speedup > 0 else None


def clipped_speedup(weights: Weights, speedup: float) -> float:
    """Returns a speedup within the bounds that are rewarded."""
    return min(max(speedup, weights.slowest), weights.fastest)


def _worth(weights: Weights, findings: Findings) -> float:
    speedup = rewarded_speedup(weights, findings)
    if speedup is None:
        return 0.0
    clipped = clipped_speedup(weights, speedup)
    return math.log2(clipped) if weights.scale == "log2" else clipped


def is_kept(weights: Weights, findings: Findings, candidate_hash: str) -> bool:
    """Whether a sample trains: a correct one that leaves the work to others may be rejected.

    The die is the candidate's own hash, so that it falls the same way each time.
    """
    if weights.least_share is None or not findings.correct:
        return True
    if findings.share is None or not math.isfinite(findings.share):
        return False
    share = min(max(findings.share, 0.0), 1.0)
    chance = min(max((share - weights.least_share) / 0.1, 0.0), 1.0)
    return random.Random(candidate_hash).random() < chance
