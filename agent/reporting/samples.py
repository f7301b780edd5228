"""A summary of each trajectory for figures and exports: its best candidate, verdict and cost.

Read from the store; of the source texts only those of correct best candidates.
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
"""Stop reason of a trajectory whose reference cannot be used (agent/loop/stopping.py)."""


class Cost(Value):
    """The cost of turns. `dollars` is None if any price is unknown."""

    turns: int = 0
    tokens: int = 0
    dollars: float | None = 0.0
    """Dollars; None if an answer's price is not known."""
    policy_seconds: float = 0.0
    tool_seconds: float = 0.0
    gpu_seconds: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Returns the sum of both costs; dollars are unknown if either's are."""
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
    """A trajectory: an attempt of a policy at a problem."""

    trajectory_id: int
    problem: str
    problem_hash: str
    suite: str
    policy: str
    options: str
    """Options that distinguish the command, as JSON."""
    number: int
    """Number of the sample among those of its problem, from 0."""
    finished: bool
    stop_reason: str = ""
    stop_message: str = ""
    """Details of the stop reason: for a problem that cannot be judged, the reason."""
    candidate_id: int | None = None
    """Id of the best candidate; of the last judged candidate if none is correct."""
    compiled: bool = False
    correct: bool = False
    solved_by: Origin | None = None
    """Author of the first correct candidate; None if there is none."""
    judged_on: str = ""
    """cpu, or the GPU's name; empty if nothing was run."""
    speedup: float | None = None
    """Speedup over eager PyTorch, measured on a GPU; None if not measured."""
    milliseconds: float | None = None
    speed_of_light: float | None = None
    outcome: str = ""
    """Outcome of the best candidate: correct, incorrect, needs_gpu or not_checked; empty if none
    was judged.
    """
    fault: str = ""
    message: str = ""
    """First line of the fault's message."""
    degenerate: tuple[str, ...] = ()
    """Kinds of wrong output that the problem's checks would accept."""
    eval_mode: str = ""
    """Reason why the module was judged in eval mode; empty if it was judged as built."""
    algebra: bool = False
    """Whether the best candidate saves operations of the problem by exact algebra, as a mark in
    its text says.
    """
    cost: Cost = Cost()

    @property
    def unjudgeable(self) -> bool:
        """Whether the sample ended because its problem cannot be judged: the reference fails, or
        is random.
        """
        return self.stop_reason == UNJUDGEABLE_STOP_REASON

    @property
    def on_gpu(self) -> bool:
        """Whether the best candidate was judged on a GPU, and so has a speed."""
        return self.judged_on not in ("", "cpu")

    @property
    def without_gpu(self) -> bool:
        """Whether nothing could be timed: the sample was judged on a CPU, or its run was set to a
        CPU.
        """
        return self.judged_on == "cpu" or (
            not self.judged_on and json.loads(self.options or "{}").get("device") == "cpu"
        )

    @property
    def timed(self) -> float | None:
        """Returns the speedup if the sample is correct and was judged on a GPU; otherwise None."""
        return self.speedup if self.correct and self.on_gpu else None


def read_samples(store: Store, trajectory_filter: TrajectoryFilter) -> list[ReportedSample]:
    """Reads the samples of all trajectories of a filter, oldest first."""
    fields = trajectory_filter.model_dump(exclude={"since", "until"}, exclude_none=True)
    entries: dict[int, list[Entry]] = {}
    for entry in store.candidates(CandidateFilter(**fields), order=Order.OLDEST, limit=None):
        entries.setdefault(entry.trajectory.id, []).append(entry)
    rows = store.trajectories(trajectory_filter, limit=None, newest=False)
    return [sample_of(store, row, entries.get(row.id, [])) for row in rows]


def sample_of(store: Store, row: Trajectory, entries: Sequence[Entry]) -> ReportedSample:
    """Summarizes a trajectory. `entries`: its candidates, oldest first."""
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
    """Returns the fastest correct entry, of equals the first; the last judged entry if none is
    correct.
    """
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
    """Returns whether a report's candidate passed the compile rung."""
    return report.rung not in (Rung.SOURCE, Rung.COMPILE) or (
        report.compile is not None and report.failure is None
    )


def cost_of(entries: Sequence[Entry]) -> Cost:
    """Adds up the costs of the answered turns among the entries."""
    turns = tokens = 0
    dollars: float | None = 0.0
    policy_seconds = tool_seconds = gpu_seconds = 0.0
    for entry in entries:
        candidate = entry.candidate
        if candidate.drafted is None:
            continue
        turns += 1
        tokens += (candidate.prompt_tokens or 0) + (candidate.completion_tokens or 0)
        # One turn without a known price makes the sum unknown.
        if dollars is not None:
            dollars = None if candidate.dollars is None else dollars + candidate.dollars
        policy_seconds += candidate.policy_seconds or 0.0
        tool_seconds += candidate.tool_seconds or 0.0
        gpu_seconds += candidate.gpu_seconds or 0.0
    return Cost(
        turns=turns,
        tokens=tokens,
        dollars=dollars,
        policy_seconds=policy_seconds,
        tool_seconds=tool_seconds,
        gpu_seconds=gpu_seconds,
    )
