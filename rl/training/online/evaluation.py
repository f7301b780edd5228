"""Measures the policy in training on held-out problems every N steps, and keeps the weights of the
best measurement (`--evaluate-every`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.policies.base import Value
from kernelwright.rl.training.online.measuring import HeldOutFigures, measure
from kernelwright.rl.training.online.rounds import Rounds
from kernelwright.rl.training.processes import ProcessRank, gather_from_all
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    import torch

BEST_WEIGHTS = "best.safetensors"
EVALUATIONS = "evaluations.json"
"""All evaluations so far, in the training's work folder."""
Weights = Callable[[], "dict[str, torch.Tensor]"]
"""Returns the trained weights, complete in the first process. All processes must call it."""


class HeldOutEvaluation(Value):
    """The figures of a policy after a number of optimizer steps."""

    step: int
    pass_at_1: float
    """Mean over the splits."""
    by_split: dict[str, float]

    @property
    def figures(self) -> dict[str, float]:
        """Figures logged beside the loss of the next step."""
        named = {f"held_out/{split}": value for split, value in self.by_split.items()}
        return {"held_out/pass_at_1": self.pass_at_1, **named}


class Evaluations:
    """The evaluations of a training: when they are due, their figures, and the best one's weights."""

    def __init__(
        self,
        every: int,
        samples: int,
        splits: Mapping[str, Sequence[Problem]],
        work: Path,
        process: ProcessRank,
        weights: Weights,
    ) -> None:
        """Continues the evaluations of `work`.

        every: optimizer steps from one to the next. samples: drafts of each problem.
        """
        self._every = every
        self._samples = samples
        self._splits = splits
        self._work = work
        self._process = process
        self._weights = weights
        self._done = read_evaluations(work)

    def is_due(self, step: int) -> bool:
        """Returns whether the policy after `step` steps is to be measured, and has not been."""
        evaluated_steps = {evaluation.step for evaluation in self._done}
        return step % self._every == 0 and step not in evaluated_steps

    def evaluate(self, step: int, rounds: Rounds) -> HeldOutEvaluation:
        """Measures the policy of `rounds`, and keeps the weights if it is the best so far. All
        processes must call this; each samples its share of the problems.
        """
        shares = gather_from_all(self._process, lambda: self._measure(step, rounds))
        by_split = {split: _mean([share[split] for share in shares]) for split in self._splits}
        evaluation = HeldOutEvaluation(
            step=step,
            pass_at_1=sum(by_split.values()) / len(by_split),
            by_split=by_split,
        )
        best = best_evaluation(self._done)
        self._done = (*self._done, evaluation)
        if best is None or evaluation.pass_at_1 > best.pass_at_1:
            self._keep_weights()
        if self._process.first:
            text = json.dumps([done.model_dump() for done in self._done], indent=2)
            _replace(self._work / EVALUATIONS, lambda path: path.write_text(text, "utf-8"))
        return evaluation

    def _measure(self, step: int, rounds: Rounds) -> dict[str, HeldOutFigures]:
        # Each evaluation draws with the seeds of the others: only the weights differ.
        measured = measure(rounds, self._splits, self._samples, label=f"evaluation-{step:05d}")
        return {figures.split: figures for figures in measured}

    def _keep_weights(self) -> None:
        from safetensors.torch import save_file

        weights = self._weights()
        if not self._process.first:
            return
        # safetensors refuses two names of one tensor, as tied weights are.
        stored = {name: weight.detach().clone().contiguous() for name, weight in weights.items()}
        _replace(self._work / BEST_WEIGHTS, lambda path: save_file(stored, path))


def _mean(shares: Sequence[HeldOutFigures]) -> float:
    """Returns pass@1 over the problems of all processes."""
    by_problem = [value for share in shares for value in share.by_problem.values()]
    return sum(by_problem) / len(by_problem) if by_problem else 0.0


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file beside `path`, then renames it: a reader sees the old or the new one."""
    partial = path.with_name(f".{path.name}.part")
    write(partial)
    partial.replace(path)


def read_evaluations(work: Path) -> tuple[HeldOutEvaluation, ...]:
    """Returns the evaluations of a training so far, the oldest first."""
    path = work / EVALUATIONS
    if not path.is_file():
        return ()
    entries = json.loads(path.read_text(encoding="utf-8"))
    return tuple(HeldOutEvaluation.model_validate(entry) for entry in entries)


def best_evaluation(done: Sequence[HeldOutEvaluation]) -> HeldOutEvaluation | None:
    """Returns the evaluation with the highest pass@1, of equal ones the first."""
    return max(done, key=lambda evaluation: evaluation.pass_at_1, default=None)


def best_weights(work: Path) -> dict[str, torch.Tensor] | None:
    """Returns the weights of the best evaluation; None without evaluations."""
    from safetensors.torch import load_file

    path = work / BEST_WEIGHTS
    return load_file(path) if path.is_file() else None
