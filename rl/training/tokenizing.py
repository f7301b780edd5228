"""The tokenizer of the small policies: byte-level BPE with Triton idioms as tokens, and numbers
spelt digit by digit.

Merges cross the blanks of a line, so a frequent fragment of a line becomes one token. A number is
split from its surroundings and spelt digit by digit: a size or scale looks alike in a reference
and in its kernel, and an unseen number is still spelt correctly.

    x = tl.load(p + 1024)  ->  "x = tl.load(p + " "1" "0" "2" "4" ")"
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
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
FIM_TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
"""The tokens of fill-in-the-middle rows, with the names of Qwen's coders, so both kinds of models
read such rows alike.
"""
SPECIAL_TOKENS = (PAD, START, END, *FIM_TOKENS)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

DEFAULT_VOCABULARY = 4096
MAX_TOKEN_BYTES = 40
"""Largest number of bytes of a token: an idiom, not a whole kernel."""

_ROLES = ("system\n", "user\n", "assistant\n")
_COMMON = r"(?:0\.0|1\.0|2\.0|0\.5|[0-2])(?![\w.])"
_NUMBER = rf"(?<![\w.])(?!{_COMMON})\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
"""A number to split off. The few numbers of idioms (`axis=0`, `other=0.0`, `* 0.5`) stay with
their line, and so do the digits at the end of a name (`float32`, `x1`).
"""
_SIGN = r"\G(?!\d\.\d{6,})[\d.eE+-]"
"""Each character of a split-off number is a piece; a mathematical constant (0.044715 and longer)
is one piece.
"""


def train_tokenizer(
    texts: Iterable[str], size: int = DEFAULT_VOCABULARY, longest: int = MAX_TOKEN_BYTES
) -> PreTrainedTokenizerFast:
    """Trains a tokenizer; equal texts give equal tokenizers. `size`: largest number of tokens,
    special tokens and 256 bytes included.
    """
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
    # Repeated role names become tokens, which the chat template needs in every text.
    roles = (role for role in _ROLES for _ in range(1000))
    bpe.train_from_iterator(chain(roles, texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


def _pieces() -> Any:
    """Returns the splitter of texts into lines with their line ends, and of numbers inside lines."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            # Lines with their newline, then numbers, then the digits of a number, then bytes.
            pre_tokenizers.Split("\n", "merged_with_previous"),
            pre_tokenizers.Split(Regex(_NUMBER), "isolated"),
            pre_tokenizers.Split(Regex(_SIGN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


class TokenizerFigures(Value):
    """Figures of a tokenizer on a corpus."""

    vocabulary: int
    texts: int
    mean: float
    """Mean number of tokens of a text."""
    median: int
    longest: int
    characters_a_token: float
    round_trip: bool
    """Whether every text was decoded exactly."""
    revision: str
    """Fingerprint of the tokenizer, as stored in logs of the policy."""


def measure_tokenizer(tokenizer: Any, texts: Sequence[str]) -> TokenizerFigures:
    """Measures a tokenizer on `texts`. Raises ValueError for an empty sequence."""
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
        round_trip=all(
            tokenizer.decode(text_ids) == text for text_ids, text in zip(ids, texts, strict=True)
        ),
        revision=identity_of(tokenizer).tokenizer_hash or "",
    )


TEXT_ROWS = 20_000
"""Number of rows for training a tokenizer; more rows change no important merge."""
MEASURED_ROWS = 2_000
"""Number of completions for measuring a tokenizer."""


def training_texts(data: Path, rows: int = TEXT_ROWS) -> Iterator[str]:
    """Yields the prompts and completions of the corpus's training rows.

    Each completion comes twice, since the policy has to write completions token by token.
    """
    count = 0
    for row in read_rows(data, ("prompt", "completion", "split")):
        if row.split is Split.TRAIN:
            # Completions count double: the policy writes them token by token.
            yield from (row.prompt, row.completion, row.completion)
            count += 1
            if count >= rows:
                return
    if not count:
        raise InputError(f"{data} holds no training rows: make some with `rl data synth`")


def make_tokenizer(data: Path, out: Path, size: int, longest: int) -> TokenizerFigures:
    """Trains a tokenizer (`rl tokenizer`), writes its folder completely or not at all, and
    measures completions. Raises InputError.
    """
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


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes the tokenizer into a folder and keeps the folder's other files."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
