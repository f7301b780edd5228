"""Trains the stand-in for the embedded policy: `python -m bench.train_standin [--drafts-only] [--out DIR]`.

A Qwen3 of about 1.5 M parameters that has memorised some of this repository's own kernels. It stands in until a policy is trained that generalises.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from pathlib import Path
from typing import Any

from bench.standin_corpus import NAMES, Pair, drafts, repairs

OUT = Path(__file__).parents[1] / "policies" / "weights"
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY, CONTEXT = 4096, 4096
RATE, BATCH = 3e-3, 8


def tokenizer_of(pairs: list[Pair]) -> Any:
    """Byte-level BPE over whole lines: a frequent line of Triton is one token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    lines = pre_tokenizers.Split(Regex(r"[^\n]*\n|[^\n]+"), "isolated")
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [lines, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([text for pair in pairs for text in (pair.prompt, pair.answer)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<|pad|>", eos_token="<|im_end|>", padding_side="left", chat_template=TEMPLATE
    )


def model_of(tokenizer: Any) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=CONTEXT, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, initializer_range=0.05,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def other_sizes(prompt: str, dice: random.Random) -> str:
    """The same reference at other sizes: the answer does not depend on them."""
    return re.sub(
        r"^(\w+ = )\d+$", lambda m: f"{m[1]}{2 ** dice.randint(3, 15) + dice.choice((0, 0, 3))}", prompt, flags=re.M
    )


def encoded(tokenizer: Any, pair: Pair) -> tuple[list[int], int]:
    """Token ids of prompt and answer, and how many of them are prompt."""
    asked = [{"role": "user", "content": pair.prompt}]
    prompt = list(tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=True, return_dict=False))
    return prompt + tokenizer.encode(pair.answer) + [tokenizer.eos_token_id], len(prompt)


def train(model: Any, tokenizer: Any, pairs: list[Pair], seconds: float) -> float:
    """Until the answers are known by heart or the time is up. Gives the last loss, nats a token."""
    import torch

    dice, model, started, step = random.Random(0), model.train(), time.monotonic(), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    recent = 9.0
    while (share := (time.monotonic() - started) / seconds) < 1.0 and recent > 2e-4:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 30) * (0.5 + 0.5 * math.cos(math.pi * share))
        chosen = sorted(dice.choices(pairs, k=BATCH), key=lambda p: len(p.prompt))
        rows = [
            encoded(tokenizer, Pair(other_sizes(p.prompt, dice) if dice.random() < 0.5 else p.prompt, p.answer))
            for p in chosen
        ]
        loss = model(**_tensors(rows, tokenizer.pad_token_id)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent, step = 0.95 * recent + 0.05 * float(loss.detach()), step + 1
        if step % 50 == 0:
            print(f"step {step}, {time.monotonic() - started:.0f} s, loss {recent:.4f}", flush=True)
    return recent


def _tensors(rows: list[tuple[list[int], int]], pad: int) -> dict[str, Any]:
    import torch

    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), pad)
    labels, mask = torch.full((len(rows), width), -100), torch.zeros((len(rows), width), dtype=torch.long)
    for row, (tokens, prompt) in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, prompt : len(tokens)] = torch.tensor(tokens[prompt:])
        mask[row, : len(tokens)] = 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


def save(model: Any, tokenizer: Any, out: Path, facts: dict[str, Any]) -> None:
    import torch

    model.eval().to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    notes = {"prompt_form": "compact", "stand_in": True, **facts}
    (out / "kernelwright.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--cache", type=Path, default=Path("/tmp/standin-verdicts"), help="verdicts on broken kernels")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--drafts-only", action="store_true")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    mended = [] if asked.drafts_only else repairs(asked.cache)
    # Drafts weigh as much as repairs do.
    first = drafts()
    pairs = first * max(1, len(mended) // len(first)) + mended
    tokenizer = tokenizer_of(pairs)
    model = model_of(tokenizer)
    parameters = sum(p.numel() for p in model.parameters())
    lengths = [len(encoded(tokenizer, pair)[0]) for pair in pairs]
    print(
        f"{parameters:,} parameters, {len(pairs)} pairs, {sum(lengths) / len(lengths):.0f} tokens a pair, {max(lengths)} at most"
    )
    loss = train(model, tokenizer, pairs, asked.seconds)
    save(
        model,
        tokenizer,
        asked.out,
        {"parameters": parameters, "loss": round(loss, 6), "kernels": list(NAMES), "repairs": len(mended)},
    )


if __name__ == "__main__":
    main()
