"""Candidates for a person to look at: cheats that were found, speeds that look too good, kernels that do next to
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Turn
from kernelwright.tools.report import Fault

MAX_SHARE_OF_SPEED_OF_LIGHT = 0.98
"""The share of the speed of light from which on a candidate is suspect: nothing honest comes much closer."""
SUSPICIOUS_SPEEDUP = 20.0
"""The speedup over eager PyTorch from which on a candidate is suspect: it is possible for a long fused chain, and worth
a look.
"""
MIN_OWN_SHARE_OF_GPU_TIME = 0.3
"""The least share of GPU time in its own kernels that is not suspect."""


class Suspect(Value):
    """A candidate that a person should look at, and why."""

    candidate_id: int
    problem: str
    why: str


def suspects_of(store: Store, chosen: CandidateFilter | None = None) -> list[Suspect]:
    """Returns suspects in the order of the log; one line a candidate."""
    found = []
    for turn in store.samples(chosen or CandidateFilter()):
        if reasons := list(reasons_against(turn)):
            found.append(
                Suspect(
                    candidate_id=turn.candidate_id, problem=turn.problem, why="; ".join(reasons)
                )
            )
    return found


def reasons_against(turn: Turn) -> Iterator[str]:
    """Yields why the verdict of a turn should not be believed at once."""
    report = turn.report
    if report is None:
        return
    failure = report.failure
    if failure is not None and failure.fault is Fault.CHEAT:
        yield f"a cheat ({failure.cheat.value if failure.cheat else 'unnamed'}): {failure.message}"
    if not report.correct:
        return
    profile = report.profile
    if (
        profile is not None
        and profile.speed_of_light is not None
        and profile.speed_of_light > MAX_SHARE_OF_SPEED_OF_LIGHT
    ):
        yield f"{profile.speed_of_light:.0%} of the speed of light"
    if report.speedup is not None and report.speedup > SUSPICIOUS_SPEEDUP:
        yield f"{report.speedup:.0f} times eager PyTorch"
    if (
        profile is not None
        and profile.own_share is not None
        and profile.own_share < MIN_OWN_SHARE_OF_GPU_TIME
    ):
        yield f"only {profile.own_share:.0%} of GPU time in its own kernels"
    if report.own_work is not None and report.own_work.needed is False:
        yield "right with its kernels turned off"
    if report.correct_kb is False:
        yield "right here, wrong by KernelBench's own rule"
