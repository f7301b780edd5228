"""What a tuning is told to do, as a value that makes two commands the same command, or not."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from kernelwright.policies.base import Value
from kernelwright.tools.tuning.kernel_text.parameters import (
    Configuration,
    ParameterRole,
    ParameterSpace,
    Setting,
)

IEEE_PRECISIONS = ("ieee",)
SPLIT_PRECISIONS = ("ieee", "tf32x3", "bf16x6", "bf16x3")
ALL_PRECISIONS = (*SPLIT_PRECISIONS, "tf32")


class PrecisionClass(StrEnum):
    """How products of fp32 operands may be made."""

    IEEE = "ieee"
    """In fp32."""
    SPLIT = "split"
    """Also as several products of bf16 or tf32 parts, which keep about fp32's accuracy."""
    ANY = "any"
    """Also in tf32 alone. Whether that is precise enough the verdict says."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """Values of `input_precision`."""
        return {
            PrecisionClass.IEEE: IEEE_PRECISIONS,
            PrecisionClass.SPLIT: SPLIT_PRECISIONS,
            PrecisionClass.ANY: ALL_PRECISIONS,
        }[self]


class TuneSettings(Value):
    """One tuning."""

    target: str = "sm_90"
    device: str = "cpu"
    precision: PrecisionClass = PrecisionClass.SPLIT
    configurations: int = Field(default=64, ge=1)
    """Compiled at most."""
    measured: int = Field(default=16, ge=2)
    """The best by compiling alone, that go to the GPU."""
    launches: int = Field(default=4000, ge=1)
    """Timed calls at most."""
    gpu_seconds: float = Field(default=120.0, gt=0)
    own_work: str = "strict"
    shapes: tuple[dict[str, int], ...] = ()
    """Other sizes of the problem to be fast at; none: the problem's own alone."""
    keep: int = Field(default=1, ge=1)
    """Configurations in the tuned file; several become an autotune list."""
    seed: int = 0
    """The seed of the proposals."""
    by_weight: bool = False
    """Whether configurations go to groups of kernels by the model's share of time, and none to those that take next to
    none of it: for budgets of seconds.
    """
    verdict: bool = True
    """Whether what won passes the full verdict here; where it does not, the caller judges it."""
    classes: bool = False
    """Whether the best of every class of precision passes the full verdict too, and is told with its error."""


def is_allowed(
    space: ParameterSpace, configuration: Configuration, precision: PrecisionClass
) -> bool:
    """Whether a configuration multiplies in the class that is allowed."""
    return all(
        configuration.get(p.name, p.start) in precision.allowed
        for p in space.parameters
        if p.role is ParameterRole.PRECISION
    )


def precision_class_of(
    space: ParameterSpace, configuration: Configuration
) -> PrecisionClass | None:
    """The narrowest class that a configuration lies in; None where it has no such parameter."""
    chosen: list[Setting] = [
        configuration.get(p.name, p.start)
        for p in space.parameters
        if p.role is ParameterRole.PRECISION
    ]
    return (
        next((c for c in PrecisionClass if all(v in c.allowed for v in chosen)), None)
        if chosen
        else None
    )
