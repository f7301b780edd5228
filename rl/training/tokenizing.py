"""The tokenizer of the small policies: byte-level BPE whose tokens are idioms of Triton, and whose numbers are spelt.

Merges run across the blanks of a line, so a frequent piece of a line is one token. Numbers stand apart from what is
round them and are spelt digit by digit, so that a size or a scale looks the same in a reference and in its kernel, and
one that was never seen is still spelt right.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.data.importing.examples import as_corpus
from kernelwright.rl.data.rows import Split, read_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
FIM_TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
"""The tokens of fill-in-the-middle rows, named as Qwen's coders name them, so that such rows read the same to both."""
SPECIAL_TOKENS = (PAD, START, END, *FIM_TOKENS)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

DEFAULT_VOCABULARY = 4096
MAX_TOKEN_BYTES = 40
"""Bytes of a token: an idiom, not a whole kernel."""

_ROLES = ("system\n", "user\n", "assistant\n")
_COMMON = r"(?:0\.0|1\.0|2\.0|0\.5|[0-2])(?![\w.])"
_NUMBER = rf"(?<![\w.])(?!{_COMMON})\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
"""The few numbers of idioms (`axis=0`, `other=0.0`, `* 0.5`) stay with their line, and so do the digits that end a
name (`float32`, `x1`).
"""
_SIGN = r"\G(?!\d\.\d{6,})[\d.eE+-]"
"""Each sign of a number that stands apart is a piece; a constant of mathematics (0.044715 and longer) is one piece."""


def train_tokenizer(
    texts: Iterable[str], size: int = DEFAULT_VOCABULARY, longest: int = MAX_TOKEN_BYTES
) -> PreTrainedTokenizerFast:
    """The same texts give the same tokenizer. `size`: tokens at most, the special ones and 256 bytes among them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = _pieces()
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        max_token_length=longest,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(chain((role for role in _ROLES for _ in range(1000)), texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


def _pieces() -> Any:
    """Lines, with their end; in them numbers apart."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "merged_with_previous"),
            pre_tokenizers.Split(Regex(_NUMBER), "isolated"),
            pre_tokenizers.Split(Regex(_SIGN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


class TokenizerFigures(Value):
    """Figures of how a tokenizer encodes a corpus."""

    vocabulary: int
    texts: int
    mean: float
    """Mean number of tokens of a text."""
    median: int
    longest: int
    characters_a_token: float
    round_trip: bool
    """Every text came back exactly."""
    revision: str
    """Fingerprint of the tokenizer, as logs of the policy carry it."""


def measure_tokenizer(tokenizer: Any, texts: Sequence[str]) -> TokenizerFigures:
    """Measures a tokenizer over `texts`. Raises ValueError where there are none."""
    from kernelwright.policies.model_identity import identity_of

    if not texts:
        raise ValueError("there are no texts to measure the tokenizer on")
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    lengths = sorted(map(len, ids))
    return TokenizerFigures(
        vocabulary=len(tokenizer),
        texts=len(texts),
        mean=sum(lengths) / len(lengths),
        median=lengths[len(lengths) // 2],
        longest=lengths[-1],
        characters_a_token=sum(map(len, texts)) / max(1, sum(lengths)),
        round_trip=all(tokenizer.decode(own) == text for own, text in zip(ids, texts, strict=True)),
        revision=identity_of(tokenizer).tokenizer_hash or "",
    )


TEXT_ROWS = 20_000
"""Number of rows from which a tokenizer is trained: more rows change no merge that matters."""
MEASURED_ROWS = 2_000
"""Number of completions on which a tokenizer is measured."""


def training_texts(data: Path, rows: int = TEXT_ROWS) -> Iterator[str]:
    """Prompts and completions of the corpus' training rows.

    A completion comes twice: it is what has to be spelt one token after the other.
    """
    seen = 0
    for row in read_rows(data, ("prompt", "completion", "split")):
        if row.split is Split.TRAIN:
            yield from (row.prompt, row.completion, row.completion)
            seen += 1
            if seen >= rows:
                return
    if not seen:
        raise InputError(f"{data} holds no training rows: make some with `rl data synth`")


def make_tokenizer(data: Path, out: Path, size: int, longest: int) -> TokenizerFigures:
    """`rl tokenizer`: writes the folder whole or not at all, and measures it over completions. Raises InputError."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already: choose another --out, or move it away")
    with tempfile.TemporaryDirectory() as scratch:
        corpus = as_corpus(data, Path(scratch) / "rows", lambda _: None)
        tokenizer = train_tokenizer(training_texts(corpus), size, longest)
        completions = [
            row.completion for row in islice(read_rows(corpus, ("completion",)), MEASURED_ROWS)
        ]
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        save_tokenizer(tokenizer, partial)
        if out.is_dir():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return measure_tokenizer(tokenizer, completions)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Writes the tokenizer into a folder, beside whatever that holds already."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
