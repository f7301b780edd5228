"""Watches a training: completes checkpoints, checks alarms and the time limit, handles Ctrl-C,
and reports figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accelerate import PartialState
from transformers import TrainerCallback

from kernelwright.rl.training.checkpoints import mark_whole
from kernelwright.rl.training.grpo.drift import KL_METRIC, SAMPLE_SIZE_METRIC
from kernelwright.rl.training.options import Method, TrainOptions
from kernelwright.rl.training.plan import TrainingPlan
from kernelwright.rl.training.processes import any_process_says
from kernelwright.rl.training.safety.alarms import check_drift, check_entropy
from kernelwright.rl.training.subject import Subject

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

Watch = Callable[[int, int, dict[str, float]], None]
"""Callback with the step, the number of steps, and figures by name."""


def ignore_step(step: int, steps: int, figures: dict[str, float]) -> None:
    """Does nothing at a step: the `Watch` of a training without a report."""


class TrainingRun(NamedTuple):
    """A training of any method, and the facts for its policy card."""

    subject: Subject
    options: TrainOptions
    """Their alarm bounds and time limit apply."""
    method: Method
    facts: dict[str, object]
    """Fields of the policy card."""
    plan: TrainingPlan | None = None
    """The plan of a training from a log."""
    lineage: Callable[[], tuple[str, ...]] = tuple
    """Returns the revisions since the subject's own."""


class TrainingWatcher(TrainerCallback):
    """Trainer callback that watches a training of any method."""

    def __init__(self, run: TrainingRun, watch: Watch, earlier_seconds: float = 0.0) -> None:
        """Takes `earlier_seconds`: duration of the earlier sittings of the same training."""
        minutes = run.options.max_minutes
        self._run = run
        self._watch = watch
        self._limits = run.options.limits
        self._budget = None if minutes is None else minutes * 60
        self._earlier = earlier_seconds
        self._started = self._step_began = time.monotonic()
        self.interrupted = False
        self.paused = False
        """Whether the time of this sitting is up before the last step."""

    @property
    def seconds(self) -> float:
        """Seconds of training, earlier sittings included."""
        return self._earlier + time.monotonic() - self._started

    def interrupt(self) -> None:
        """Requests a checkpoint and a stop at the end of the step."""
        self.interrupted = True

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: object,
    ) -> None:
        """Starts the clocks of this sitting and of its first step."""
        self._started = self._step_began = time.monotonic()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: object,
    ) -> None:
        """Saves and stops after this step if the time is up or the user interrupted, in every
        process at once.
        """
        spent = time.monotonic() - self._started
        is_over = self._budget is not None and spent >= self._budget
        if is_over and state.global_step < state.max_steps:
            self.paused = True
        self.interrupted, self.paused = any_process_says(self.interrupted, self.paused)
        if self.interrupted or self.paused:
            control.should_save = control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, object] | None = None,
        **_: object,
    ) -> None:
        """Adds seconds, tokens a second and the GPU's busy share to a step's figures, and writes
        the history.
        """
        if not logs or "loss" not in logs:
            return
        figures = self._step_figures(logs)
        state.log_history[-1].update(figures)
        if state.is_world_process_zero:
            self._write_history(state.log_history)
            self._watch(state.global_step, state.max_steps, figures)
        self._check_alarms(state.log_history)

    def _step_figures(self, logs: dict[str, object]) -> dict[str, float]:
        """Returns the numbers that trl logs, with duration and speed of the step."""
        now = time.monotonic()
        figures = {
            name: float(value) for name, value in logs.items() if isinstance(value, int | float)
        }
        figures["seconds"] = now - self._step_began
        if "tokens" in figures:
            figures["tokens_a_second"] = figures["tokens"] / max(figures["seconds"], 1e-9)
        if (busy := gpu_busy()) is not None:
            figures["gpu_busy"] = busy
        if (peak := peak_gpu_gigabytes()) is not None:
            figures["gpu_gigabytes"] = peak
        self._step_began = now
        return figures

    def _check_alarms(self, history: list[dict[str, float]]) -> None:
        """Raises TrainingAlarm if the last steps show a collapsed entropy or a worn-out log."""
        # A step without rows (all groups flat) has no meaningful entropy.
        entropies: list[float] = []
        sample_sizes: list[float] = []
        divergences: list[float] = []
        for entry in history:
            if entry.get("entropy") is None or entry.get("rows", 1.0) <= 0:
                continue
            entropies.append(float(entry["entropy"]))
            if SAMPLE_SIZE_METRIC in entry:
                sample_sizes.append(float(entry[SAMPLE_SIZE_METRIC]))
                divergences.append(float(entry[KL_METRIC]))
        check_entropy(entropies, self._limits)
        check_drift(sample_sizes, self._limits, divergences)

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: object,
    ) -> None:
        """Marks a new checkpoint as complete, in the first process, once all have written theirs."""
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            mark_whole(
                folder,
                self._run.subject,
                self._run.lineage(),
                seconds=self.seconds,
                step=state.global_step,
                **self._run.facts,
            )

    def _write_history(self, history: list[dict[str, Any]]) -> None:
        work = self._run.options.work
        beside = work / ".history.json.part"
        beside.write_text(json.dumps(history), encoding="utf-8")
        beside.replace(work / "history.json")


def peak_gpu_gigabytes() -> float | None:
    """Returns the peak of this process's tensors on its GPU in GB; None without a GPU."""
    import torch

    return torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None


def gpu_busy() -> float | None:
    """Returns the share of the last moment in which the GPU computed; None without a GPU or
    without a reading.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return torch.cuda.utilization() / 100
    except (ModuleNotFoundError, RuntimeError, OSError):
        return None
