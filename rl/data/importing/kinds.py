"""The forms of corpora that `rl data import` reads, and the one way in: all rows are read before the first is in its place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from agent.exits import InputError
from rl.data.rows import Row, count_rows, write_rows
from tools.results import Value


class Form(StrEnum):
    CSV = "csv"
    """A folder with fim_sft.csv and cu2triton_sft.csv, or one of them: columns prompt and completion."""
    INDUCTOR = "inductor"
    """A torch_compile_debug folder."""
    TREE = "tree"
    """Python sources with @triton.jit, and a licence file."""
    KERNELBOOK = "kernelbook"
    """Parquet with python_code and triton_code."""
    JSONL = "jsonl"
    """Lines with instruction and output."""


class Asked(Value):
    """How to read."""

    licence: str = ""
    """SPDX name for rows that carry none of their own."""
    any_licence: bool = False
    """Keep sources whose licence is not permissive, or not known."""


class Imported(Value):
    rows: int = 0
    skipped: dict[str, int] = {}
    """Reason -> things that gave no row."""


Reader = Callable[[Path, Asked, dict[str, int]], Iterator[Row]]
"""Path, how, and where reasons for what is skipped are counted."""


def read_in(form: Form, path: Path, out: Path, asked: Asked) -> Imported:
    """Everything or nothing: `out` appears once all was read. Raises InputError."""
    if not path.exists():
        raise InputError(f"there is nothing at {path}: name the corpus's file or folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is there already: give a new folder with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    skipped: dict[str, int] = {}
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        if not write_rows(partial, _reader(form)(path, asked, skipped)):
            reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "it is empty"
            raise InputError(f"{path} gave no rows as {form}: {reasons}")
        rows = count_rows(partial)
        if out.exists():
            out.rmdir()
        partial.chmod(0o755)
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Imported(rows=rows, skipped=skipped)


def _reader(form: Form) -> Reader:
    import rl.data.importing.inductor as inductor
    from rl.data.importing import csv_pairs, jsonl, kernelbook, tree

    return {
        Form.CSV: csv_pairs.read, Form.INDUCTOR: inductor.read, Form.TREE: tree.read, Form.KERNELBOOK: kernelbook.read, Form.JSONL: jsonl.read,
    }[form]  # fmt: skip


def count(skipped: dict[str, int], reason: str) -> None:
    skipped[reason] = skipped.get(reason, 0) + 1
