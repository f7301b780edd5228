"""Formats of corpora for `rl data import`, the options of an import, and its result."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.report import Value


class CorpusFormat(StrEnum):
    """The format of an imported corpus."""

    ROWS = "rows"
    """Examples in Parquet, Arrow, JSON Lines, JSON or CSV; container and fields are recognized by
    content.
    """
    CSV = "csv"
    """Synonym of `rows` for CSV files."""
    INDUCTOR = "inductor"
    """A torch_compile_debug folder of TorchInductor."""
    TREE = "tree"
    """Python sources with @triton.jit functions, and a licence file."""
    KERNELBOOK = "kernelbook"
    """Parquet files with the columns python_code and triton_code."""
    JSONL = "jsonl"
    """Synonym of `rows` for JSON Lines."""


class ImportOptions(Value):
    """Options for reading a corpus."""

    licence: str = ""
    """SPDX name for rows without a licence."""
    any_licence: bool = False
    """Whether to accept sources with a non-permissive or unknown licence."""


class ImportResult(Value):
    """The result of an import."""

    rows: int = 0
    skipped: dict[str, int] = {}
    """Number of refused entries by reason."""


def count_skipped(skipped: dict[str, int], reason: str) -> None:
    """Counts another skipped record for a reason."""
    skipped[reason] = skipped.get(reason, 0) + 1
