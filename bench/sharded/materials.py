"""A Qwen3-shaped model of random weights, a corpus of full-length rows, and a log that it wrote."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = "x = tl.load(x_ptr + offsets, mask=mask, other=0.0)\n"
REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.{}(x)\n"
    "def get_inputs():\n    return [torch.rand(8)]\ndef get_init_inputs():\n    return []\n"
)


class Shape(NamedTuple):
    """A model and the lengths of its rows, in tokens."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    row_tokens: int
    """Tokens of a row of the corpus, at most."""
    prompt_tokens: int
    reply_tokens: int


SHAPES = {
    # Qwen3-0.6B's own widths: 0.60 B parameters.
    "0.6b": Shape(1024, 3072, 28, 16, 8, 151_936, 2048, 512, 512),
    "tiny": Shape(64, 128, 2, 4, 2, 512, 256, 64, 24),
}


def save_model(folder: Path, shape: Shape) -> None:
    """Writes the model in bf16, with a tokenizer of a token a byte and names for all other ids."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = byte_tokenizer(shape.vocabulary)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=128 if shape.hidden >= 1024 else 32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=torch.bfloat16,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def byte_tokenizer(vocabulary: int) -> Any:
    """Returns a tokenizer whose text is bytes; ids beyond them decode to names of their own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names = known + [f"t{number}" for number in range(vocabulary - len(known))]
    bpe = Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


def save_corpus(folder: Path, shape: Shape, rows: int) -> None:
    """Writes rows of 90 to 99 % of the longest length."""
    from kernelwright.rl.data.rows import Kind, row_of, write_rows

    dice = random.Random(0)
    corpus = []
    for number in range(rows):
        length = int(shape.row_tokens * dice.uniform(0.90, 0.99)) - 60
        text = f"# {number}\n" + TEXT * (length // len(TEXT) + 1)
        prompt = text[: length // 4]
        corpus.append(row_of(Kind.INSTRUCT, prompt, text[length // 4 : length], correct=True))
    write_rows(folder, corpus)


def save_log(path: Path, model: Path, shape: Shape, device: str) -> None:
    """Writes a log of four problems by sixteen replies, sampled from the model; a reply whose ids
    add up to an even number counts as right.
    """
    from kernelwright.policies.base import Message, Request, Role, Sampling
    from kernelwright.policies.local.in_process_policy import InProcessPolicy
    from kernelwright.store.database import Store
    from kernelwright.store.models import Action
    from kernelwright.store.records import TrajectoryStart
    from kernelwright.tools.problem import Problem
    from tests.rl.logged import verdict

    policy = InProcessPolicy(str(model), device=device, places=64)
    asked = []
    for problem in range(4):
        text = f"{problem} " + TEXT * (shape.prompt_tokens // len(TEXT) + 1)
        message = Message(role=Role.USER, content=text[: shape.prompt_tokens])
        for seed in range(16):
            sampling = Sampling(max_tokens=shape.reply_tokens, seed=100 * problem + seed)
            asked.append((problem, seed, Request(messages=(message,), sampling=sampling)))
    answers = policy.sample([request for _, _, request in asked])
    policy.close()
    with Store.open(path) as store:
        for (problem, seed, request), answer in zip(asked, answers, strict=True):
            named = Problem(
                name=f"p{problem}", source=REFERENCE.format(("sin", "cos", "exp", "abs")[problem])
            )
            start = TrajectoryStart(
                problem=named, policy=f"transformers:{model}", options={"sample": seed}
            )
            trajectory = store.begin(start)
            row = store.draft(trajectory.id, request, action=Action.DRAFT)
            store.complete(row.id, answer, answer.text)
            store.judge(row.id, verdict(sum(answer.token_ids or ()) % 2 == 0))
            store.finish(trajectory.id, "turns")
