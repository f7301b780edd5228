"""What a tuning found, as values: JSON-safe, and true at every stage. What was not measured is None."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from kernelwright.agent.tuning.settings import PrecisionClass
from kernelwright.policies.base import Value
from kernelwright.tools.report import Number, Report, Timing
from kernelwright.tools.tuning.compile_scores import CompileScore
from kernelwright.tools.tuning.kernel_text.parameters import FixedNumber, Setting


class ConfigurationOutcome(StrEnum):
    """What became of one configuration."""

    REMAINS = "remains"
    """Worth a GPU's time."""
    FAILED = "failed"
    """It does not compile for the target, or host code refuses it."""
    SAME = "same"
    """It launches the very same programs as another one."""
    ALIKE = "alike"
    """The model cannot tell it from others that remain."""
    SLOWER = "slower"
    """The model ranks it far behind the best."""
    OUTSIDE = "outside"
    """It multiplies in a precision that was not allowed."""
    WRONG = "wrong"
    """Measured or judged, its answers are not right."""
    MEASURED = "measured"
    WON = "won"


class TriedConfiguration(Value):
    """One configuration that was tried."""

    configuration: dict[str, Setting]
    fate: ConfigurationOutcome
    score: CompileScore
    relative: Number | None = None
    """The model's figure over that of the file's own configuration; below 1 it should be faster. No measurement."""
    timing: Timing | None = None
    """Milliseconds of a call on the GPU; None where it was not measured."""
    start: bool = False
    """The file's own."""
    right_on_cpu: bool | None = None
    """The judge's verdict under the interpreter, at small sizes; None where it was not asked for."""
    note: str = ""
    """What that verdict says where it is not right."""


class ParameterGroup(Value):
    """Parameters that are tuned together."""

    parameters: tuple[str, ...]
    rows: tuple[TriedConfiguration, ...] = ()
    """Best first: measured before unmeasured."""

    def remaining(self) -> list[TriedConfiguration]:
        """Returns the configurations that a GPU should time."""
        return [
            row
            for row in self.rows
            if row.fate
            in (
                ConfigurationOutcome.REMAINS,
                ConfigurationOutcome.MEASURED,
                ConfigurationOutcome.WON,
            )
        ]


class PrintedParameter(Value):
    """One parameter as it is printed."""

    name: str
    role: str
    line: int
    start: Setting
    values: tuple[Setting, ...]


class JudgedConfiguration(Value):
    """The configuration that was judged in full after it had won."""

    configuration: dict[str, Setting]
    changes: dict[str, Setting] = {}
    """What differs from the file."""
    precision: PrecisionClass | None = None
    timing: Timing | None = None
    shape: dict[str, int] = {}
    """Sizes of the problem that it won at; empty for its own."""
    correct: bool | None = None
    """What the full verdict said; None where it was not asked for."""
    error: Number | None = None
    """Its largest error against float64, over all draws of the verdict."""
    eager_error: Number | None = None
    """Eager PyTorch's on the same inputs."""


class TuningResult(Value):
    """How a tuning ended."""

    problem: str
    kernel: str
    """The file."""
    target: str
    device: str
    """cpu, or the GPU's name."""
    parameters: tuple[PrintedParameter, ...] = ()
    refused: tuple[FixedNumber, ...] = ()
    groups: tuple[ParameterGroup, ...] = ()
    failure: str = ""
    """Why the file cannot be tuned."""
    measured: bool = False
    """Whether anything was timed on a GPU. Where it is False nothing is known of any speed."""
    eager: Timing | None = None
    before: Timing | None = None
    """The file as it is."""
    chosen: tuple[JudgedConfiguration, ...] = ()
    by_precision: dict[str, JudgedConfiguration] = {}
    """The fastest of each class of precision."""
    report: Report | None = None
    """The full verdict on the tuned file."""
    output: str | None = None
    picture: str | None = None
    journal: str = ""
    resumed: bool = False
    launches: int = 0
    """Timed calls."""
    gpu_seconds: Number = 0.0
    notes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The result for `--json`."""
        return self.model_dump(mode="json")
