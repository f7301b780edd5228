"""Differences between two verdicts on one candidate, beyond the noise of measuring twice."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.agent.loop.stopping import PROGRESS_SPEEDUP
from kernelwright.policies.base import Value
from kernelwright.tools.report import CorrectnessResult, KernelResources, Report, Timing

ERROR_NOISE_FACTOR = 2.0
"""Factor within which two worst error ratios count as equal: they vary with the draw of inputs."""


class VerdictAspect(StrEnum):
    """The aspects of a verdict that can change."""

    VERDICT = "verdict"
    """Correct or not; the only one that decides the exit status, together with FAULT."""
    FAULT = "fault"
    RUNG = "rung"
    ERROR = "error ratio"
    KERNELS = "kernels"
    """The specialisations that are compiled."""
    REGISTERS = "registers"
    SPILLS = "spills"
    SHARED = "shared memory"
    TIME = "time"
    SPEEDUP = "speedup"


class VerdictChange(Value):
    """One aspect of a verdict that has changed."""

    aspect: VerdictAspect
    was: str
    now: str
    of: str = ""
    """The kernel or the target, where it is about one."""


class VerdictDrift(Value):
    """The changes from the stored verdict to today's."""

    changes: tuple[VerdictChange, ...] = ()
    note: str = ""
    """The part that could not be compared, and the reason."""

    @property
    def verdict_changed(self) -> bool:
        """Whether the verdict or its fault is another one: figures alone do not count."""
        return any(
            change.aspect in (VerdictAspect.VERDICT, VerdictAspect.FAULT) for change in self.changes
        )


def compare_reports(was: Report, now: Report) -> VerdictDrift:
    """Rung and error only of verdicts from the same kind of device; times only of the same GPU."""
    changes = [*_verdict(was, now), *_resources(was, now)]
    places = _place(was), _place(now)
    if was.judged_on and now.judged_on and places[0] != places[1]:
        note = f"judged on {places[1]} now and on {places[0]} then: rungs, errors and times do not compare"
        return VerdictDrift(changes=tuple(changes), note=note)
    if was.rung is not now.rung:
        changes.append(VerdictChange(aspect=VerdictAspect.RUNG, was=was.rung, now=now.rung))
    return VerdictDrift(changes=(*changes, *_error(was, now), *_speed(was, now)))


def _place(report: Report) -> str:
    return report.judged_on or "cpu"


def _verdict(was: Report, now: Report) -> list[VerdictChange]:
    if was.correct != now.correct:
        return [
            VerdictChange(
                aspect=VerdictAspect.VERDICT, was=_verdict_text(was), now=_verdict_text(now)
            )
        ]
    if _verdict_text(was) != _verdict_text(now):
        return [
            VerdictChange(
                aspect=VerdictAspect.FAULT, was=_verdict_text(was), now=_verdict_text(now)
            )
        ]
    return []


def _verdict_text(report: Report) -> str:
    """Returns the verdict in words: `correct`, `mismatch`, `cheat (cache)`."""
    failure = report.failure
    if report.correct or failure is None:
        return "correct" if report.correct else "not correct"
    name = failure.fault.replace("_", " ")
    return f"{name} ({failure.cheat})" if failure.cheat else name


def _error(was: Report, now: Report) -> list[VerdictChange]:
    """Returns the error of a right answer; how wrong a wrong one is depends on the draw."""
    if not (was.correct and now.correct):
        return []
    before, after = (
        _worst(was.correctness or was.interpreted),
        _worst(now.correctness or now.interpreted),
    )
    if (
        before is None
        or after is None
        or max(before, after) <= ERROR_NOISE_FACTOR * min(before, after)
    ):
        return []
    return [VerdictChange(aspect=VerdictAspect.ERROR, was=f"{before:.3g}", now=f"{after:.3g}")]


def _worst(result: CorrectnessResult | None) -> float | None:
    """Below 1 it is eager's own rounding, whose size says nothing."""
    ratios = (
        [check.error_ratio for check in result.checks if check.error_ratio is not None]
        if result
        else []
    )
    return max(1.0, *ratios) if ratios else None


def _resources(was: Report, now: Report) -> list[VerdictChange]:
    """Compares the targets that both compiled for. The compiler is deterministic, so any difference counts."""
    found: list[VerdictChange] = []
    for before in was.compiles:
        after = next((other for other in now.compiles if other.target == before.target), None)
        if after is None or not (before.passed and after.passed):
            continue
        old, new = _kernels(before.kernels), _kernels(after.kernels)
        if old.keys() != new.keys():
            found.append(
                VerdictChange(
                    aspect=VerdictAspect.KERNELS, was=_names(old), now=_names(new), of=before.target
                )
            )
        found += [
            change for key in old.keys() & new.keys() for change in _kernel(old[key], new[key])
        ]
    return found


def _kernels(kernels: tuple[KernelResources, ...]) -> dict[str, KernelResources]:
    return {
        f"{k.name} {sorted(k.config.items())} {sorted(k.signature.items())}": k for k in kernels
    }


def _names(kernels: dict[str, KernelResources]) -> str:
    return ", ".join(sorted(kernel.name for kernel in kernels.values())) or "none"


def _kernel(was: KernelResources, now: KernelResources) -> list[VerdictChange]:
    measured = (
        (VerdictAspect.REGISTERS, was.registers, now.registers),
        (VerdictAspect.SPILLS, was.spills, now.spills),
        (VerdictAspect.SHARED, was.shared, now.shared),
    )
    return [
        VerdictChange(aspect=aspect, was=str(before), now=str(after), of=was.name)
        for aspect, before, after in measured
        if before != after
    ]


def _speed(was: Report, now: Report) -> list[VerdictChange]:
    """Says how the speed changed where the 95 % intervals lie apart, by more than what counts as progress elsewhere."""
    before, after = was.profile, now.profile
    if before is None or after is None or before.candidate is None or after.candidate is None:
        return []
    found = []
    if _intervals_differ(before.candidate, after.candidate):
        times = f"{before.candidate.median:.4g} ms", f"{after.candidate.median:.4g} ms"
        found.append(VerdictChange(aspect=VerdictAspect.TIME, was=times[0], now=times[1]))
    if (
        before.speedup
        and after.speedup
        and found
        and not 1 / PROGRESS_SPEEDUP <= after.speedup / before.speedup <= PROGRESS_SPEEDUP
    ):
        found.append(
            VerdictChange(
                aspect=VerdictAspect.SPEEDUP,
                was=f"{before.speedup:.3g}x",
                now=f"{after.speedup:.3g}x",
            )
        )
    return found


def _intervals_differ(was: Timing, now: Timing) -> bool:
    slow, fast = max(was.median, now.median), min(was.median, now.median)
    return (was.high < now.low or now.high < was.low) and slow > fast * PROGRESS_SPEEDUP
