"""Formats of corpora that `rl data import` reads, the options of an import, and its result."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.report import Value


class CorpusFormat(StrEnum):
    """A form in which a corpus can be imported."""

    ROWS = "rows"
    """Examples in Parquet, Arrow, JSON Lines, JSON or CSV; container and fields are recognised by content."""
    CSV = "csv"
    """Another name of `rows`."""
    INDUCTOR = "inductor"
    """A torch_compile_debug folder."""
    TREE = "tree"
    """Python sources with @triton.jit functions, and a licence file."""
    KERNELBOOK = "kernelbook"
    """Parquet files with the columns python_code and triton_code."""
    JSONL = "jsonl"
    """Another name of `rows`."""


class ImportOptions(Value):
    """Options for reading a corpus."""

    licence: str = ""
    """SPDX name for rows that carry none of their own."""
    any_licence: bool = False
    """Keeps sources whose licence is not permissive, or not known."""


class ImportResult(Value):
    """The result of an import."""

    rows: int = 0
    skipped: dict[str, int] = {}
    """The number of refused entries by reason."""


def count_skipped(skipped: dict[str, int], reason: str) -> None:
    """Counts one more record that was left out for a reason."""
    skipped[reason] = skipped.get(reason, 0) + 1
