"""Compares two evaluations by problem: the difference of pass@k with its interval, and the
problems won and lost.

Both are read from their databases of rollouts. Problems are equal if their references are equal
texts, so two overlapping suites are compared on their common problems.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernelwright.agent.reporting.figures import PASS_AT_K_VALUES, pass_at
from kernelwright.agent.runtime.databases import open_store
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.evaluating.rollouts import Rollout, read_rollouts
from kernelwright.rl.training.online.measuring import bootstrap_interval
from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
from kernelwright.store.records import TrajectoryFilter

RUN_NAME = "evaluation"
DATABASE_FILE = "rollouts.db"
COMPARED_SETTINGS = ("device", "temperature", "reply_tokens", "seed", "own_work")
"""Settings of a run that should agree in two compared evaluations."""


class RecordedEvaluation(NamedTuple):
    """The rollouts of an evaluation, read from its database."""

    location: str
    policy: str
    turns: int
    settings: Mapping[str, object]
    names: Mapping[str, str]
    """Names of the problems by the hash of their reference."""
    rollouts: Mapping[str, Sequence[Rollout]]
    """Finished rollouts by the problem's hash."""


class PassDifference(Value):
    """pass@k of both evaluations within a number of turns, over the common problems."""

    turns: int
    k: int
    before: float
    after: float
    difference: float
    low: float
    """Lower end of the 95 % interval of the paired difference (bootstrap over problems)."""
    high: float


class ProblemChange(Value):
    """A problem solved more often by one evaluation than by the other, within all turns."""

    problem: str
    before: float
    """Share of the rollouts with a solution."""
    after: float


class EvaluationComparison(Value):
    """Two evaluations on their common problems. `before` is the earlier evaluation."""

    against: str
    before_policy: str
    after_policy: str
    shared: int
    only_before: int
    """Number of problems of the earlier evaluation alone."""
    only_after: int
    passes: tuple[PassDifference, ...]
    """Differences of pass@k; the last entry with k = 1 is pass@1 within all turns."""
    won: tuple[ProblemChange, ...]
    lost: tuple[ProblemChange, ...]
    remarks: tuple[str, ...] = ()
    """Settings that differ, and omissions."""

    @property
    def pass_at_1(self) -> PassDifference:
        """The difference of pass@1 within all turns."""
        return [figure for figure in self.passes if figure.k == 1][-1]

    @property
    def is_worse(self) -> bool:
        """Whether pass@1 fell beyond chance: the whole interval lies under 0."""
        return self.pass_at_1.high < 0


def read_earlier(path: Path) -> RecordedEvaluation:
    """Reads the evaluation in a folder, or in a database of rollouts; of several settings the
    most recent. Raises InputError if there is none.
    """
    database = path / DATABASE_FILE if path.is_dir() else path
    if not database.is_file():
        raise InputError(
            f"--against {path}: there is no evaluation; name a folder that `rl evaluate --out` wrote"
        )
    with open_store(str(database), readonly=True) as store:
        rows = store.trajectories(TrajectoryFilter(run=RUN_NAME), limit=None, newest=False)
        if not rows:
            raise InputError(f"--against {path}: {database} holds no rollouts of `rl evaluate`")
        newest = max(rows, key=lambda row: row.updated)
        return read_recorded(
            store, [row for row in rows if _settings(row) == _settings(newest)], str(path)
        )


def read_recorded(store: Store, rows: Sequence[Trajectory], location: str) -> RecordedEvaluation:
    """Reads the rollouts of these trajectories, which have the same policy and settings."""
    families = {row.problem: "" for row in rows}
    hashes = {row.id: row.problem_hash for row in rows}
    rollouts: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in read_rollouts(store, RUN_NAME, {row.key for row in rows}, families, {}):
        if rollout.finished and rollout.trajectory_id in hashes:
            rollouts[hashes[rollout.trajectory_id]].append(rollout)
    return RecordedEvaluation(
        location=location,
        policy=rows[0].policy,
        turns=int(rows[0].budgets.get("turns") or 1),
        settings=_settings(rows[0]),
        names={row.problem_hash: row.problem for row in rows},
        rollouts=dict(rollouts),
    )


def _settings(row: Trajectory) -> dict[str, object]:
    return {
        **row.options,
        "policy": row.policy,
        "seed": row.seed,
        "turns": row.budgets.get("turns"),
    }


def refuse_unshared(earlier: RecordedEvaluation, hashes: Collection[str]) -> None:
    """Raises InputError if the earlier evaluation has no problem of the suite."""
    if not set(earlier.rollouts) & set(hashes):
        raise InputError(
            f"--against {earlier.location}: none of its {len(earlier.rollouts)} problems is among the {len(hashes)} of "
            "this suite: give the --suite, --limit and --task-seed that it was made with"
        )


def compare_evaluations(
    before: RecordedEvaluation, after: RecordedEvaluation
) -> EvaluationComparison:
    """Compares on the problems with finished rollouts in both. Raises InputError if there are
    none.
    """
    # Problems are equal if their references are equal texts.
    shared = sorted(set(before.rollouts) & set(after.rollouts))
    if not shared:
        raise InputError(
            f"--against {before.location}: no problem has a finished rollout in both evaluations"
        )
    turns = min(before.turns, after.turns)
    won, lost = _changes(before, after, shared, turns)
    return EvaluationComparison(
        against=before.location,
        before_policy=before.policy,
        after_policy=after.policy,
        shared=len(shared),
        only_before=len(before.rollouts) - len(shared),
        only_after=len(after.rollouts) - len(shared),
        passes=_passes(before, after, shared, turns),
        won=won,
        lost=lost,
        remarks=_remarks(before, after),
    )


def _passes(
    before: RecordedEvaluation, after: RecordedEvaluation, shared: Sequence[str], turns: int
) -> tuple[PassDifference, ...]:
    # pass@k needs k samples of every problem.
    fewest = min(
        len(evaluation.rollouts[name]) for evaluation in (before, after) for name in shared
    )
    differences: list[PassDifference] = []
    for limit in dict.fromkeys((1, turns)):
        for k in PASS_AT_K_VALUES:
            if k <= fewest:
                differences.append(_difference(before, after, shared, limit, k))
    return tuple(differences)


def _difference(
    before: RecordedEvaluation, after: RecordedEvaluation, shared: Sequence[str], turns: int, k: int
) -> PassDifference:
    rates_before = [_pass_of(before.rollouts[name], turns, k) for name in shared]
    rates_after = [_pass_of(after.rollouts[name], turns, k) for name in shared]
    # Paired by problem: a difference of each problem varies less than the two means.
    steps = list(map(operator.sub, rates_after, rates_before))
    low, high = bootstrap_interval(steps)
    return PassDifference(
        turns=turns,
        k=k,
        before=sum(rates_before) / len(shared),
        after=sum(rates_after) / len(shared),
        difference=sum(steps) / len(steps),
        low=low,
        high=high,
    )


def _pass_of(rollouts: Sequence[Rollout], turns: int, k: int) -> float:
    return pass_at(len(rollouts), sum(rollout.within(turns).correct for rollout in rollouts), k)


def _changes(
    before: RecordedEvaluation, after: RecordedEvaluation, shared: Sequence[str], turns: int
) -> tuple[tuple[ProblemChange, ...], tuple[ProblemChange, ...]]:
    """Returns the problems solved more often than before, and those solved less often, the
    largest change first.
    """
    changes = [
        ProblemChange(
            problem=after.names[name],
            before=_pass_of(before.rollouts[name], turns, 1),
            after=_pass_of(after.rollouts[name], turns, 1),
        )
        for name in shared
    ]
    changes.sort(key=lambda change: (-abs(change.after - change.before), change.problem))
    won = tuple(change for change in changes if change.after > change.before)
    lost = tuple(change for change in changes if change.after < change.before)
    return won, lost


def _remarks(before: RecordedEvaluation, after: RecordedEvaluation) -> tuple[str, ...]:
    remarks = []
    if before.turns != after.turns:
        turns = min(before.turns, after.turns)
        remarks.append(f"turns differ ({before.turns} and {after.turns}): compared within {turns}")
    for name in COMPARED_SETTINGS:
        earlier, later = before.settings.get(name), after.settings.get(name)
        if earlier != later:
            remarks.append(
                f"{name.replace('_', ' ')} differs: {_shown(earlier)} before, {_shown(later)} after"
            )
    return tuple(remarks)


def _shown(value: object) -> str:
    return "default" if value is None else str(value)
