"""The small policy that ships with the project: no GPU, no key, no download."""

from __future__ import annotations

from pathlib import Path

from kernelwright.policies.base import PolicyRefused, PromptForm, Trouble
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.policies.small.small_policy import open_local

EMBEDDED_WEIGHTS = Path(__file__).parents[1] / "weights"


def open_embedded(weights: Path = EMBEDDED_WEIGHTS, device: str = "auto") -> TransformersPolicy:
    """Opens the embedded policy: a Qwen3 model of about ten million parameters, prompted in the
    compact form.

    `auto` is the CPU, even beside a GPU: the answer is ready there before a GPU would have
    captured its graph, and the
    GPU stays free for the tools.
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
