"""The small policy that ships with the project: no GPU, no key, no download."""

from __future__ import annotations

from pathlib import Path

from kernelwright.policies.base import PolicyRefused, PromptForm, Trouble
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.policies.small.small_policy import open_local

EMBEDDED_WEIGHTS = Path(__file__).parents[1] / "weights"


def open_embedded(weights: Path = EMBEDDED_WEIGHTS, device: str = "auto") -> TransformersPolicy:
    """A Qwen3 of some ten million parameters with a tokenizer of its own, asked in the compact form.

    `auto` is the CPU, also where there is a GPU: it answers there before a GPU would have captured its graph, and
    leaves the GPU to the tools.
    """
    if not (weights / "config.json").is_file() or not list(weights.glob("*.safetensors")):
        raise PolicyRefused(
            f"no embedded policy ships with this build ({weights} holds no weights): "
            "train one with `rl sft`, or name another with --policy",
            Trouble.MODEL,
        )
    return open_local(
        str(weights),
        device="cpu" if device == "auto" else device,
        name="embedded",
        prompt_form=PromptForm.COMPACT,
    )
