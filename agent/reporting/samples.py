"""What figures and exports need of each trajectory: its best candidate, how it was judged, what it cost.

Read from the store; of the texts only those of best candidates that are right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kernelwright.policies.base import Origin, Value
from kernelwright.policies.transformations.draft import ALGEBRA_MARK
from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Entry, Order, TrajectoryFilter
from kernelwright.tools.report import Report, Rung

UNJUDGEABLE_STOP_REASON = "problem"
"""The stop reason of a trajectory whose reference cannot be used (agent/loop/stopping.py)."""


class Cost(Value):
    """The cost of turns. `dollars` is None where one price is unknown."""

    turns: int = 0
    tokens: int = 0
    dollars: float | None = 0.0
    """Dollars; None where an answer's price is not known."""
    policy_seconds: float = 0.0
    tool_seconds: float = 0.0
    gpu_seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Returns the sum of both; dollars are unknown where either's are."""
        dollars = (
            None if self.dollars is None or other.dollars is None else self.dollars + other.dollars
        )
        return Cost(
            turns=self.turns + other.turns,
            tokens=self.tokens + other.tokens,
            dollars=dollars,
            policy_seconds=self.policy_seconds + other.policy_seconds,
            tool_seconds=self.tool_seconds + other.tool_seconds,
            gpu_seconds=self.gpu_seconds + other.gpu_seconds,
        )


class ReportedSample(Value):
    """One trajectory: one attempt of one policy at one problem."""

    trajectory_id: int
    problem: str
    problem_hash: str
    suite: str
    policy: str
    options: str
    """The options that make it another command, as JSON."""
    number: int
    """Number of the sample among those of its problem, from 0."""
    finished: bool
    stop_reason: str = ""
    stop_message: str = ""
    """Details of the stop reason: of a problem that cannot be judged, why."""
    candidate_id: int | None = None
    """The id of the best candidate; where none is correct that of the last one that was judged."""
    compiled: bool = False
    correct: bool = False
    solved_by: Origin | None = None
    """The author of its first correct candidate; None where there is none."""
    judged_on: str = ""
    """cpu, or the GPU's name; empty where nothing was run."""
    speedup: float | None = None
    """The speedup over eager PyTorch, measured on a GPU; None where it was not."""
    milliseconds: float | None = None
    speed_of_light: float | None = None
    outcome: str = ""
    """correct, incorrect, needs_gpu or not_checked, of the best candidate; empty where none was judged."""
    fault: str = ""
    message: str = ""
    """The first line of the fault's message."""
    degenerate: tuple[str, ...] = ()
    """Wrong answers that this problem cannot tell from right ones."""
    eval_mode: str = ""
    """Why the module was judged in eval mode; empty where it was judged as it is built."""
    algebra: bool = False
    """The best candidate does not make all operations of the problem, by exact algebra, and says so in its text."""
    cost: Cost = Cost()

    @property
    def unjudgeable(self) -> bool:
        """Whether it ended because its problem cannot be judged: the reference fails, or is random."""
        return self.stop_reason == UNJUDGEABLE_STOP_REASON

    @property
    def on_gpu(self) -> bool:
        """Whether the best candidate was judged on a GPU, so that it has a speed."""
        return self.judged_on not in ("", "cpu")

    @property
    def without_gpu(self) -> bool:
        """Whether nothing could be timed: it was judged on a CPU, or its run was told to use one."""
        return self.judged_on == "cpu" or (
            not self.judged_on and json.loads(self.options or "{}").get("device") == "cpu"
        )

    @property
    def timed(self) -> float | None:
        """The speedup that counts: correct, and judged on a GPU."""
        return self.speedup if self.correct and self.on_gpu else None


def read_samples(store: Store, wanted: TrajectoryFilter) -> list[ReportedSample]:
    """Every trajectory that is wanted, oldest first."""
    fields = wanted.model_dump(exclude={"since", "until"}, exclude_none=True)
    entries: dict[int, list[Entry]] = {}
    for entry in store.candidates(CandidateFilter(**fields), order=Order.OLDEST, limit=None):
        entries.setdefault(entry.trajectory.id, []).append(entry)
    rows = store.trajectories(wanted, limit=None, newest=False)
    return [sample_of(store, row, entries.get(row.id, [])) for row in rows]


def sample_of(store: Store, row: Trajectory, entries: Sequence[Entry]) -> ReportedSample:
    """`entries`: its candidates, oldest first."""
    chosen = best_entry(entries)
    return ReportedSample(
        trajectory_id=row.id,
        problem=row.problem,
        problem_hash=row.problem_hash,
        suite=row.suite,
        policy=row.policy,
        options=json.dumps(row.options, sort_keys=True),
        number=row.sample,
        finished=row.finished is not None,
        stop_reason=row.stop_reason or "",
        stop_message=row.message,
        solved_by=next(
            (e.candidate.origin for e in entries if e.verdict is not None and e.verdict.correct),
            None,
        ),
        cost=cost_of(entries),
        **(_verdict(store, chosen) if chosen else {}),
    )


def best_entry(entries: Sequence[Entry]) -> Entry | None:
    """The fastest correct one, of equals the first; where none is correct the last that was judged."""
    judged = [entry for entry in entries if entry.verdict is not None]
    right = [entry for entry in judged if entry.verdict is not None and entry.verdict.correct]
    if right:
        return max(right, key=lambda entry: (_speed(entry), -entry.candidate.turn))
    return judged[-1] if judged else None


def _speed(entry: Entry) -> float:
    verdict = entry.verdict
    return verdict.speedup if verdict is not None and verdict.speedup is not None else -1.0


def _verdict(store: Store, entry: Entry) -> dict[str, Any]:
    verdict = entry.verdict
    assert verdict is not None
    report = store.report(verdict.id)
    return {
        "candidate_id": entry.candidate.id,
        "compiled": passed_compile_rung(report),
        "correct": verdict.correct,
        "judged_on": verdict.judged_on,
        "speedup": verdict.speedup,
        "milliseconds": verdict.milliseconds,
        "speed_of_light": verdict.speed_of_light,
        "outcome": report.outcome.value,
        "fault": verdict.fault.value if verdict.fault else "",
        "message": (verdict.message.splitlines() or [""])[0],
        "degenerate": report.degenerate,
        "eval_mode": report.eval_mode,
        "algebra": verdict.correct
        and ALGEBRA_MARK in (store.turn(entry.candidate.id).source or ""),
    }


def passed_compile_rung(report: Report) -> bool:
    """Whether it passed the compile rung."""
    return report.rung not in (Rung.SOURCE, Rung.COMPILE) or (
        report.compile is not None and report.failure is None
    )


def cost_of(entries: Sequence[Entry]) -> Cost:
    """Adds what the answered turns among these have cost."""
    answered = [entry.candidate for entry in entries if entry.candidate.drafted is not None]
    dollars = [candidate.dollars for candidate in answered]
    return Cost(
        turns=len(answered),
        tokens=sum((c.prompt_tokens or 0) + (c.completion_tokens or 0) for c in answered),
        dollars=None if None in dollars else sum(d for d in dollars if d is not None),
        policy_seconds=sum(c.policy_seconds or 0.0 for c in answered),
        tool_seconds=sum(c.tool_seconds or 0.0 for c in answered),
        gpu_seconds=sum(c.gpu_seconds or 0.0 for c in answered),
    )
