"""Left padding that cannot spoil a gradient.

A padded column attends to nothing: its softmax is over no column at all. On an H200 (torch 2.11,
SDPA) one batch shape in dozens had a finite loss and NaN in every gradient: the loss ignores
padding, but its gradient is zero times the padded output. Therefore each column attends at least
to itself. The attention of other columns does not change, and neither does the loss.

    mask 0 1 1  ->  column 0 sees 0 (itself); column 1 sees 1; column 2 sees 1 and 2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kernelwright.policies.local.continuous_batch import can_batch_model

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

DENSE_ATTENTIONS = frozenset({"sdpa", "eager"})
"""Attention implementations with a mask over pairs of columns; the others (flash) leave out
padding themselves.
"""


def visible_pairs(mask: torch.Tensor) -> torch.Tensor:
    """Converts a mask (rows, columns) of ones and zeros to (rows, 1, columns, columns): True if a
    column attends to another, that is to itself and to earlier columns without padding.
    """
    columns = mask.shape[1]
    # Lower triangle: a column sees itself and earlier columns; padding is visible to itself
    # alone.
    causal = torch.ones((columns, columns), dtype=torch.bool, device=mask.device).tril()
    diagonal = torch.eye(columns, dtype=torch.bool, device=mask.device)
    return ((causal & mask.bool()[:, None, :]) | diagonal)[:, None]


def without_adapter(model: Any) -> Any:
    """Returns the model of transformers inside of a PeftModel; any other model as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def unmask_padding(model: PreTrainedModel) -> RemovableHandle | None:
    """Widens the mask in every forward pass of the model's decoder. Returns the hook's handle, or
    None for an unsupported attention.

    model: a causal language model of transformers, or a PeftModel around one.
    """
    inner = without_adapter(model)
    if not can_batch_model(inner):
        return None

    def widened(
        _: torch.nn.Module, args: tuple[object, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[object, ...], dict[str, Any]] | None:
        """Returns the decoder's arguments with a widened mask; None leaves them unchanged."""
        attention, mask = inner.config._attn_implementation, keywords.get("attention_mask")
        if attention not in DENSE_ATTENTIONS or mask is None:
            return None
        if mask.dim() != 2 or bool(mask.all()):
            return None
        visible = visible_pairs(mask)
        if attention == "eager":
            # Eager attention adds the mask to the scores.
            lowest = torch.finfo(inner.dtype).min
            visible = torch.where(visible, 0.0, lowest).to(inner.dtype)
        return args, {**keywords, "attention_mask": visible}

    handle: RemovableHandle = inner.get_decoder().register_forward_pre_hook(
        widened, with_kwargs=True
    )
    return handle
