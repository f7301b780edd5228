"""Losses over lists of labels and over alignments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.tracing.loops import over_steps

if TYPE_CHECKING:
    import torch


def loss_functions() -> dict[str, Any]:
    """Returns the functions of torch.nn.functional by their names."""
    return {f.__name__: f for f in (multilabel_margin_loss, multi_margin_loss, ctc_loss)}


def multilabel_margin_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """Writes the loss as a sum over pairs of a label and a class outside of the labels.

    torch's own decomposition (2.13) also counts the places after the first -1, which are no labels.
    """
    import torch
    from torch.nn._reduction import legacy_get_string

    if size_average is not None or reduce is not None:
        reduction = legacy_get_string(size_average, reduce)
    rows, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1], device=input.device)
    ended = torch.where(labels < 0, classes, rows.shape[1]).amin(-1, keepdim=True)
    is_label = classes < ended
    label_score = torch.gather(rows, -1, torch.where(is_label, labels, 0))
    equal = (labels.unsqueeze(-1) == classes) & is_label.unsqueeze(-1)
    is_target = equal.to(torch.int32).sum(1) > 0
    # [row, label, class]
    margin = 1.0 - label_score.unsqueeze(-1) + rows.unsqueeze(1)
    counted = is_label.unsqueeze(-1) & torch.logical_not(is_target).unsqueeze(1)
    positive = counted & (margin > 0)  # a NaN does not count in eager either
    losses = torch.where(positive, margin / rows.shape[1], 0.0).to(input.dtype).sum((1, 2))
    return _reduced(losses if target.dim() > 1 else losses.squeeze(0), reduction)


def multi_margin_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """Writes the loss as a sum over classes other than the target; NaN does not count, as in eager."""
    import torch
    from torch.nn._reduction import legacy_get_string

    if size_average is not None or reduce is not None:
        reduction = legacy_get_string(size_average, reduce)
    rows, labels = torch.atleast_2d(input), target.reshape(-1, 1)
    distance = margin - torch.gather(rows, 1, labels) + rows
    raised = distance if p == 1 else distance * distance
    weighted = raised if weight is None else raised * weight[labels]
    counted = (torch.arange(rows.shape[1], device=input.device) != labels) & (distance > 0)
    losses = torch.where(counted, weighted / rows.shape[1], 0.0).to(input.dtype).sum(1)
    return _reduced(losses if input.dim() > 1 else losses.squeeze(0), reduction)


def _reduced(losses: torch.Tensor, reduction: str) -> Any:
    return losses if reduction == "none" else getattr(losses, reduction)()


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor | Sequence[int],
    target_lengths: torch.Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Writes `torch.nn.functional.ctc_loss` as the forward recursion over log probabilities, a
    loop over time.

    log_probs is (time, batch, classes) or (time, classes). Raises DraftRefused for concatenated
    targets.
    """
    import torch

    batched = log_probs.dim() == 3
    if targets.dim() != (2 if batched else 1):
        raise DraftRefused(
            "ctc_loss of concatenated targets has no kernel", advice="pad them to (batch, length)"
        )
    probabilities = log_probs if batched else log_probs.unsqueeze(1)
    labels = targets if batched else targets.unsqueeze(0)
    ends, lengths = (_lengths(v, probabilities) for v in (input_lengths, target_lengths))
    losses = -_alignment_log_probability(probabilities, labels, ends, lengths, blank)
    if zero_infinity:
        losses = torch.where(losses == math.inf, 0.0, losses).to(log_probs.dtype)
    if reduction == "mean":
        return (losses / lengths.clamp(min=1).to(losses.dtype)).mean()
    return _reduced(losses if batched else losses.squeeze(0), reduction)


def _lengths(lengths: torch.Tensor | Sequence[int], log_probs: torch.Tensor) -> Any:
    import torch

    tensor = (
        lengths
        if isinstance(lengths, torch.Tensor)
        else torch.tensor(lengths, device=log_probs.device)
    )
    return tensor.to(torch.int64).reshape(-1)


def _alignment_log_probability(
    log_probs: torch.Tensor,
    labels: torch.Tensor,
    ends: torch.Tensor,
    lengths: torch.Tensor,
    blank: int,
) -> Any:
    """Returns the log probability of the labels of each sequence of a batch, over all alignments.

    The states of a sequence are its labels with a blank before, between and after them.
    """
    import torch

    states = 2 * labels.shape[1] + 1
    state = torch.arange(states, device=labels.device)
    is_label = state % 2 == 1
    at_label = torch.where(is_label, state // 2, 0).expand(labels.shape[0], states)
    symbol = torch.where(is_label, torch.gather(labels, 1, at_label), blank).to(torch.int64)
    # A label may be reached from two states before if a blank lies between and the labels differ.
    two_before = torch.gather(symbol, 1, (state - 2).clamp(min=0).expand(labels.shape[0], states))
    may_skip = is_label & (state > 1) & (symbol != two_before)

    def emitted(time: int) -> Any:
        return torch.gather(log_probs[time], 1, symbol)

    def shifted(alpha: torch.Tensor, by: int) -> Any:
        before = torch.gather(alpha, 1, (state - by).clamp(min=0).expand(labels.shape[0], states))
        return torch.where(state >= by, before, -math.inf)

    def step(time: int, carried: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        alpha = carried["alpha"]
        skipped = torch.where(may_skip, shifted(alpha, 2), -math.inf)
        reached = _log_add(_log_add(alpha, shifted(alpha, 1)), skipped) + emitted(time)
        return {"alpha": torch.where((ends > time)[:, None], reached, alpha).to(alpha.dtype)}, {}

    # All probability is in the first state before time 0, so that the first step reaches the first two.
    start = (
        torch.where(state == 0, 0.0, -math.inf)
        .to(log_probs.dtype)
        .expand(labels.shape[0], states)
        .contiguous()
    )
    alpha = over_steps(step, log_probs.shape[0], {"alpha": start})[0]["alpha"]
    # An alignment ends in the last label, or in the blank after it.
    last_blank = torch.gather(alpha, 1, 2 * lengths[:, None]).squeeze(1)
    last_label = torch.gather(alpha, 1, (2 * lengths - 1).clamp(min=0)[:, None]).squeeze(1)
    return _log_add(last_blank, torch.where(lengths > 0, last_label, -math.inf)).to(log_probs.dtype)


def _log_add(left: torch.Tensor, right: torch.Tensor) -> Any:
    """Returns log(exp(left) + exp(right)); -inf if both are -inf."""
    import torch

    largest = torch.maximum(left, right)
    shift = torch.where(largest == -math.inf, 0.0, largest)
    return torch.log(torch.exp(left - shift) + torch.exp(right - shift)) + shift
