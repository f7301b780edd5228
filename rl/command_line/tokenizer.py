"""Defines `rl tokenizer`, which trains a tokenizer on a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.rl.command_line.options.shared import AsJson, Debug

Data = Annotated[
    Path, typer.Option(help="The corpus: a folder that rl data wrote, or rows of others.")
]
Out = Annotated[Path, typer.Option(help="The tokenizer's folder. Must be empty or not there.")]
Vocabulary = Annotated[
    int, typer.Option(min=300, help="Tokens at most, 256 bytes and the special ones among them.")
]
Longest = Annotated[int, typer.Option(min=1, help="Bytes of a token at most.")]


def tokenizer(
    data: Data,
    out: Out,
    vocabulary: Vocabulary = 4096,
    longest: Longest = 40,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make the tokenizer of a small policy from a corpus: byte-level BPE whose tokens are idioms of Triton.

    The same corpus gives the same tokenizer. Prints how many tokens a completion takes.
    """
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.rl.training.tokenizing import make_tokenizer

    with progress(as_json) as say:
        say(f"making a tokenizer from {data}")
        figures = make_tokenizer(data, out, vocabulary, longest)
    if as_json:
        typer.echo(figures.model_dump_json(indent=2))
        return
    typer.echo(
        f"{figures.vocabulary:,} tokens; a completion takes {figures.median} "
        f"(mean {figures.mean:.0f}, at most {figures.longest})"
    )
    round_trip = "exact" if figures.round_trip else "NOT EXACT"
    typer.echo(f"{figures.characters_a_token:.1f} characters a token; round trip {round_trip}")
    typer.echo(f"tokenizer {figures.revision} in {out}")
