"""A run's report as a value: figures and a table for each policy, and each policy against the
first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from kernelwright.agent.reporting.figures import (
    Attempts,
    Figures,
    best_speedups,
    by_problem,
    compute_figures,
)
from kernelwright.agent.reporting.pairing import RunComparison, compare_runs
from kernelwright.agent.reporting.samples import Cost, ReportedSample, read_samples
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.records import TrajectoryFilter
from kernelwright.tools.report import ReportOutcome


class ProblemSummary(Value):
    """The samples of a problem, summarized."""

    problem: str
    samples: int
    compiled: int
    correct: int
    best_speedup: float | None
    best_trajectory: int | None
    milliseconds: float | None
    speed_of_light: float | None
    judged_on: str
    outcome: str
    """Outcome of the best candidate: correct, incorrect, needs_gpu or not_checked; empty if none
    was judged.
    """
    fault: str
    """Fault of the last sample if none is correct; `not judged` if the problem cannot be judged."""
    message: str
    """Message of `fault`, in one line."""
    eval_mode: str
    """Reason why the module was judged in eval mode; empty if it was judged as built."""
    degenerate: tuple[str, ...]
    cost: Cost


class PolicyGroup(Value):
    """The samples of a policy with a set of options."""

    label: str
    policy: str
    options: dict[str, object]
    figures: Figures
    rows: tuple[ProblemSummary, ...]


class Against(Value):
    """The paired tests of two groups."""

    first: str
    second: str
    tests: tuple[RunComparison, ...]


class RunReport(Value):
    """The report of a batch."""

    run: str
    created: float
    """Time of this report, in seconds since 1970."""
    database: str
    groups: tuple[PolicyGroup, ...]
    against: tuple[Against, ...] = ()


def report_run(store: Store, name: str, against: str | None = None) -> RunReport:
    """Reports on a run. `against`: name of another run. Raises InputError for an unknown or empty
    run.
    """
    own_attempts = _attempts(store, name)
    groups = tuple(_group(label, attempts) for label, attempts in own_attempts.items())
    comparisons: list[Against] = []
    first_label, *further_labels = own_attempts
    for label in further_labels:
        tests = tuple(compare_runs(own_attempts[first_label], own_attempts[label]))
        comparisons.append(Against(first=first_label, second=label, tests=tests))
    other_attempts = _attempts(store, against) if against is not None else {}
    for label, attempts in own_attempts.items():
        for other_label, others_attempts in other_attempts.items():
            tests = tuple(compare_runs(attempts, others_attempts))
            second = f"{against}: {other_label}"
            comparisons.append(Against(first=label, second=second, tests=tests))
    return RunReport(
        run=name,
        created=time.time(),
        database=store.where,
        groups=groups,
        against=tuple(comparisons),
    )


def _attempts(store: Store, name: str) -> dict[str, Attempts]:
    """Returns the attempts by the label of policy and options; every problem of the run is in
    each.
    """
    row = next((run for run in store.runs() if run.name == name), None)
    samples = read_samples(store, TrajectoryFilter(run=name)) if row else []
    if row is None or not samples:
        run_names = ", ".join(run.name for run in store.runs()[:8]) or "none yet"
        raise InputError(
            f"no run {name!r} with a trajectory in {store.where}: its runs are {run_names}"
        )
    planned = row.options.get("problems")
    problems = [str(p) for p in planned] if isinstance(planned, list) else []
    problems += [sample.problem for sample in samples]
    return {
        label: by_problem(group_samples, dict.fromkeys(problems))
        for label, group_samples in _labelled(samples).items()
    }


def _labelled(samples: Sequence[ReportedSample]) -> dict[str, list[ReportedSample]]:
    """Groups samples by a label: the policy's name, with the options that distinguish it from
    other groups of the policy.
    """
    groups: dict[tuple[str, str], list[ReportedSample]] = {}
    for sample in samples:
        groups.setdefault((sample.policy, sample.options), []).append(sample)
    labelled: dict[str, list[ReportedSample]] = {}
    for (policy, options), group_samples in groups.items():
        # A label names only the options in which groups of the same policy differ.
        other_options = [
            json.loads(other) for name, other in groups if name == policy and other != options
        ]
        differences: list[str] = []
        for key, value in json.loads(options).items():
            if any(other.get(key) != value for other in other_options):
                differences.append(f"{key} {value}")
        label = f"{policy} ({', '.join(differences)})" if differences else policy
        labelled[label] = group_samples
    return labelled


def _group(label: str, attempts: Attempts) -> PolicyGroup:
    first = next(problem_samples[0] for problem_samples in attempts.values() if problem_samples)
    return PolicyGroup(
        label=label,
        policy=first.policy,
        options=json.loads(first.options),
        figures=compute_figures(attempts),
        rows=tuple(_row(problem, problem_samples) for problem, problem_samples in attempts.items()),
    )


def _ended_with(last: ReportedSample | None) -> str:
    """Returns the fault of the last sample of an unsolved problem, or the reason for a sample
    without a fault.
    """
    if last is None:
        return "never attempted"
    if last.unjudgeable:
        return "not judged"
    unchecked = (
        last.outcome if last.outcome in (ReportOutcome.NEEDS_GPU, ReportOutcome.NOT_CHECKED) else ""
    )
    return unchecked or last.fault or last.stop_reason


def _row(problem: str, problem_samples: Sequence[ReportedSample]) -> ProblemSummary:
    right = [sample for sample in problem_samples if sample.correct]
    best = max(right, key=lambda sample: sample.timed or -1.0, default=None)
    last = problem_samples[-1] if problem_samples else None
    shown = best or last
    cost = Cost()
    for sample in problem_samples:
        cost = cost.plus(sample.cost)
    speeds = best_speedups({problem: problem_samples})
    return ProblemSummary(
        problem=problem,
        samples=len(problem_samples),
        compiled=sum(sample.compiled for sample in problem_samples),
        correct=len(right),
        best_speedup=speeds[0] if speeds else None,
        best_trajectory=best.trajectory_id if best else None,
        milliseconds=best.milliseconds if best and best.on_gpu else None,
        speed_of_light=best.speed_of_light if best and best.on_gpu else None,
        judged_on=shown.judged_on if shown else "",
        outcome=shown.outcome if shown else "",
        fault="" if best else _ended_with(last),
        message="" if best or not last else last.stop_message if last.unjudgeable else last.message,
        eval_mode=next((sample.eval_mode for sample in problem_samples if sample.eval_mode), ""),
        degenerate=next((sample.degenerate for sample in problem_samples if sample.degenerate), ()),
        cost=cost,
    )
