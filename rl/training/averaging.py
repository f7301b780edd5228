"""Averages the weights of several policies with a common ancestor.

The mean keeps the changes common to all trainings and divides each random change by the number of
policies (model soups: Wortsman et al. 2022, arXiv:2203.05482; policies after reinforcement
learning: Ramé et al. 2024, arXiv:2406.16768).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.checkpoints import refuse_existing_output, write_policy
from kernelwright.rl.training.options import Storage
from kernelwright.rl.training.subject import Subject, load_weights, open_subject, parameters

if TYPE_CHECKING:
    import torch


class AveragingResult(Value):
    """Output folder and figures of an average of policies."""

    output: str
    policies: tuple[str, ...]
    parameters: int
    ancestor: str | None
    """The last revision in the lineage of every policy."""
    distances: tuple[float, ...]
    """Distance of each policy from the mean: the Euclidean norm of the difference of all weights.
    """


def average_policies(
    policies: Sequence[str],
    output: Path,
    *,
    storage: Storage = Storage.FP32,
    force: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> AveragingResult:
    """Writes the mean of the policies' weights, as a policy loaded by `--policy
    transformers:OUTPUT`.

    Two policies' weights are in memory at a time. Raises InputError if shapes or tokenizers
    differ, or (unless `force`) if the policies have no common ancestor.
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
        output=str(output),
        policies=tuple(policies),
        parameters=parameters(model),
        ancestor=ancestor,
        distances=distances,
    )


def _common(subjects: Sequence[Subject], force: bool) -> tuple[str, ...]:
    """Returns the revisions common to all lineages, the oldest first. Raises InputError."""
    first = subjects[0]
    for subject in subjects[1:]:
        if subject.identity != first.identity:
            raise InputError(
                f"{subject.name} has another tokenizer or chat template than {first.name}: choose policies of one base"
            )
    by_age = zip(*(subject.lineage for subject in subjects), strict=False)
    shared = takewhile(lambda revisions: len(set(revisions)) == 1, by_age)
    common = tuple(revisions[0] for revisions in shared)
    if not common and not force:
        raise InputError(
            f"{first.name} and the others were not trained from one policy, as far as their notes say: the "
            "mean of their weights would be noise (--force averages them all the same)"
        )
    return common


def _mean(
    subjects: Sequence[Subject], say: Callable[[str], None]
) -> tuple[Any, dict[str, torch.Tensor]]:
    """Returns a model for writing, and the mean of the weights in float64."""
    import torch

    total: dict[str, torch.Tensor] = {}
    for subject in subjects:
        say(f"reading {subject.name}")
        model = load_weights(subject, "cpu", lora=False)
        weights: dict[str, torch.Tensor] = dict(model.named_parameters())
        if total and _shapes(weights) != _shapes(total):
            raise InputError(
                f"{subject.name} has weights of other names or shapes than {subjects[0].name}"
            )
        # Summed in float64: the order of the policies must not matter.
        for name, weight in weights.items():
            total[name] = weight.detach().to(torch.float64) + total.get(name, 0.0)
    mean = {name: weight / len(subjects) for name, weight in total.items()}
    return model, mean


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}


def _weights(subject: Subject) -> dict[str, torch.Tensor]:
    return dict(load_weights(subject, "cpu", lora=False).named_parameters())


def _distance(weights: dict[str, torch.Tensor], mean: dict[str, torch.Tensor]) -> float:
    squares = 0.0
    for name, average in mean.items():
        squares += ((weights[name].detach().double() - average) ** 2).sum().item()
    return float(squares**0.5)
