"""Watches a training: marks complete checkpoints, checks alarms and the time limit, handles Ctrl-C, and reports
figures.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from kernelwright.rl.training.checkpoints import mark_whole
from kernelwright.rl.training.grpo.drift import KL_METRIC, SAMPLE_SIZE_METRIC
from kernelwright.rl.training.processes import any_process_says
from kernelwright.rl.training.safety.alarms import AlarmBounds, check_drift, check_entropy
from kernelwright.rl.training.subject import Subject

Watch = Callable[[int, int, dict[str, float]], None]
"""Step, steps in all, figures by name."""


def ignore_step(step: int, steps: int, figures: dict[str, float]) -> None:
    """Does nothing at a step: the `Watch` of a training that reports to nobody."""


class TrainingWatcher(TrainerCallback):
    """Watches one training of any method."""

    def __init__(
        self, subject: Subject, work: Path, watch: Watch, limits: AlarmBounds, *, max_minutes: float | None,
        earlier: float = 0.0,
        lineage: Callable[[], tuple[str, ...]] = tuple, facts: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """`earlier`: seconds that the same training has run before. `lineage`: revisions since the subject's own."""
        self._subject, self._work, self._watch, self._limits = subject, work, watch, limits
        self._budget = None if max_minutes is None else max_minutes * 60
        self._lineage, self._facts, self._earlier = lineage, facts or {}, earlier
        self._started = self._step_began = time.monotonic()
        self.interrupted = False
        self.paused = False
        """The time of this sitting is up, and there is more to do."""

    @property
    def seconds(self) -> float:
        """Seconds of training, those of earlier sittings among them."""
        return self._earlier + time.monotonic() - self._started

    def interrupt(self) -> None:
        """Has it save and stop at the end of the step."""
        self.interrupted = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Starts the clocks of this sitting and of its first step."""
        self._started = self._step_began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Saves and stops after this step where the time is up or the user interrupted, in every process at once."""
        spent = time.monotonic() - self._started
        if (
            self._budget is not None
            and spent >= self._budget
            and state.global_step < state.max_steps
        ):
            self.paused = True
        self.interrupted, self.paused = any_process_says(self.interrupted, self.paused)
        if self.interrupted or self.paused:
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Adds seconds, tokens a second and the GPU's share of busy time to a step's figures, and keeps the history."""
        if not logs or "loss" not in logs:
            return
        now = time.monotonic()
        figures = {
            name: float(value) for name, value in logs.items() if isinstance(value, int | float)
        }
        figures["seconds"] = now - self._step_began
        if "tokens" in figures:
            figures["tokens_a_second"] = figures["tokens"] / max(figures["seconds"], 1e-9)
        if (busy := gpu_busy()) is not None:
            figures["gpu_busy"] = busy
        self._step_began = now
        state.log_history[-1].update(figures)
        if state.is_world_process_zero:
            self._write_history(state.log_history)
            self._watch(state.global_step, state.max_steps, figures)
        # A step without a row, all of its groups being flat, has no entropy to speak of.
        told = [
            e for e in state.log_history if e.get("entropy") is not None and e.get("rows", 1.0) > 0
        ]
        check_entropy([float(entry["entropy"]) for entry in told], self._limits)
        drifted = [entry for entry in told if SAMPLE_SIZE_METRIC in entry]
        check_drift(
            [float(entry[SAMPLE_SIZE_METRIC]) for entry in drifted],
            self._limits,
            [float(entry[KL_METRIC]) for entry in drifted],
        )

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Marks the checkpoint that was just written as whole, in the one process that writes."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            mark_whole(
                folder,
                self._subject,
                self._lineage(),
                seconds=self.seconds,
                step=state.global_step,
                **self._facts,
            )

    def _write_history(self, history: list[dict[str, Any]]) -> None:
        beside = self._work / ".history.json.part"
        beside.write_text(json.dumps(history), encoding="utf-8")
        beside.replace(self._work / "history.json")


def gpu_busy() -> float | None:
    """Share of the last moment in which the GPU computed; None where there is none or it is not told."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return torch.cuda.utilization() / 100
    except (ModuleNotFoundError, RuntimeError, OSError):
        return None
