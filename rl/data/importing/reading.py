"""`rl data import`: reads a corpus in a known format into rows.

The folder appears after all rows are read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.rl.data.importing import inductor, kernelbook, tree
from kernelwright.rl.data.importing.examples import read_examples, reasons_of
from kernelwright.rl.data.importing.formats import CorpusFormat, ImportOptions, ImportResult
from kernelwright.rl.data.rows import Row, count_rows, write_rows

Reader = Callable[[Path, ImportOptions, dict[str, int]], Iterator[Row]]
"""Yields the rows of the corpus at a path; counts reasons for skipped entries in the dictionary."""
READERS: dict[CorpusFormat, Reader] = {
    CorpusFormat.ROWS: read_examples,
    CorpusFormat.CSV: read_examples,
    CorpusFormat.INDUCTOR: inductor.read,
    CorpusFormat.TREE: tree.read,
    CorpusFormat.KERNELBOOK: kernelbook.read,
    CorpusFormat.JSONL: read_examples,
}


def import_corpus(
    form: CorpusFormat, path: Path, out: Path, options: ImportOptions
) -> ImportResult:
    """Writes the corpus's rows into the folder `out`, which appears after everything is read.

    Unreadable records are skipped and counted in the result. Raises InputError if `path` has
    another format, if no row remains, or if `out` exists.
    """
    if not path.exists():
        raise InputError(f"there is nothing at {path}: name the corpus's file or folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already: give a new folder with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    skipped: dict[str, int] = {}
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        if not write_rows(partial, READERS[form](path, options, skipped)):
            raise InputError(f"{path} gave no rows as {form}: {reasons_of(skipped)}")
        rows = count_rows(partial)
        if out.exists():
            out.rmdir()
        partial.chmod(0o755)
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return ImportResult(rows=rows, skipped=skipped)
