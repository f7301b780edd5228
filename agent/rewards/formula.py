"""Reward formulas as data: weights of the named parts, the gate, and presets of published rewards.

    reward = form + compile + checks + correct + speed + share + length, or `cheat` for a cheat

Examples: a correct kernel, 1.5 times as fast as eager PyTorch at the lower bound, with 80 % of the
GPU time in its own kernels; a kernel that compiles and passes 1 of 3 checks; a cheat.

    formula      correct kernel                                            1 of 3 checks    cheat
    default      0.02 + 0.03 + 1.0 + 0.5 * log2(1.5) + 0.25 * 0.8 = 1.54   0.02 + 0.01      -0.25
    execution    0.02 + 0.03 + 1.0                                = 1.05   0.02 + 0.01      -0.25
    autotriton   1.0                                                       0                -0.25
    kevin        0.3 + 1.5                                        = 1.8    0                -0.25
    drkernel     0.5 + 0.5 * 1.5 + 0.5 * 0.8                      = 1.65   0                -0.25
"""

from __future__ import annotations

import dataclasses
from enum import StrEnum

from pydantic import Field

from kernelwright.agent.rewards.reward_parts import PRESET_WEIGHTS, Weights
from kernelwright.agent.runtime.field_errors import describe_field_error
from kernelwright.errors import InputError
from kernelwright.policies.base import Value


class RewardPart(StrEnum):
    """The parts whose sum is a reward."""

    FORM = "form"
    """The reply holds a file that parses, with ModelNew and a Triton kernel, launched for the
    actual work.
    """
    COMPILE = "compile"
    """Every launch compiles (or was reached, if nothing was compiled ahead)."""
    CHECKS = "checks"
    """Share of passed checks among the checks made."""
    CORRECT = "correct"
    """Every check passes, own work included."""
    SPEED = "speed"
    """The speedup over eager PyTorch, by the lower end of the 95 % interval; only for correct
    candidates judged on a GPU.
    """
    SHARE = "share"
    """Share of GPU time in the candidate's own kernels; only for correct candidates judged on a
    GPU.
    """
    LENGTH = "length"
    """Penalty for a truncated reply."""
    CHEAT = "cheat"
    """Penalty for a cheating candidate."""


class SpeedScale(StrEnum):
    """The function that turns a speedup into a reward."""

    LOG2 = "log2"
    """Twice as fast is 1, half as fast is -1."""
    RATIO = "ratio"
    """The speedup itself: twice as fast is 2."""


class SpeedBaseline(StrEnum):
    """The baseline of a rewarded speedup."""

    EAGER = "eager"
    COMPILE = "compile"
    """torch.compile, if the verdict timed it."""


class Formula(Value):
    """A reward formula. Every weight is the value of its complete part."""

    name: str
    version: int = 1
    why: str = ""
    form: float = 0.0
    compile: float = 0.0
    checks: float = 0.0
    correct: float = 1.0
    speed: float = 0.0
    share: float = 0.0
    length: float = Field(default=0.0, le=0.0)
    cheat: float = Field(default=-0.25, lt=0.0)
    """The reward of a cheat: less than every honest failure, which earns 0 or more apart from
    `length`.
    """
    scale: SpeedScale = SpeedScale.LOG2
    baseline: SpeedBaseline = SpeedBaseline.EAGER
    slowest: float = Field(default=0.25, gt=0.0)
    """Smallest rewarded speedup; smaller speedups count as this number."""
    fastest: float = Field(default=4.0, gt=0.0)
    """Largest rewarded speedup. Larger speedups earn the same: they lie within the noise of
    microseconds, or are measurement errors.
    """
    least_share: float | None = Field(default=None, ge=0.0, le=1.0)
    """A correct sample is accepted with probability clip((share - this) / 0.1, 0, 1) (Dr.
    Kernel); None accepts all.
    """
    rewards_narrow_contracts: bool = False
    """Whether a correct kernel whose own checks admit a single size, or a single free dimension,
    earns `correct`, `speed` and `share` like any other; by default it earns none of the three.
    """

    @property
    def needs_gpu(self) -> bool:
        """Whether a CPU verdict leaves a part without its measurement."""
        return self.speed != 0.0 or self.share != 0.0 or self.least_share is not None

    @property
    def label(self) -> str:
        """The formula's name in the store: `default@1`, with a digest for a user's own weights."""
        shipped = FORMULA_PRESETS.get(self.name)
        if shipped == self:
            return f"{self.name}@{self.version}"
        import hashlib

        # Formulas that were stored before these fields keep their label.
        later = {"rewards_narrow_contracts", "baseline"}
        text = self.model_dump_json(
            exclude={name for name in later if getattr(self, name) == _default_of(name)}
        )
        return f"{self.name}@{self.version}+{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def weights(self) -> Weights:
        """The weights alone, as passed to `reward_parts`."""
        return Weights(**self.model_dump(mode="json", include=_WEIGHT_NAMES))


def _default_of(name: str) -> object:
    return Formula.model_fields[name].default


_WEIGHT_NAMES = {field.name for field in dataclasses.fields(Weights)}
DEFAULT_FORMULA = "default"
EXECUTION_FORMULA = "execution"

_VERSIONS_AND_REASONS = {
    DEFAULT_FORMULA: (
        1,
        "being right dominates; speed is a logarithm, clipped, so that one lucky timing cannot outweigh a group; a "
        "share of GPU time keeps a kernel that does 1 % of the work from counting as one; 0.05 of tie-break lets a "
        "small policy climb before anything is right",
    ),
    EXECUTION_FORMULA: (
        1,
        "the default without what only a GPU can measure: for logs that were judged on a CPU",
    ),
    "autotriton": (
        1,
        "AutoTriton (arXiv:2507.05687): rule-based form times execution, 1 or 0; cheats are below 0 here",
    ),
    "kevin": (
        1,
        "Kevin (arXiv:2507.11948): 0.3 for a correct kernel plus its speedup; cheats are below 0 here, and the lower "
        "bound is taken",
    ),
    "drkernel": (
        2,
        "Dr. Kernel (KernelGYM): 0.5 for a correct kernel, 0.5 min(speedup, 3), 0.5 for the share of GPU time in its "
        "own kernels; correct samples whose kernels do next to nothing are rejected; cheats are below 0 here, and the "
        "lower bound is taken",
    ),
}
FORMULA_PRESETS: dict[str, Formula] = {
    name: Formula(name=name, version=version, why=why, **dataclasses.asdict(PRESET_WEIGHTS[name]))
    for name, (version, why) in _VERSIONS_AND_REASONS.items()
}


def find_formula(name: str) -> Formula:
    """Returns a preset by its name, or reads a JSON file of a Formula. Raises InputError."""
    if name in FORMULA_PRESETS:
        return FORMULA_PRESETS[name]
    from pathlib import Path

    from pydantic import ValidationError

    path = Path(name).expanduser()
    if path.suffix != ".json" or not path.is_file():
        raise InputError(
            f"no reward {name!r}: choose {', '.join(FORMULA_PRESETS)}, or give a .json file with a formula's weights"
        )
    try:
        return Formula.model_validate_json(path.read_bytes())
    except ValidationError as error:
        wrong_field = describe_field_error(error.errors()[0], whole="the file")
        raise InputError(
            f"{path} is no formula: {wrong_field} (fields: {', '.join(Formula.model_fields)})"
        ) from error
