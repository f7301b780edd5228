"""Adds measurements to a verdict that are not part of it: torch.compile's time, hardware counters, the sanitizer. They
are bounded in time and never fatal.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import ProfileResult, Report
from kernelwright.tools.timing.baseline import Baseline

if TYPE_CHECKING:
    from kernelwright.tools.pipeline import Options


def add_extras(
    report: Report,
    problem: Problem,
    source: str,
    asked: Options,
    device: str,
    time_compiled: Callable[[], Baseline],
    say: Callable[[str], None],
) -> Report:
    """Returns the report with the extras that were asked for and could be measured. time_compiled: times the reference
    that torch.compile has compiled.
    """
    if report.profile is None:
        return report
    profile = report.profile
    if asked.torch_compile:
        say("timing torch.compile")
        profile = _with_baseline(profile, time_compiled())
    if asked.ncu or asked.sanitizer:
        profile, report = _with_counters(profile, report, problem, source, asked, device, say)
    return report.with_(profile=profile)


def _with_baseline(profile: ProfileResult, found: Baseline) -> ProfileResult:
    notes = (*profile.notes, found.note) if found.note else profile.notes
    faster = profile.speedup * found.ratio if found.ratio and profile.speedup else None
    return profile.with_(compiled=found.compiled, speedup_compiled=faster, notes=notes)


def _with_counters(
    profile: ProfileResult,
    report: Report,
    problem: Problem,
    source: str,
    asked: Options,
    device: str,
    say: Callable[[str], None],
) -> tuple[ProfileResult, Report]:
    """Runs ncu and compute-sanitizer, each in a sandboxed process of its own."""
    from kernelwright.tools.timing.counters import hardware_counters, memory_check

    with tempfile.TemporaryDirectory(prefix="kernelwright-counted-") as folder:
        scratch = Path(folder)
        spec, prefix = (
            _write_call(problem, source, device, scratch),
            [sys.executable, "-m", "kernelwright.tools.sandbox.inside.enter", folder],
        )
        if asked.ncu:
            say("reading hardware counters")
            found = hardware_counters(spec, scratch=scratch, prefix=prefix)
            profile = profile.with_(
                ncu=found.metrics, notes=(*profile.notes, found.note) if found.note else profile.notes
            )
        if asked.sanitizer:
            say("running compute-sanitizer")
            found = memory_check(spec, scratch=scratch, prefix=prefix)
            if found.note:
                profile = profile.with_(notes=(*profile.notes, found.note))
            if found.failure:
                report = report.with_(failure=found.failure, correct=False)
    return profile, report


def _write_call(problem: Problem, source: str, device: str, scratch: Path) -> Path:
    """The file that tells tools.tracing.profiled_calls what to call, and with what."""
    from kernelwright.tools.references.reference import Reference
    from kernelwright.tools.timing.counters import call_spec

    (scratch / "candidate.py").write_text(source, "utf-8")
    reference = Reference(problem, device)
    told = call_spec(
        scratch / "candidate.py", reference.init_arguments(), reference.arguments(reference.inputs(0)), device
    )
    (scratch / "call.json").write_text(json.dumps(told))
    return scratch / "call.json"
