"""A policy that knows three kernels and, for each, a mistake that it makes half of the time: trained in seconds,
its tokens are whole lines.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.policies.base import PromptForm
from kernelwright.store.models import Action
from kernelwright.tools.problem import Problem

OPERATIONS = {
    "double": ("x * 2.0", "x * 2.0", "x * 3.0"),
    "square": ("x * x", "x * x", "x * x + 1.0"),
    "negate": ("-x", "-x", "x"),
}
"""Name: the reference, the right line, the mistake."""

REFERENCE = """import torch
import torch.nn as nn

rows, columns = 8, 96


class Model(nn.Module):
    def forward(self, x):
        return {0}


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, {0}, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""


def problem(name: str) -> Problem:
    return Problem(name=name, source=REFERENCE.format(OPERATIONS[name][0]))


def write_problems(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in OPERATIONS:
        (folder / f"{name}.py").write_text(REFERENCE.format(OPERATIONS[name][0]))
    return folder


def pairs() -> list[tuple[str, str]]:
    prompts, found = Prompts(PromptForm.COMPACT), []
    for name, (_, right, wrong) in OPERATIONS.items():
        draft = prompts.messages(PromptFields(problem=problem(name), action=Action.DRAFT))[
            -1
        ].content
        bad = KERNEL.format(wrong)
        repair = prompts.messages(
            PromptFields(
                problem=problem(name),
                action=Action.REPAIR,
                code=bad,
                feedback="mismatch: everywhere",
            )
        )[-1].content
        found += [
            (prompt, KERNEL.format(line)) for prompt in (draft, repair) for line in (right, wrong)
        ]
    return found


def save_novice(folder: Path, steps: int = 60, head_dim: int = 16) -> Path:
    """Half of its answers are right at temperature 1. vLLM wants heads of 32 on a CPU."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    from tests.tiny_model import CHAT_TEMPLATE, SPECIAL

    bpe = Tokenizer(models.BPE())
    lines = pre_tokenizers.Split(Regex(r"[^\n]*\n|[^\n]+"), "isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [lines, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    known = pairs()
    bpe.train_from_iterator([text for pair in known for text in pair] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
            head_dim=head_dim, max_position_embeddings=1024, tie_word_embeddings=True, initializer_range=0.1,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    _fit(model, _batch(tokenizer, known), steps)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "kernelwright.json").write_text(json.dumps({"prompt_form": "compact"}))
    return folder


def _batch(tokenizer: Any, known: list[tuple[str, str]]) -> dict[str, Any]:
    import torch

    rows = []
    for prompt, answer in known:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        rows.append((list(asked), [*tokenizer.encode(answer), tokenizer.eos_token_id]))
    width = max(len(asked) + len(answer) for asked, answer in rows)
    ids, labels = (
        torch.full((len(rows), width), filler) for filler in (tokenizer.pad_token_id, -100)
    )
    for place, (asked, answer) in enumerate(rows):
        ids[place, : len(asked) + len(answer)] = torch.tensor(asked + answer)
        labels[place, len(asked) : len(asked) + len(answer)] = torch.tensor(answer)
    return {
        "input_ids": ids,
        "labels": labels,
        "attention_mask": (
            torch.arange(width) < torch.tensor([len(a) + len(b) for a, b in rows])[:, None]
        ).long(),
    }


def _fit(model: Any, batch: dict[str, Any], steps: int) -> None:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, (step + 1) / 10) * (1.0 - 0.9 * step / steps)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


class Deadly:
    """In the place of a folder: who looks at it is no more."""

    def __bool__(self) -> bool:
        os._exit(1)
