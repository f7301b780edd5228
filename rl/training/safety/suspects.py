"""Finds candidates for a person to inspect: cheats, implausible speeds, and kernels with next to
no work.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Turn
from kernelwright.tools.report import Fault

MAX_SHARE_OF_SPEED_OF_LIGHT = 0.98
"""Share of the speed of light above which a candidate is suspect: honest kernels hardly come
closer.
"""
SUSPICIOUS_SPEEDUP = 20.0
"""Speedup over eager PyTorch above which a candidate is suspect: possible for a long fused chain,
but worth a check.
"""
MIN_OWN_SHARE_OF_GPU_TIME = 0.3
"""Share of GPU time in the candidate's own kernels below which a candidate is suspect."""


class Suspect(Value):
    """A candidate for a person to inspect, with the reason."""

    candidate_id: int
    problem: str
    why: str


def suspects_of(store: Store, chosen: CandidateFilter | None = None) -> list[Suspect]:
    """Returns the suspects in the order of the log."""
    suspects = []
    for turn in store.samples(chosen or CandidateFilter()):
        if reasons := list(reasons_against(turn)):
            why = "; ".join(reasons)
            suspects.append(Suspect(candidate_id=turn.candidate_id, problem=turn.problem, why=why))
    return suspects


def reasons_against(turn: Turn) -> Iterator[str]:
    """Yields the reasons to doubt the verdict of a turn."""
    report = turn.report
    if report is None:
        return
    failure = report.failure
    if failure is not None and failure.fault is Fault.CHEAT:
        yield f"a cheat ({failure.cheat.value if failure.cheat else 'unnamed'}): {failure.message}"
    if not report.correct:
        return
    light = report.profile.speed_of_light if report.profile else None
    if light is not None and light > MAX_SHARE_OF_SPEED_OF_LIGHT:
        yield f"{light:.0%} of the speed of light"
    if report.speedup is not None and report.speedup > SUSPICIOUS_SPEEDUP:
        yield f"{report.speedup:.0f} times eager PyTorch"
    own_share = report.profile.own_share if report.profile else None
    if own_share is not None and own_share < MIN_OWN_SHARE_OF_GPU_TIME:
        yield f"only {own_share:.0%} of GPU time in its own kernels"
    if report.own_work is not None and report.own_work.needed is False:
        yield "right with its kernels turned off"
    if report.correct_kb is False:
        yield "right here, wrong by KernelBench's own rule"
