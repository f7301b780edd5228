"""Adds measurements to a verdict that are not part of it: torch.compile's time, hardware
counters, the sanitizer. They are bounded in time and never fatal.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import ProfileResult, Report, TimingMethod
from kernelwright.tools.timing.compiled_reference import Baseline

if TYPE_CHECKING:
    from kernelwright.tools.options import Options


@dataclass(frozen=True)
class Extras:
    """Measurements beside a verdict of one candidate on one GPU."""

    problem: Problem
    source: str
    options: Options
    device: str
    time_compiled: Callable[[TimingMethod], Baseline]
    """Times the reference compiled by torch.compile, by a method."""
    say: Callable[[str], None]

    def add_to(self, report: Report) -> Report:
        """Returns the report with the requested extras, if measurable."""
        if report.profile is None:
            return report
        profile = report.profile
        if self.options.torch_compile:
            self.say("timing torch.compile")
            profile = compared_with(self.time_compiled(profile.method), profile)
        if self.options.ncu or self.options.sanitizer:
            profile, report = self._with_counters(profile, report)
        return report.with_(profile=profile)

    def _with_counters(
        self, profile: ProfileResult, report: Report
    ) -> tuple[ProfileResult, Report]:
        """Runs ncu and compute-sanitizer, each in a sandboxed process of its own."""
        from kernelwright.tools.timing.counters import hardware_counters, memory_check

        with tempfile.TemporaryDirectory(prefix="kernelwright-counted-") as folder:
            scratch = Path(folder)
            spec, prefix = (
                _write_call(self.problem, self.source, self.device, scratch),
                [sys.executable, "-m", "kernelwright.tools.sandbox.inside.enter", folder],
            )
            if self.options.ncu:
                self.say("reading hardware counters")
                memory_errors = hardware_counters(spec, scratch=scratch, prefix=prefix)
                profile = profile.with_(
                    ncu=memory_errors.metrics,
                    notes=(*profile.notes, memory_errors.note)
                    if memory_errors.note
                    else profile.notes,
                )
            if self.options.sanitizer:
                self.say("running compute-sanitizer")
                memory_errors = memory_check(spec, scratch=scratch, prefix=prefix)
                if memory_errors.note:
                    profile = profile.with_(notes=(*profile.notes, memory_errors.note))
                if memory_errors.failure:
                    report = report.with_(failure=memory_errors.failure, correct=False)
        return profile, report


def compared_with(baseline: Baseline, profile: ProfileResult) -> ProfileResult:
    """Returns the profile with torch.compile's times and the speedup over them; only an estimate
    if baseline and candidate were timed by different methods.
    """
    profile = profile.with_(
        compiled=baseline.compiled, eager_beside_compiled=baseline.eager, compiled_host_ms=baseline.compiled_host_ms,
        notes=(*profile.notes, baseline.note) if baseline.note else profile.notes,
    )  # fmt: skip
    over_compiled = profile.over_compiled()
    if over_compiled is None:
        return profile.with_(speedup_compiled_estimate=profile.lowest_estimate_over_compiled())
    return profile.with_(
        speedup_compiled=over_compiled.median, speedup_compiled_low=over_compiled.low
    )


def _write_call(problem: Problem, source: str, device: str, scratch: Path) -> Path:
    """Writes the file which tells tools.tracing.profiled_calls the call and its arguments."""
    from kernelwright.tools.references.reference import Reference
    from kernelwright.tools.timing.counters import call_spec

    (scratch / "candidate.py").write_text(source, "utf-8")
    reference = Reference(problem, device)
    described_call = call_spec(
        scratch / "candidate.py",
        reference.init_arguments(),
        reference.arguments(reference.inputs(0)),
        device,
    )
    (scratch / "call.json").write_text(json.dumps(described_call))
    return scratch / "call.json"
