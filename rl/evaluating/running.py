"""Runs an evaluation (`rl evaluate`): rollouts through the agent's batch, stored in a database,
then the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from kernelwright.agent.batch.runs import Batch


class EvaluationOptions(Value):
    """The settings of an evaluation. A second evaluation with equal settings continues the first."""

    policy: str
    samples: int = 1
    turns: int = 4
    device: str = "cpu"
    temperature: float | None = None
    """None: 0.8 for several samples, else greedy first."""
    seed: int = 0
    targets: tuple[str, ...] = ("sm_90",)
    reply_tokens: int | None = None
    at_once: int = 32
    workers: int = 2

    @property
    def drawn_at(self) -> float | None:
        """Returns the sampling temperature: as requested, else 0.8 for several samples; None
        leaves the choice to the run.
        """
        return 0.8 if self.temperature is None and self.samples > 1 else self.temperature

    def settings(self) -> Settings:
        """Returns the settings of each run of the evaluation: the default goal, and at most
        `turns` turns.
        """
        return Settings(
            policy=self.policy,
            targets=self.targets,
            device=self.device,
            goal=Goal(),
            budgets=Budgets(turns=self.turns),
            temperature=self.drawn_at,
            reply_tokens=self.reply_tokens,
            seed=self.seed,
        )


class EvaluationResult(Value):
    """The figures of an evaluation, and the written files."""

    evaluation: Evaluation
    folder: str
    files: tuple[str, ...]
    interrupted: bool
    comparison: EvaluationComparison | None = None
    """The comparison with an earlier evaluation, if requested."""


class EvaluationOutput(NamedTuple):
    """Destinations of an evaluation's files, and facts for its page."""

    folder: Path
    command: str
    """The command line of the evaluation."""
    card: Path | None = None
    """A model's folder, whose README gets the figures."""
    against: RecordedEvaluation | None = None
    """An earlier evaluation for a comparison."""


def evaluate_policy(
    suite: Suite,
    policy: Policy,
    options: EvaluationOptions,
    output: EvaluationOutput,
    *,
    watch: Callable[[Batch], None] = lambda batch: None,
    say: Callable[[str], None] = lambda step: None,
) -> EvaluationResult:
    """Starts or continues an evaluation until its end or Ctrl-C; the page is written in both
    cases.

    Raises InputError if the earlier evaluation has no problem of the suite.
    """
    if output.against is not None:
        refuse_unshared(output.against, [problem.hash for problem in suite.problems])
    folder = output.folder
    folder.mkdir(parents=True, exist_ok=True)
    db = str(folder / DATABASE_FILE)
    batched = run_batch(
        suite.problems,
        policy,
        options.settings(),
        name=RUN_NAME,
        samples=options.samples,
        folder=folder / "batch",
        db=db,
        at_once=options.at_once,
        workers=options.workers,
        watch=watch,
        say=say,
    )
    families = {problem.name: problem.family for problem in suite.problems}
    settings = options.settings()
    settings = settings.with_(prompt_version=Prompts(policy.prompt_form, settings.prompts).version)
    keys = {settings.start(problem).key for problem in suite.problems}
    comparison = None
    with open_store(db, readonly=True) as store:
        rollouts = read_rollouts(store, RUN_NAME, keys, families, suite.solutions)
        if output.against is not None:
            comparison = _compared(store, keys, output.against, options.samples, folder)
    evaluation = evaluate_rollouts(
        [rollout for rollout in rollouts if rollout.sample < options.samples],
        families,
        policy=options.policy,
        suite=suite.name,
        device=options.device,
        samples=options.samples,
        turns=options.turns,
        temperature=options.drawn_at,
        seed=options.seed,
    )
    files = _write_files(evaluation, comparison, options.device, output)
    return EvaluationResult(
        evaluation=evaluation,
        folder=str(folder),
        files=tuple(map(str, files)),
        interrupted=batched.interrupted,
        comparison=comparison,
    )


def _write_files(
    evaluation: Evaluation,
    comparison: EvaluationComparison | None,
    device: str,
    output: EvaluationOutput,
) -> list[Path]:
    """Writes the page, the comparison and the model's card, and returns the paths of the first two."""
    machine, date = machine_line(device), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    files = write_evaluation(evaluation, output.folder, output.command, machine, date)
    if comparison is not None:
        files += write_comparison(comparison, output.folder, output.command, date)
    if output.card is not None:
        text = format_page(evaluation, output.command, machine, date)
        put_evaluation(output.card / "README.md", text)
    return files


def _compared(
    store: Store, keys: Collection[str], against: RecordedEvaluation, samples: int, folder: Path
) -> EvaluationComparison | None:
    """Compares the finished rollouts of this evaluation; None without finished rollouts."""
    rows = store.trajectories(TrajectoryFilter(run=RUN_NAME), limit=None, newest=False)
    rows = [row for row in rows if row.key in keys and row.sample < samples]
    if not any(row.finished for row in rows):
        return None
    return compare_evaluations(against, read_recorded(store, rows, str(folder)))
