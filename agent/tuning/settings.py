"""The settings of a tuning. Two commands with equal settings continue the same tuning."""

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
"""Precisions of a product with exact fp32 arithmetic."""
SPLIT_PRECISIONS = ("ieee", "tf32x3", "bf16x6", "bf16x3")
"""Precisions of a product with operands split into parts, exact fp32 arithmetic included."""
ALL_PRECISIONS = (*SPLIT_PRECISIONS, "tf32")
"""Every precision of a product, tf32 alone included."""


class PrecisionClass(StrEnum):
    """Permitted arithmetic of fp32 products."""

    IEEE = "ieee"
    """In fp32 only."""
    SPLIT = "split"
    """Also as several products of bf16 or tf32 parts, with about the accuracy of fp32."""
    ANY = "any"
    """Also in tf32 alone; the verdict decides whether that is precise enough."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """Returns the permitted values of `input_precision`."""
        return {
            PrecisionClass.IEEE: IEEE_PRECISIONS,
            PrecisionClass.SPLIT: SPLIT_PRECISIONS,
            PrecisionClass.ANY: ALL_PRECISIONS,
        }[self]


class TuneSettings(Value):
    """The options of a tuning; equal options continue its journal."""

    target: str = "sm_90"
    device: str = "cpu"
    precision: PrecisionClass = PrecisionClass.SPLIT
    configurations: int = Field(default=64, ge=1)
    """Maximum number of configurations that are compiled."""
    measured: int = Field(default=16, ge=2)
    """Number of configurations, the best by compiling alone, that are timed on the GPU."""
    launches: int = Field(default=4000, ge=1)
    """Maximum number of timed calls."""
    gpu_seconds: float = Field(default=120.0, gt=0)
    own_work: str = "strict"
    shapes: tuple[dict[str, int], ...] = ()
    """Other sizes of the problem to tune for. Empty: the problem's own sizes alone."""
    keep: int = Field(default=1, ge=1)
    """Number of configurations in the tuned file; several become an autotune list."""
    seed: int = 0
    """Seed of the random proposals."""
    by_weight: bool = False
    """Whether configurations are divided among groups of kernels by the model's share of time,
    with none for negligible groups: for budgets of seconds.
    """
    verdict: bool = True
    """Whether the winner must pass the full verdict here; otherwise the caller judges it."""
    classes: bool = False
    """Whether the best configuration of every precision class is judged too, and reported with
    its error.
    """


def is_allowed(
    space: ParameterSpace, configuration: Configuration, precision: PrecisionClass
) -> bool:
    """Returns whether every product of a configuration has a permitted precision."""
    return all(
        configuration.get(p.name, p.start) in precision.allowed
        for p in space.parameters
        if p.role is ParameterRole.PRECISION
    )


def precision_class_of(
    space: ParameterSpace, configuration: Configuration
) -> PrecisionClass | None:
    """Returns the narrowest class of a configuration; None if it has no precision parameter."""
    precisions: set[Setting] = set()
    for parameter in space.parameters:
        if parameter.role is ParameterRole.PRECISION:
            precisions.add(configuration.get(parameter.name, parameter.start))
    if not precisions:
        return None
    for precision_class in PrecisionClass:  # the narrowest first
        if precisions.issubset(precision_class.allowed):
            return precision_class
    return None
