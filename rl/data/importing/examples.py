"""Reads files of fine-tuning examples in any container and form into rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.containers import ImportedRecord, files_of, read_records
from kernelwright.rl.data.importing.formats import ImportOptions, count_skipped
from kernelwright.rl.data.importing.record_forms import KNOWN_FIELDS, UnusableRecord, rows_of_record
from kernelwright.rl.data.rows import Kind, Row, is_corpus, write_rows

KINDS_OF_FILES = {"fim_sft.csv": Kind.FIM, "cu2triton_sft.csv": Kind.TRANSLATE}
"""The two files of a published corpus without a task in their rows."""
MAX_REPORTED_RECORDS = 20
"""Number of unreadable records reported with their position for each file; further ones are only
counted.
"""
CHECKED_RECORDS = 50
"""Number of records checked before any heavy import."""


def read_examples(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Yields the rows of a file or a folder of files. Records without a row are counted in
    `skipped`.

    Raises InputError if there is no such file, or its form is unknown.
    """
    for file in files_of(path):
        kind = KINDS_OF_FILES.get(file.name)
        source = "two_csv" if kind else "examples"
        unreadable = 0
        for record in read_records(file, KNOWN_FIELDS):
            if record.error:
                unreadable += 1
                count_skipped(skipped, _report(record, unreadable))
                continue
            try:
                yield from rows_of_record(record, kind, source, options)
            except UnusableRecord as reason:
                count_skipped(skipped, str(reason))


def _report(record: ImportedRecord, number: int) -> str:
    file, _, line = record.location.rpartition(":")
    location = (
        f"{file}: the record of line {line}"
        if number <= MAX_REPORTED_RECORDS
        else f"{file}: further records:"
    )
    return f"{location} {record.error}"


def check_examples(path: Path) -> None:
    """Reads the first records of a foreign file before any heavy import. Raises InputError."""
    if is_corpus(path):
        return
    skipped: dict[str, int] = {}
    rows = list(islice(read_examples(path, ImportOptions(), skipped), CHECKED_RECORDS))
    if not rows:
        raise InputError(f"{path} gives no rows: {reasons_of(skipped)}")


def reasons_of(skipped: dict[str, int]) -> str:
    """Returns the reasons for skipped records, with their numbers, as a single line."""
    return ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "it is empty"


def as_corpus(path: Path, folder: Path, say: Callable[[str], None]) -> Path:
    """Returns the corpus for a training: the path itself, or a copy of foreign rows in `folder`.

    The copy appears atomically and is reused by a resumed training. Raises InputError.
    """
    if is_corpus(path) or is_corpus(folder):
        return path if is_corpus(path) else folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    skipped: dict[str, int] = {}
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        count = write_rows(partial, read_examples(path, ImportOptions(), skipped))
        if not count:
            raise InputError(f"{path} gives no rows: {reasons_of(skipped)}")
        partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    left_out = f" (left out: {reasons_of(skipped)})" if skipped else ""
    say(f"read {count:,} rows of {path}{left_out}")
    return folder
