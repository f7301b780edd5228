"""Packed copies of weights, with which vLLM multiplies on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def pack_again(model: torch.nn.Module) -> None:
    """Packs the weights of a CPU model again after a reload.

    The copy of a head that shares the embedding's weights is in no file and stays the old one. Seen
    in vLLM 0.32: after `reload_weights` log-probs were wrong by up to 0.1.
    """
    for module in model.modules():
        weight, method = getattr(module, "weight", None), getattr(module, "quant_method", None)
        if (
            hasattr(module, "cpu_linear")
            and method is not None
            and weight is not None
            and weight.numel()
        ):
            method.process_weights_after_loading(module)
