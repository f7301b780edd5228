"""Answers a turn of TUNE in a run: the parent's program with the fastest numbers on the GPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.loop.attempts import JudgedAttempt
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Spent
from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.priors import priors_for
from kernelwright.agent.tuning.settings import PrecisionClass, TuneSettings
from kernelwright.agent.tuning.tuned import TuningResult
from kernelwright.agent.tuning.tuning import Tuner, identity_of
from kernelwright.errors import InputError
from kernelwright.policies.base import Completion, FinishReason, Usage
from kernelwright.store.database import Store
from kernelwright.tools.problem import Problem
from kernelwright.tools.shapes.judged_shapes import (
    JudgedShape,
    candidate_at,
    candidate_from,
    judged_shapes,
    problem_to_judge,
)

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator

TUNER_NAME = "tuner"
"""Name of the policy in the stored turn."""
TURN_SHARE_OF_GPU_SECONDS = 0.5
"""Largest share of a run's remaining GPU seconds for a single turn."""
MAX_TURN_GPU_SECONDS = 120.0
"""GPU seconds of a turn at most, also without a budget."""
CONFIGURATIONS, MEASURED = 48, 12


class TuneTurn:
    """Answers the turns of TUNE of a run. Measurements are written to a journal per kernel, so a
    stopped run continues at the exact configuration.
    """

    def __init__(
        self, evaluator: Evaluator, settings: Settings, store: Store, folder: Path | None
    ) -> None:
        """folder: folder of the journals. None (the database is a server): journals last as long
        as this process.
        """
        self._evaluator, self._settings = evaluator, settings
        self._store, self._folder = store, folder

    def tuned(
        self, problem: Problem, parent: JudgedAttempt, spent: Spent, say: Callable[[str], None]
    ) -> Completion:
        """Returns the parent's program with faster numbers; the parent's program unchanged, with
        the reason, if none are faster.
        """
        begun, source = time.monotonic(), parent.source or ""
        if (slowest := _slowest_shape(problem, parent)) is not None:
            say(f"tuning at shape {slowest.name}")
            problem, source = problem_to_judge(problem, slowest), candidate_at(source, slowest)
        precision_name = self._settings.precision
        precision = PrecisionClass(precision_name) if precision_name else precision_for(problem)
        settings = self._turn_settings(spent).with_(precision=precision, classes=True)
        gpu_name = self._evaluator.environment().gpu or "cpu"
        try:
            with self._journal(problem, source, settings, gpu_name, parent) as journal:
                tuner = Tuner(
                    self._evaluator, problem, source, settings, journal, say, kernel="candidate",
                    priors=lambda: priors_for(self._store, problem, gpu_name, source),
                )  # fmt: skip
                result, text = tuner.run()
        except InputError as error:
            return _answer(candidate_from(source), f"Not tuned: {error}", begun)
        return _answer(candidate_from(text or source), summary(result), begun)

    def _turn_settings(self, spent: Spent) -> TuneSettings:
        budget = self._settings.budgets.gpu_seconds
        seconds = MAX_TURN_GPU_SECONDS
        if budget is not None:
            share = TURN_SHARE_OF_GPU_SECONDS * (budget - spent.gpu_seconds)
            seconds = min(seconds, max(1.0, share))
        run = self._settings
        settings = turn_settings(run.targets[0], run.device, run.own_work)
        return settings.with_(gpu_seconds=seconds)

    def _journal(
        self,
        problem: Problem,
        source: str,
        settings: TuneSettings,
        gpu_name: str,
        parent: JudgedAttempt,
    ) -> Journal:
        import tempfile

        # The remaining budget differs when a run continues, but does not change any row.
        constant = settings.with_(gpu_seconds=MAX_TURN_GPU_SECONDS)
        identity = identity_of(problem, source, constant, gpu_name)
        if self._folder is not None:
            folder = self._folder / "tuning"
        else:
            folder = Path(tempfile.mkdtemp(prefix="tuning-"))
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{parent.hash[:24] or 'candidate'}-{identity[:12]}.jsonl"
        return Journal(folder / name, identity)


def _slowest_shape(problem: Problem, parent: JudgedAttempt) -> JudgedShape | None:
    """Returns the shape with the lowest speedup; None for a problem without shapes."""
    shapes = judged_shapes(problem)
    verdicts = parent.report.shapes if parent.report is not None else ()
    if not shapes or len(verdicts) != len(shapes):
        return None
    speedups = [verdict.speedup or 0.0 for verdict in verdicts]
    return shapes[speedups.index(min(speedups))]


def turn_settings(target: str, device: str, own_work: str) -> TuneSettings:
    """Returns the settings of a turn of TUNE; the caller sets the budget in GPU seconds and the
    precision.
    """
    return TuneSettings(
        target=target,
        device=device,
        own_work=own_work,
        configurations=CONFIGURATIONS,
        measured=MEASURED,
    )


def precision_for(problem: Problem) -> PrecisionClass:
    """Returns the precision class of a problem: any with convolutions, which torch itself
    computes in tf32 by default (torch.backends.cudnn.allow_tf32); the verdict still decides.
    Otherwise split.
    """
    convolves = re.search(
        r"\b(Lazy)?Conv(Transpose)?[123]d|\bconv(_transpose)?[123]d|\.convolution\b", problem.source
    )
    return PrecisionClass.ANY if convolves else PrecisionClass.SPLIT


def summary(result: TuningResult) -> str:
    """Describes a tuning in one paragraph, for the stored turn and for people."""
    if result.failure:
        return f"Not tuned: {result.failure}"
    if not result.measured:
        return "Not tuned: nothing was measured, there is no GPU."
    chosen = result.chosen[0] if result.chosen else None
    if chosen is None or not chosen.changes or chosen.timing is None or result.before is None:
        return f"No configuration is certainly faster ({result.launches} timed calls)."
    changes = ", ".join(f"{name} {value}" for name, value in chosen.changes.items())
    precision = f", precision class {chosen.precision}" if chosen.precision is not None else ""
    return (
        f"{changes}: {result.before.median:.4g} ms before, {chosen.timing.median:.4g} ms after, on {result.device}"
        f"{precision} ({result.launches} timed calls, {result.gpu_seconds:.1f} s).{describe_precision_classes(result)}"
    )


def describe_precision_classes(result: TuningResult) -> str:
    """Describes the best configuration of each precision class, with its error beside eager's;
    empty if no fp32 operands are multiplied.
    """
    descriptions = []
    for name, judged in result.by_precision.items():
        if judged.timing is None:
            continue
        has_errors = judged.error is not None and judged.eager_error is not None
        error = (
            f", error {judged.error:.2g} (eager's {judged.eager_error:.2g})" if has_errors else ""
        )
        descriptions.append(f"{name} {judged.timing.median:.4g} ms{error}")
    return f" Best by precision: {'; '.join(descriptions)}." if descriptions else ""


def _answer(source: str, summary_text: str, begun: float) -> Completion:
    usage = Usage(prompt_tokens=0, completion_tokens=0, dollars=0.0)
    ending = "" if source.endswith("\n") else "\n"
    return Completion(
        text=f"{summary_text}\n\n```python\n{source}{ending}```\n",
        finish=FinishReason.STOP,
        usage=usage,
        policy=TUNER_NAME,
        latency=time.monotonic() - begun,
    )
