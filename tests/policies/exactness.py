"""The yardstick for logged log-probs: one plain forward pass, without cache, padding or batch."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.policies.base import Completion


def teacher_forced(
    folder: Path, completion: Completion, temperature: float = 1.0, adapter: Path | None = None
) -> list[float]:
    """log softmax(logits / temperature) of each drawn token, given the prompt's ids and those before it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(adapter)).eval()
    prompt, drawn = list(completion.prompt_token_ids or ()), list(completion.token_ids or ())
    with torch.no_grad():
        logits = model(torch.tensor([prompt + drawn])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(drawn)[:, None])[:, 0].tolist()
