"""A turn of TUNE in a run: the parent's program with the numbers that won on the GPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.loop.attempts import Attempt
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

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator

TUNER_NAME = "tuner"
"""What the stored turn names as its policy."""
TURN_SHARE_OF_GPU_SECONDS = 0.5
"""The share of the GPU-seconds that a run has left which one turn may take."""
CONFIGURATIONS, MEASURED = 48, 12


class TuneTurn:
    """Answers the turns of TUNE of one run. What it measured is kept in a journal a kernel, so that a run that was
    stopped goes on at the exact configuration.
    """

    def __init__(
        self, evaluator: Evaluator, settings: Settings, store: Store, folder: Path | None
    ) -> None:
        """folder: of the journals; None, where the database is a server, keeps none beyond this process."""
        self._evaluator, self._settings, self._store, self._folder = (
            evaluator,
            settings,
            store,
            folder,
        )

    def tuned(
        self, problem: Problem, parent: Attempt, spent: Spent, say: Callable[[str], None]
    ) -> Completion:
        """The parent's program with other numbers; the parent's own where none are faster, with the reason."""
        begun, source = time.monotonic(), parent.source or ""
        told = self._settings.precision
        precision = PrecisionClass(told) if told else precision_for(problem)
        settings = self._asked(spent).with_(precision=precision, classes=True)
        place = self._evaluator.environment().gpu or "cpu"
        try:
            with self._journal(problem, source, settings, place, parent) as journal:
                tuner = Tuner(
                    self._evaluator, problem, source, settings, journal, say, kernel="candidate",
                    priors=lambda: priors_for(self._store, problem, place, source),
                )  # fmt: skip
                found, text = tuner.run()
        except InputError as error:
            return _answer(source, f"Not tuned: {error}", begun)
        return _answer(text or source, summary(found), begun)

    def _asked(self, spent: Spent) -> TuneSettings:
        budget = self._settings.budgets.gpu_seconds
        left = (
            120.0
            if budget is None
            else max(1.0, TURN_SHARE_OF_GPU_SECONDS * (budget - spent.gpu_seconds))
        )
        told = self._settings
        return turn_settings(told.targets[0], told.device, told.own_work).with_(
            gpu_seconds=min(120.0, left)
        )

    def _journal(
        self, problem: Problem, source: str, settings: TuneSettings, place: str, parent: Attempt
    ) -> Journal:
        import tempfile

        # the budget that is left differs when a run goes on, and decides nothing that a row says
        identity = identity_of(problem, source, settings.with_(gpu_seconds=120.0), place)
        folder = (
            self._folder / "tuning"
            if self._folder is not None
            else Path(tempfile.mkdtemp(prefix="tuning-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        return Journal(
            folder / f"{parent.hash[:24] or 'candidate'}-{identity[:12]}.jsonl", identity
        )


def turn_settings(target: str, device: str, own_work: str) -> TuneSettings:
    """What a turn of TUNE searches; the budget in GPU-seconds and the precision are its caller's."""
    return TuneSettings(
        target=target,
        device=device,
        own_work=own_work,
        configurations=CONFIGURATIONS,
        measured=MEASURED,
    )


def precision_for(problem: Problem) -> PrecisionClass:
    """torch's own convolutions are in tf32 by default (torch.backends.cudnn.allow_tf32): a candidate for them may be,
    as far as the verdict finds it as precise.
    """
    convolves = re.search(
        r"\b(Lazy)?Conv(Transpose)?[123]d|\bconv(_transpose)?[123]d|\.convolution\b", problem.source
    )
    return PrecisionClass.ANY if convolves else PrecisionClass.SPLIT


def summary(found: TuningResult) -> str:
    """One paragraph, for the stored turn and for people."""
    if found.failure:
        return f"Not tuned: {found.failure}"
    if not found.measured:
        return "Not tuned: nothing was measured, there is no GPU."
    chosen = found.chosen[0] if found.chosen else None
    if chosen is None or not chosen.changes or chosen.timing is None or found.before is None:
        return f"No configuration is certainly faster ({found.launches} timed calls)."
    changes = ", ".join(f"{name} {value}" for name, value in chosen.changes.items())
    precision = f", precision class {chosen.precision}" if chosen.precision is not None else ""
    return (
        f"{changes}: {found.before.median:.4g} ms before, {chosen.timing.median:.4g} ms after, on {found.device}"
        f"{precision} ({found.launches} timed calls, {found.gpu_seconds:.1f} s).{describe_precision_classes(found)}"
    )


def describe_precision_classes(found: TuningResult) -> str:
    """The best of each class of precision, with its error beside eager's; empty where nothing multiplies fp32."""
    told = []
    for name, one in found.by_precision.items():
        if one.timing is None:
            continue
        known = one.error is not None and one.eager_error is not None
        error = f", error {one.error:.2g} (eager's {one.eager_error:.2g})" if known else ""
        told.append(f"{name} {one.timing.median:.4g} ms{error}")
    return f" Best by precision: {'; '.join(told)}." if told else ""


def _answer(source: str, told: str, begun: float) -> Completion:
    usage = Usage(prompt_tokens=0, completion_tokens=0, dollars=0.0)
    ending = "" if source.endswith("\n") else "\n"
    return Completion(
        text=f"{told}\n\n```python\n{source}{ending}```\n", finish=FinishReason.STOP, usage=usage, policy=TUNER_NAME,
        latency=time.monotonic() - begun,
    )  # fmt: skip
