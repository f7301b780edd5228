"""`rl evaluate` without its options: rollouts through the agent's batch, so that each is in a database, then the
figures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelwright.agent.batch.running import run_batch
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets, Goal
from kernelwright.agent.prompts import Prompts
from kernelwright.agent.runtime.databases import open_store
from kernelwright.policies.base import Policy, Value
from kernelwright.rl.evaluating.comparing import (
    DATABASE_FILE,
    RUN_NAME,
    EvaluationComparison,
    RecordedEvaluation,
    compare_evaluations,
    read_recorded,
    refuse_unshared,
)
from kernelwright.rl.evaluating.measures import Evaluation, evaluate_rollouts
from kernelwright.rl.evaluating.page import format_page, write_comparison, write_evaluation
from kernelwright.rl.evaluating.rollouts import read_rollouts
from kernelwright.rl.evaluating.suites import Suite
from kernelwright.rl.training.sft.card import machine_line, put_evaluation
from kernelwright.store.database import Store
from kernelwright.store.records import TrajectoryFilter


class EvaluationOptions(Value):
    """The settings of an evaluation. A second evaluation with equal settings continues the first."""

    policy: str
    samples: int = 1
    turns: int = 4
    device: str = "cpu"
    temperature: float | None = None
    """None: 0.8 where there are several samples, else greedy first."""
    seed: int = 0
    targets: tuple[str, ...] = ("sm_90",)
    reply_tokens: int | None = None
    at_once: int = 32
    workers: int = 2

    @property
    def drawn_at(self) -> float | None:
        """Returns the sampling temperature: the one that was given, else 0.8 for several samples; None leaves it to the
        run.
        """
        return 0.8 if self.temperature is None and self.samples > 1 else self.temperature

    def settings(self) -> Settings:
        """The settings of each run that the evaluation makes: the default goal, and at most `turns` turns."""
        return Settings(
            policy=self.policy, targets=self.targets, device=self.device, goal=Goal(),
            budgets=Budgets(turns=self.turns),
            temperature=self.drawn_at, reply_tokens=self.reply_tokens, seed=self.seed,
        )  # fmt: skip


class EvaluationResult(Value):
    """The figures of an evaluation, and the files that were written."""

    evaluation: Evaluation
    folder: str
    files: tuple[str, ...]
    interrupted: bool
    comparison: EvaluationComparison | None = None
    """The comparison with an earlier evaluation, where one was named."""


def evaluate_policy(
    suite: Suite, policy: Policy, asked: EvaluationOptions, folder: Path, command: str, *, card: Path | None = None,
    against: RecordedEvaluation | None = None,
    watch: Callable[[Any], None] = lambda batch: None, say: Callable[[str], None] = lambda step: None,
) -> EvaluationResult:  # fmt: skip
    """Begins or goes on until all is done or Ctrl-C; the page is written either way.

    `card`: a model's folder, whose README gets the figures. `against`: an earlier evaluation to compare with; raises
    InputError where it shares no problem with the suite.
    """
    if against is not None:
        refuse_unshared(against, [problem.hash for problem in suite.problems])
    folder.mkdir(parents=True, exist_ok=True)
    db = str(folder / DATABASE_FILE)
    batched = run_batch(
        suite.problems, policy, asked.settings(), name=RUN_NAME, samples=asked.samples, folder=folder / "batch", db=db,
        at_once=asked.at_once, workers=asked.workers, watch=watch, say=say,
    )  # fmt: skip
    families = {problem.name: problem.family for problem in suite.problems}
    settings = asked.settings()
    settings = settings.with_(prompt_version=Prompts(policy.prompt_form, settings.prompts).version)
    keys = {settings.start(problem).key for problem in suite.problems}
    with open_store(db, readonly=True) as store:
        rollouts = read_rollouts(store, RUN_NAME, keys, families, suite.solutions)
        comparison = (
            None if against is None else _compared(store, keys, against, asked.samples, folder)
        )
    rollouts = [rollout for rollout in rollouts if rollout.sample < asked.samples]
    found = evaluate_rollouts(
        rollouts, families, policy=asked.policy, suite=suite.name, device=asked.device, samples=asked.samples,
        turns=asked.turns, temperature=asked.drawn_at, seed=asked.seed,
    )  # fmt: skip
    machine, date = machine_line(asked.device), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    files = write_evaluation(found, folder, command, machine, date)
    if comparison is not None:
        files += write_comparison(comparison, folder, command, date)
    if card is not None:
        put_evaluation(card / "README.md", format_page(found, command, machine, date))
    return EvaluationResult(
        evaluation=found, folder=str(folder), files=tuple(map(str, files)), interrupted=batched.interrupted,
        comparison=comparison,
    )  # fmt: skip


def _compared(
    store: Store, keys: Collection[str], against: RecordedEvaluation, samples: int, folder: Path
) -> EvaluationComparison | None:
    """Compares the finished rollouts of this evaluation; None where there is none yet."""
    rows = store.trajectories(TrajectoryFilter(run=RUN_NAME), limit=None, newest=False)
    rows = [row for row in rows if row.key in keys and row.sample < samples]
    if not any(row.finished for row in rows):
        return None
    return compare_evaluations(against, read_recorded(store, rows, str(folder)))
