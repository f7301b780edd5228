"""Compares two verdicts on a candidate, ignoring measurement noise."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.agent.loop.stopping import PROGRESS_SPEEDUP
from kernelwright.policies.base import Value
from kernelwright.tools.report import CorrectnessResult, KernelResources, Report, Timing

ERROR_NOISE_FACTOR = 2.0
"""Factor within which two worst error ratios count as equal: they vary with the drawn inputs."""


class VerdictAspect(StrEnum):
    """Aspects of a verdict that can change."""

    VERDICT = "verdict"
    """Correct or incorrect; with FAULT the only aspect that decides the exit status."""
    FAULT = "fault"
    RUNG = "rung"
    ERROR = "error ratio"
    KERNELS = "kernels"
    """Specialisations of the compiled kernels."""
    REGISTERS = "registers"
    SPILLS = "spills"
    SHARED = "shared memory"
    TIME = "time"
    SPEEDUP = "speedup"


class VerdictChange(Value):
    """Aspect of a verdict with different old and new values."""

    aspect: VerdictAspect
    was: str
    now: str
    of: str = ""
    """Kernel or target that the change concerns; empty if none."""


class VerdictDrift(Value):
    """All changes between a stored verdict and a new verdict."""

    changes: tuple[VerdictChange, ...] = ()
    note: str = ""
    """Reason why some aspects could not be compared."""

    @property
    def verdict_changed(self) -> bool:
        """Whether the verdict or its fault changed; changed measurements do not count."""
        aspects = {change.aspect for change in self.changes}
        return VerdictAspect.VERDICT in aspects or VerdictAspect.FAULT in aspects


def compare_reports(was: Report, now: Report) -> VerdictDrift:
    """Compares two reports.

    Rung and error are compared only for equal device kinds, times only for equal GPUs.
    """
    changes = [*_verdict(was, now), *_resources(was, now)]
    devices = _device(was), _device(now)
    if was.judged_on and now.judged_on and devices[0] != devices[1]:
        note = f"judged on {devices[1]} now and on {devices[0]} then: rungs, errors and times do not compare"
        return VerdictDrift(changes=tuple(changes), note=note)
    if was.rung is not now.rung:
        changes.append(VerdictChange(aspect=VerdictAspect.RUNG, was=was.rung, now=now.rung))
    return VerdictDrift(changes=(*changes, *_error(was, now), *_speed(was, now)))


def _device(report: Report) -> str:
    return report.judged_on or "cpu"


def _verdict(was: Report, now: Report) -> list[VerdictChange]:
    before, after = _verdict_text(was), _verdict_text(now)
    if was.correct != now.correct:
        return [VerdictChange(aspect=VerdictAspect.VERDICT, was=before, now=after)]
    if before != after:
        return [VerdictChange(aspect=VerdictAspect.FAULT, was=before, now=after)]
    return []


def _verdict_text(report: Report) -> str:
    """Returns the verdict in words: `correct`, `mismatch`, `cheat (cache)`."""
    failure = report.failure
    if report.correct or failure is None:
        return "correct" if report.correct else "not correct"
    name = failure.fault.replace("_", " ")
    return f"{name} ({failure.cheat})" if failure.cheat else name


def _error(was: Report, now: Report) -> list[VerdictChange]:
    """Compares the errors of correct results; the size of an incorrect result's error depends on
    the draw.
    """
    # How wrong an incorrect result is depends on the drawn inputs.
    if not (was.correct and now.correct):
        return []
    before = _worst(was.correctness or was.interpreted)
    after = _worst(now.correctness or now.interpreted)
    if before is None or after is None:
        return []
    if max(before, after) <= ERROR_NOISE_FACTOR * min(before, after):
        return []
    return [VerdictChange(aspect=VerdictAspect.ERROR, was=f"{before:.3g}", now=f"{after:.3g}")]


def _worst(result: CorrectnessResult | None) -> float | None:
    """Returns the worst error ratio, at least 1: ratios below 1 are within eager's own rounding."""
    checks = result.checks if result else ()
    ratios = [check.error_ratio for check in checks if check.error_ratio is not None]
    return max(1.0, *ratios) if ratios else None


def _resources(was: Report, now: Report) -> list[VerdictChange]:
    """Compares the targets compiled by both.

    The compiler is deterministic, so every difference counts.
    """
    changes: list[VerdictChange] = []
    compiled_now = {result.target: result for result in reversed(now.compiles)}
    for before in was.compiles:
        after = compiled_now.get(before.target)
        if after is None or not (before.passed and after.passed):
            continue
        old, new = _kernels(before.kernels), _kernels(after.kernels)
        if old.keys() != new.keys():
            changes.append(
                VerdictChange(
                    aspect=VerdictAspect.KERNELS, was=_names(old), now=_names(new), of=before.target
                )
            )
        for key in old.keys() & new.keys():
            changes += _kernel(old[key], new[key])
    return changes


def _kernels(kernels: tuple[KernelResources, ...]) -> dict[str, KernelResources]:
    """Returns the kernels by specialisation: name, configuration and argument types."""
    by_specialisation: dict[str, KernelResources] = {}
    for kernel in kernels:
        config, signature = sorted(kernel.config.items()), sorted(kernel.signature.items())
        by_specialisation[f"{kernel.name} {config} {signature}"] = kernel
    return by_specialisation


def _names(kernels: dict[str, KernelResources]) -> str:
    return ", ".join(sorted(kernel.name for kernel in kernels.values())) or "none"


def _kernel(was: KernelResources, now: KernelResources) -> list[VerdictChange]:
    measured = (
        (VerdictAspect.REGISTERS, was.registers, now.registers),
        (VerdictAspect.SPILLS, was.spills, now.spills),
        (VerdictAspect.SHARED, was.shared, now.shared),
    )
    changes: list[VerdictChange] = []
    for aspect, before, after in measured:
        if before != after:
            change = VerdictChange(aspect=aspect, was=str(before), now=str(after), of=was.name)
            changes.append(change)
    return changes


def _speed(was: Report, now: Report) -> list[VerdictChange]:
    """Compares speeds: a change requires disjoint 95 % intervals and a ratio beyond
    PROGRESS_SPEEDUP.
    """
    before, after = was.profile, now.profile
    if before is None or after is None or before.candidate is None or after.candidate is None:
        return []
    changes = []
    # The kernel's own time decides; the speedup also contains the noise of the eager baseline.
    if _intervals_differ(before.candidate, after.candidate):
        times = f"{before.candidate.median:.4g} ms", f"{after.candidate.median:.4g} ms"
        changes.append(VerdictChange(aspect=VerdictAspect.TIME, was=times[0], now=times[1]))
    if (
        before.speedup
        and after.speedup
        and changes
        and not 1 / PROGRESS_SPEEDUP <= after.speedup / before.speedup <= PROGRESS_SPEEDUP
    ):
        changes.append(
            VerdictChange(
                aspect=VerdictAspect.SPEEDUP,
                was=f"{before.speedup:.3g}x",
                now=f"{after.speedup:.3g}x",
            )
        )
    return changes


def _intervals_differ(was: Timing, now: Timing) -> bool:
    slow, fast = max(was.median, now.median), min(was.median, now.median)
    return (was.high < now.low or now.high < was.low) and slow > fast * PROGRESS_SPEEDUP
