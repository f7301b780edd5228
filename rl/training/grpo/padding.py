"""Left padding that cannot spoil a gradient.

A padded column sees nothing: its attention is a softmax over no column at all. On an H200 (torch 2.11, SDPA) one batch
shape in dozens had a finite loss and NaN in
every gradient: the loss does not look at padding, but its gradient is zero times what comes out there. So a column that
would see nothing sees itself; what the others see stays as it is, and so does the loss.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.policies.local.continuous_batch import can_batch_model

DENSE_ATTENTIONS = frozenset({"sdpa", "eager"})
"""Attention that is given a mask over pairs of columns; the others (flash) leave padding out themselves."""


def visible_pairs(mask: torch.Tensor) -> torch.Tensor:
    """(rows, columns) of ones and zeros -> (rows, 1, columns, columns), True where a column is seen: itself and
    what was before it, no padding of others.
    """
    columns = mask.shape[1]
    causal = torch.ones((columns, columns), dtype=torch.bool, device=mask.device).tril()
    own = torch.eye(columns, dtype=torch.bool, device=mask.device)
    return ((causal & mask.bool()[:, None, :]) | own)[:, None]


def unmask_padding(model: Any) -> Any:
    """Every forward pass of the model's decoder from now on; gives the hook's handle, or None where the attention is
    not of the kind.

    model: a causal language model of transformers, or a PeftModel round one.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not can_batch_model(inner):
        return None

    def widened(
        _: Any, args: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        mask = given.get("attention_mask")
        if (
            inner.config._attn_implementation not in DENSE_ATTENTIONS
            or mask is None
            or mask.dim() != 2
            or bool(mask.all())
        ):
            return None
        seen = visible_pairs(mask)
        if inner.config._attn_implementation == "eager":  # adds the mask to the scores
            lowest = torch.finfo(inner.dtype).min
            seen = torch.where(seen, 0.0, lowest).to(inner.dtype)
        return args, {**given, "attention_mask": seen}

    return inner.get_decoder().register_forward_pre_hook(widened, with_kwargs=True)
