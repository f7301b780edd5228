"""One policy out of several that were trained from the same one: the mean of their weights.

What trainings with different seeds learned in common stays, what chance moved each by is divided by their number (model
soups: Wortsman et al. 2022, arXiv:2203.05482; of policies after reinforcement learning: Ramé et al. 2024,
arXiv:2406.16768).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.checkpoints import refuse_existing_output, write_policy
from kernelwright.rl.training.options import Storage
from kernelwright.rl.training.subject import Subject, load_weights, open_subject, parameters


class AveragingResult(Value):
    """The folder that was written, with the figures of the average."""

    output: str
    policies: tuple[str, ...]
    parameters: int
    ancestor: str | None
    """The last revision that all of them were trained from."""
    distances: tuple[float, ...]
    """The distance of each from the mean: the norm of the difference of all weights."""


def average_policies(
    policies: Sequence[str],
    output: Path,
    *,
    storage: Storage = Storage.FP32,
    force: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> AveragingResult:
    """Writes the mean of the policies' weights, as a policy that `--policy transformers:OUTPUT` loads.

    Two policies' weights are in memory at a time. Raises InputError where they are not of one shape and tokenizer, or
    (unless `force`) were not trained from one policy.
    """
    if len(policies) < 2:
        raise InputError("give two policies or more: the mean of one is itself")
    refuse_existing_output(output)
    subjects = [open_subject(policy) for policy in policies]
    common = _common(subjects, force)
    model, mean = _mean(subjects, say)
    distances = tuple(_distance(_weights(subject), mean) for subject in subjects)
    whole = {name: value.float() for name, value in mean.items()}
    averaged = [{"policy": s.name, "revision": s.revision, "step": s.card.step} for s in subjects]
    first = subjects[0]._replace(lineage=common)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_policy(output, model, whole, first, storage, averaged=averaged)
    ancestor = common[-1] if common else None
    return AveragingResult(
        output=str(output), policies=tuple(policies), parameters=parameters(model), ancestor=ancestor,
        distances=distances,
    )  # fmt: skip


def _common(subjects: Sequence[Subject], force: bool) -> tuple[str, ...]:
    """The revisions that all were trained from, the oldest first. Raises InputError."""
    first = subjects[0]
    for subject in subjects[1:]:
        if subject.identity != first.identity:
            raise InputError(
                f"{subject.name} has another tokenizer or chat template than {first.name}: choose policies of one base"
            )
    shared = takewhile(
        lambda revisions: len(set(revisions)) == 1,
        zip(*(s.lineage for s in subjects), strict=False),
    )
    common = tuple(revisions[0] for revisions in shared)
    if not common and not force:
        raise InputError(
            f"{first.name} and the others were not trained from one policy, as far as their notes say: the "
            "mean of their weights would be noise (--force averages them all the same)"
        )
    return common


def _mean(subjects: Sequence[Subject], say: Callable[[str], None]) -> tuple[Any, dict[str, Any]]:
    """Returns a model to write with, and the mean of the weights in float64."""
    import torch

    total: dict[str, Any] = {}
    for subject in subjects:
        say(f"reading {subject.name}")
        model = load_weights(subject, "cpu", lora=False)
        weights = dict(model.named_parameters())
        if total and {n: v.shape for n, v in weights.items()} != {
            n: v.shape for n, v in total.items()
        }:
            raise InputError(
                f"{subject.name} has weights of other names or shapes than {subjects[0].name}"
            )
        total = {
            name: value.detach().to(torch.float64) + total.get(name, 0.0)
            for name, value in weights.items()
        }
    return model, {name: value / len(subjects) for name, value in total.items()}


def _weights(subject: Subject) -> dict[str, Any]:
    found: dict[str, Any] = dict(load_weights(subject, "cpu", lora=False).named_parameters())
    return found


def _distance(weights: dict[str, Any], mean: dict[str, Any]) -> float:
    return float(
        sum(
            ((weights[name].detach().double() - value) ** 2).sum().item()
            for name, value in mean.items()
        )
        ** 0.5
    )
