"""The results of a tuning, as values that can be dumped to JSON. None stands for anything that
was not measured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from kernelwright.agent.tuning.settings import PrecisionClass
from kernelwright.policies.base import Value
from kernelwright.tools.report import Number, Report, Timing
from kernelwright.tools.tuning.compile_scores import CompileScore
from kernelwright.tools.tuning.kernel_text.parameters import FixedNumber, Setting


class ConfigurationOutcome(StrEnum):
    """The outcome of a configuration."""

    REMAINS = "remains"
    """Worth timing on a GPU."""
    FAILED = "failed"
    """Does not compile for the target, or is refused by host code."""
    SAME = "same"
    """Launches exactly the same programs as another configuration."""
    ALIKE = "alike"
    """Has the same score as other configurations that remain."""
    SLOWER = "slower"
    """Ranked far behind the best by the model."""
    OUTSIDE = "outside"
    """Multiplies in a precision that was not allowed."""
    WRONG = "wrong"
    """Measured or judged, with wrong results."""
    MEASURED = "measured"
    WON = "won"


OUTCOMES_TO_MEASURE = (
    ConfigurationOutcome.REMAINS,
    ConfigurationOutcome.MEASURED,
    ConfigurationOutcome.WON,
)


class TriedConfiguration(Value):
    """A tried configuration with its score, its outcome and its timing."""

    configuration: dict[str, Setting]
    fate: ConfigurationOutcome
    score: CompileScore
    relative: Number | None = None
    """Cycles by the model, relative to the file's own configuration; below 1 should be faster.
    Not a measurement.
    """
    timing: Timing | None = None
    """Milliseconds of a call on the GPU; None if not measured."""
    start: bool = False
    """Whether this is the file's own configuration."""
    right_on_cpu: bool | None = None
    """Verdict of the interpreter at small sizes; None if not judged."""
    note: str = ""
    """Explanation of a verdict that is not correct."""


class ParameterGroup(Value):
    """Parameters that are tuned together, and their configurations."""

    parameters: tuple[str, ...]
    rows: tuple[TriedConfiguration, ...] = ()
    """The configurations, best first: measured before unmeasured."""

    def remaining(self) -> list[TriedConfiguration]:
        """Returns the configurations that a GPU should time."""
        return [row for row in self.rows if row.fate in OUTCOMES_TO_MEASURE]


class PrintedParameter(Value):
    """A parameter in the form of the printed table."""

    name: str
    role: str
    line: int
    start: Setting
    values: tuple[Setting, ...]


class JudgedConfiguration(Value):
    """A winning configuration and its full verdict."""

    configuration: dict[str, Setting]
    changes: dict[str, Setting] = {}
    """Values that differ from the file's own."""
    precision: PrecisionClass | None = None
    timing: Timing | None = None
    shape: dict[str, int] = {}
    """Sizes of the problem at which the configuration won; empty for the problem's own sizes."""
    correct: bool | None = None
    """Result of the full verdict; None if not judged."""
    error: Number | None = None
    """Largest error against float64, over all draws of the verdict."""
    eager_error: Number | None = None
    """Largest error of eager PyTorch on the same inputs."""


class TuningResult(Value):
    """The result of a tuning."""

    problem: str
    kernel: str
    """Name of the kernel file."""
    target: str
    device: str
    """cpu, or the name of the GPU."""
    parameters: tuple[PrintedParameter, ...] = ()
    refused: tuple[FixedNumber, ...] = ()
    groups: tuple[ParameterGroup, ...] = ()
    failure: str = ""
    """Reason why the file cannot be tuned."""
    measured: bool = False
    """Whether anything was timed on a GPU. False: no speed is known."""
    eager: Timing | None = None
    before: Timing | None = None
    """Time of the file before the tuning."""
    chosen: tuple[JudgedConfiguration, ...] = ()
    by_precision: dict[str, JudgedConfiguration] = {}
    """The fastest configuration of each precision class."""
    report: Report | None = None
    """The full verdict on the tuned file."""
    output: str | None = None
    picture: str | None = None
    journal: str = ""
    resumed: bool = False
    launches: int = 0
    """Number of timed calls on the GPU."""
    gpu_seconds: Number = 0.0
    notes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Returns the result in the form of `--json`."""
        return self.model_dump(mode="json")
