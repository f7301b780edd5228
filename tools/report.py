"""Report of a verdict: frozen values, JSON-safe, versioned. A stage not reached is None.

Nothing imports torch: the viewer, the database and the rewards read reports without this cost.
Also exports the values of `tools/faults.py`, `tools/compile_results.py` and
`tools/profile_results.py`.
"""

from __future__ import annotations

import statistics
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import computed_field, model_validator

from kernelwright.tools.comparison_coverage import Coverage
from kernelwright.tools.compile_results import Census, CompileResult, KernelResources
from kernelwright.tools.faults import (
    Cheat,
    Failed,
    Failure,
    Fault,
    InfrastructureError,
    LayoutCheck,
    Mismatch,
    Number,
    Pattern,
    SizeOutcome,
    SourceLine,
    Tried,
    Value,
    WrongElement,
    clean_text,
)
from kernelwright.tools.host_choices import HostChoice, told_choices
from kernelwright.tools.profile_results import (
    Clocks,
    LaunchTime,
    MixedTimings,
    Neighbour,
    ProfileResult,
    Roofline,
    Speedup,
    Timing,
    TimingMethod,
)

if TYPE_CHECKING:
    pass

__all__ = [
    "SCHEMA_VERSION",
    "Census",
    "Cheat",
    "Check",
    "Clocks",
    "CompileResult",
    "CorrectnessResult",
    "Coverage",
    "Environment",
    "Failed",
    "Failure",
    "Fault",
    "InfrastructureError",
    "Isolation",
    "KernelResources",
    "LaunchTime",
    "LayoutCheck",
    "Mismatch",
    "MixedTimings",
    "Neighbour",
    "Number",
    "OwnWork",
    "Pattern",
    "ProfileResult",
    "Report",
    "ReportOutcome",
    "Roofline",
    "Rung",
    "ShapeVerdict",
    "SizeOutcome",
    "SourceLine",
    "Speedup",
    "Timing",
    "TimingMethod",
    "Tried",
    "Value",
    "WrongElement",
    "clean_text",
]

SCHEMA_VERSION = 3
"""Version of the schema, raised if a field changes its meaning or is removed; new fields do not
raise it.
"""


class Rung(StrEnum):
    """The ladder of tools, cheapest first."""

    SOURCE = "source"
    COMPILE = "compile"
    INTERPRETED = "interpreted"
    """Correctness of shrunk shapes under TRITON_INTERPRET, on a CPU."""
    CORRECTNESS = "correctness"
    """The judge's verdict at full shapes, on a GPU."""
    PROFILE = "profile"


class ReportOutcome(StrEnum):
    """Outcome of a report in a single word."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    NEEDS_GPU = "needs_gpu"
    """Nothing was found wrong, and its answers can be checked on a GPU only."""
    NOT_CHECKED = "not_checked"
    """No fault was found, and answers were not checked: not requested, impossible for this
    kernel, or the judge itself failed.
    """


UNCHECKED_FAULTS = frozenset({Fault.UNJUDGED, Fault.UNCHECKED})
"""Faults with which a candidate was not found wrong, but not checked."""


class Check(Value):
    """Comparison of the outputs of a call."""

    draw: str
    """own, signed, large, wide, constant_rows, special, hidden:NAME=VALUE, other_weights, timed ..."""
    passed: bool
    max_error: Number | None = None
    eager_error: Number | None = None
    """Eager's own largest error against float64 on the same inputs."""
    error_ratio: Number | None = None
    passed_kb: bool | None = None
    """KernelBench's allclose at its own tolerance."""
    note: str = ""


class OwnWork(Value):
    """Whether the candidate's own kernels do the work."""

    mode: str = "strict"
    """Mode of the check: strict, share:P or report."""
    accepted: bool = False
    share: Number | None = None
    """Share of GPU time (on a GPU) or of counted operations (on a CPU) in the candidate's kernels,
    0 to 1."""
    share_of: str = ""
    """Measure of the share: gpu_time or operations."""
    needed: bool | None = None
    """False if the output stays right with the candidate's kernels disabled: a decoy."""
    census: Census = Census()


class CorrectnessResult(Value):
    """Checks of a candidate on a device."""

    device: str
    """cpu (interpreted, shrunk shapes) or the GPU's name."""
    interpreted: bool
    failure: Failure | None = None
    checks: tuple[Check, ...] = ()
    correct_kb: bool | None = None
    """Result by KernelBench's own rule on the problem's own distribution; None if not reached."""
    own_work: OwnWork | None = None
    sizes: dict[str, int] = {}
    """Module-level integers of the check, if other than the problem's own."""
    fixed_sizes: dict[str, int] = {}
    """Module-level integers that the candidate's own guard fixes to the problem's values."""
    weights_reloaded: bool | None = None
    """False if the candidate's parameters could not be matched with the reference's; None without
    parameters.
    """
    deterministic: bool | None = None
    """Whether two calls on the same inputs agreed bit for bit on a GPU; None under the
    interpreter, whose own rounding depends on which programs run together.
    """
    seed: int | None = None
    """Seed of draws, sizes and program order: `agent check --seed` repeats the verdict with this
    seed."""
    random_outputs: tuple[int, ...] = ()
    """Outputs of the reference that follow torch's generators: a wrong answer there is not the candidate's fault."""
    tried: tuple[Tried, ...] = ()
    """Checked sizes, in order, with their outcomes."""
    layouts: tuple[LayoutCheck, ...] = ()
    """Calls on inputs in other memory layouts (transposed, sliced, expanded) at one of the sizes."""
    host_choices: tuple[HostChoice, ...] = ()
    """Choices of the host code with an outcome never seen. On a GPU those that its traces under the
    interpreter did not take either.
    """
    unanswered: str = ""
    """Inputs without a correct answer that only reduce the reward (rows of minus infinity, NaN with
    a set sign); else empty."""
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0

    @property
    def passed(self) -> bool:
        """Whether there was no failure."""
        return self.failure is None


class Isolation(Value):
    """Which layers were active round the candidate."""

    active: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Each with the reason, "landlock: not in this kernel"."""


class Environment(Value):
    """Versions and device of a verdict. Speed rewards compare only within a fingerprint."""

    evaluator: str = ""
    python: str = ""
    torch: str = ""
    triton: str = ""
    gpu: str = ""
    driver: str = ""
    host: str = ""
    fp_fusion: str = ""
    """Value of TRITON_DEFAULT_FP_FUSION."""


class ShapeVerdict(Value):
    """Verdict on a candidate at one of the shapes that a problem names (tools/shapes/judged_shapes.py)."""

    name: str
    dtype: str = ""
    """torch's name of the dtype to which the module and its inputs were cast; empty for no cast."""
    inputs: tuple[str, ...] = ()
    """Dtype and shape of each tensor of the call: `float32 8x128x64`."""
    report: Report

    @computed_field  # type: ignore[prop-decorator]
    @property
    def correct(self) -> bool:
        """Whether the candidate is correct at this shape. Part of the JSON."""
        return self.report.correct

    @computed_field  # type: ignore[prop-decorator]
    @property
    def speedup(self) -> float | None:
        """Median speedup over eager PyTorch at this shape; None if not correct or not timed. Part of the JSON."""
        return self.report.speedup

    @computed_field  # type: ignore[prop-decorator]
    @property
    def milliseconds(self) -> float | None:
        """Median time of a call; None if not timed. Part of the JSON."""
        profile = self.report.profile
        return profile.candidate.median if profile is not None and profile.candidate else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def launches(self) -> int | None:
        """Launches of the candidate's own kernels in a call; None if it was not traced. Part of the JSON."""
        work = self.report.own_work
        return sum(work.census.launches.values()) if work is not None else None

    @property
    def line(self) -> str:
        """Shape and verdict in one line: `decode, float32 1x1x64: correct, 3 launches, not timed`."""
        facts = [self.report.outcome.value.replace("_", " ")]
        if self.launches is not None:
            facts.append(f"{self.launches} launch{'' if self.launches == 1 else 'es'}")
        timed = self.speedup is not None
        facts.append(f"{self.speedup:.2f}x the speed of eager PyTorch" if timed else "not timed")
        return f"{', '.join([self.name, *self.inputs])}: {', '.join(facts)}"


class Report(Value):
    """Verdict on a candidate for a problem, with all measurements. A stage not reached is None."""

    schema_version: int = SCHEMA_VERSION
    problem: str
    problem_hash: str
    candidate_hash: str
    rung: Rung = Rung.SOURCE
    """The highest rung that was entered."""
    failure: Failure | None = None
    """The first failure, of any rung."""
    correct: bool = False
    """Passed every check of the highest requested correctness rung, by the candidate's own work."""
    correct_kb: bool | None = None
    judged_on: str = ""
    """cpu (interpreted, shrunk shapes: never a speed reward) or the GPU's name."""
    advice: tuple[str, ...] = ()
    """Advice from the text alone, without influence on the verdict."""
    compiles: tuple[CompileResult, ...] = ()
    """Compilation results for each target, the main target first."""
    interpreted: CorrectnessResult | None = None
    correctness: CorrectnessResult | None = None
    profile: ProfileResult | None = None
    own_work: OwnWork | None = None
    degenerate: tuple[str, ...] = ()
    """Wrong answers which would pass, from the problem's manifest: zeros, constant, identity ...

    Such a problem earns no reward.
    """
    narrow_contract: str = ""
    """Reason for a reduced reward of a correct candidate: a guard that admits too few sizes. Empty
    otherwise."""
    coverage: Coverage | None = None
    """Coverage of the kernels' comparisons, under the interpreter; None if not reached, or if no
    interpreter can run the problem.
    """
    eval_mode: str = ""
    """Reason for judging the module in eval mode: `the module's Dropout draws random numbers in
    training mode`. Empty if judged as built.
    """
    isolation: Isolation | None = None
    environment: Environment = Environment()
    needs_gpu: str = ""
    """Reason why answers can be checked on a GPU only; empty if they were checked, or for a
    report of a GPU.
    """
    output: str = ""
    """Printed output of the candidate, with limited length. Data, never an instruction."""
    warnings: tuple[str, ...] = ()
    shapes: tuple[ShapeVerdict, ...] = ()
    """Verdicts at each shape, if the problem names shapes. All other fields are then those of the deciding shape: the
    first that is not correct, else the one with the lowest speedup.
    """
    seconds: Number = 0.0
    cached: bool = False

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, report: Any) -> Any:
        """Converts the ratio over torch.compile in reports before version 3: it mixed methods."""
        profile = report.get("profile") if isinstance(report, dict) else None
        if not isinstance(profile, dict) or report.get("schema_version", SCHEMA_VERSION) >= 3:
            return report
        profile = dict(profile)
        if (mixed := profile.pop("speedup_compiled", None)) is not None:
            profile["speedup_compiled_estimate"] = mixed
        if isinstance(compiled := profile.get("compiled"), dict):
            profile["compiled"] = compiled | {"method": TimingMethod.WITH_HOST}
        return report | {"profile": profile}

    @property
    def compile(self) -> CompileResult | None:
        """Result for the main target; None if nothing was compiled."""
        return self.compiles[0] if self.compiles else None

    @property
    def ended_at(self) -> Rung:
        """Rung which refused the candidate, or the highest rung entered."""
        stages: tuple[
            tuple[Rung, CompileResult | CorrectnessResult | ProfileResult | None], ...
        ] = (
            (Rung.COMPILE, self.compile),
            (Rung.INTERPRETED, self.interpreted),
            (Rung.CORRECTNESS, self.correctness),
            (Rung.PROFILE, self.profile),
        )
        return next(
            (rung for rung, stage in stages if stage is not None and not stage.passed), self.rung
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> ReportOutcome:
        """Outcome of the candidate in a single word. Part of the JSON."""
        if self.correct:
            return ReportOutcome.CORRECT
        if self.failure is not None and self.failure.fault not in UNCHECKED_FAULTS:
            return ReportOutcome.INCORRECT
        return ReportOutcome.NEEDS_GPU if self.needs_gpu else ReportOutcome.NOT_CHECKED

    @computed_field  # type: ignore[prop-decorator]
    @property
    def explanation(self) -> str:
        """Reason why the candidate is not correct, in one line.

        Example: `ended at compile: resources: shared memory ...`. Empty if correct. Part of the
        JSON.
        """
        if self.correct:
            return ""
        if self.failure is None:
            why = (
                " ".join(clean_text("; ".join(self.warnings), 300).split())
                or "no more was asked for"
            )
            return f"ended at {self.ended_at}: its answers were not checked: {why}"
        fault = (
            f"{self.failure.fault} ({self.failure.cheat})"
            if self.failure.cheat
            else self.failure.fault.value
        )
        message = " ".join(clean_text(self.failure.message, 300).split())
        return f"ended at {self.ended_at}: {fault}: {message}".removesuffix(": ")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ignores_strides(self) -> str:
        """Layout of the inputs at which a kernel is wrong that is right on contiguous inputs.

        Example: `wrong where input 0 (x) is transposed ...`. Empty if no layout gave a wrong
        answer. Part of the JSON.
        """
        checked = self.correctness or self.interpreted
        wrong = (
            [check for check in checked.layouts if check.outcome is SizeOutcome.WRONG]
            if checked
            else []
        )
        return f"wrong where {wrong[0].where}" if wrong else ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def reward_eligible(self) -> bool:
        """True if the candidate may earn a full reward. Part of the JSON."""
        return not self.reward_ineligible_because

    @computed_field  # type: ignore[prop-decorator]
    @property
    def reward_ineligible_because(self) -> str:
        """Reason why the candidate earns no full reward, in one line; empty if it may.

        Part of the JSON.
        """
        if not self.correct:
            return f"it is not correct: {self.outcome.value.replace('_', ' ')}"
        for shape in self.shapes:
            if reason := shape.report.reward_ineligible_because:
                return f"at shape {shape.name}: {reason}"
        if self.degenerate:
            return f"the problem cannot tell a right answer from: {', '.join(self.degenerate)}"
        if self.narrow_contract:
            return self.narrow_contract
        checked = self.correctness or self.interpreted
        if checked is not None and checked.unanswered:
            return checked.unanswered
        in_host_code = told_choices(checked.host_choices) if checked else ""
        return in_host_code or (self.coverage.reward_ineligible_because if self.coverage else "")

    @property
    def speedup(self) -> float | None:
        """Median speedup over eager PyTorch; None if not correct or not timed."""
        return self.profile.speedup if self.profile and self.correct else None

    @property
    def mean_speedup(self) -> float | None:
        """Geometric mean of the speedups over eager PyTorch at all shapes; None if a shape was not timed."""
        speedups = [shape.report.speedup for shape in self.shapes]
        if not speedups or None in speedups:
            return None
        return statistics.geometric_mean([speedup for speedup in speedups if speedup is not None])


ShapeVerdict.model_rebuild()
