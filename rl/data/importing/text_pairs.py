"""Corpora of prompts and completions as text: the two-CSV layout, and JSON lines of instructions.

CSV: `fim_sft.csv` (fill in the middle) and `cu2triton_sft.csv` (CUDA to Triton), with the columns prompt and
completion. JSON lines: objects with instruction (and input) and output, or one JSON array of such objects.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.formats import ImportOptions, count_skipped
from kernelwright.rl.data.rows import Kind, Row, row_of

CSV_FILES = {"fim_sft.csv": Kind.FIM, "cu2triton_sft.csv": Kind.TRANSLATE}
CSV_COLUMNS = ("prompt", "completion")
MAX_FIELD_CHARACTERS = 1 << 24
"""Characters of one CSV field."""
MAX_REPORTED_RECORDS = 20
"""Records that cannot be read and are named with their line, a file; further ones are only counted."""


def read_csv(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Rows of every record that can be read; the others are counted by their line and the reason.

    Raises InputError where there is no such file, or the header lacks a column.
    """
    files = [path] if path.is_file() else [path / name for name in CSV_FILES if (path / name).is_file()]
    if not files:
        raise InputError(f"{path} holds neither {' nor '.join(CSV_FILES)}: name the folder, or one of the files")
    for file in files:
        kind = CSV_FILES.get(file.name, Kind.FIM if "fim" in file.name.lower() else Kind.TRANSLATE)
        yield from _csv_rows(file, kind, options, skipped)


def _csv_rows(file: Path, kind: Kind, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    # A byte that is not UTF-8 becomes a lone surrogate, so that it costs its own record and no other.
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        records = _csv_records(text)
        _, header, trouble = next(records, (1, [], ""))
        missing = set(CSV_COLUMNS) - set(header)
        if missing:
            what = trouble or f"has no column {', '.join(sorted(missing))}"
            raise InputError(f"{file} {what}: it needs {' and '.join(CSV_COLUMNS)} in its first line")
        places = [header.index(name) for name in CSV_COLUMNS]
        bad = 0
        for number, (line, cells, unreadable) in enumerate(records, 1):
            trouble = unreadable or _trouble_of(cells, len(header))
            if trouble:
                bad += 1
                where = f"{file.name}: the record of line {line}" if bad <= MAX_REPORTED_RECORDS else "further records:"
                count_skipped(skipped, f"{where} {trouble}")
                continue
            prompt, completion = (cells[place] for place in places)
            if not prompt.strip() or not completion.strip():
                count_skipped(skipped, "empty")
                continue
            place = f"{file.name}:{number}"
            yield row_of(kind, prompt, completion, source="two_csv", licence=options.licence, provenance=place)


def _trouble_of(cells: Sequence[str], fields: int) -> str:
    """Returns the reason why a record's cells make no row; empty where they do."""
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return "is not UTF-8: save the file as UTF-8"
    if len(cells) != fields:
        return "has another number of fields than the header: check its quotes"
    return ""


def _csv_records(text: Iterable[str]) -> Iterator[tuple[int, list[str], str]]:
    """Each record's first line (from 1), its cells, and what is wrong with it where it is not well-formed CSV.

    A quotation mark that is missing swallows the records that follow. Reading goes on at the next line within what was
    swallowed that begins with a quotation mark and is the beginning of a well-formed record; lines before it might be
    the rest of the broken one, and are left out.
    """
    lines = _LinesAgain(text)
    reader = csv.reader(lines, strict=True)
    resyncing = False
    while True:
        first = lines.begin_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines.give_back_all_but_first()
            if not resyncing:
                yield first, [], f"is not well-formed CSV: {error}"
            resyncing = True
            continue
        if resyncing and not (lines.record[0].startswith('"') and len(cells) >= len(CSV_COLUMNS)):
            lines.give_back_all_but_first()
            continue
        resyncing = False
        if cells:
            yield first, cells, ""


class _LinesAgain:
    """Lines of a text, of which those of the last record can be read once more."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._again = iter(lines), deque[str]()
        self._number = 0
        self.record: list[str] = []
        """The lines that were read since `begin_record`."""

    def begin_record(self) -> int:
        """The number of the line that comes next, from 1."""
        self.record = []
        return self._number + 1

    def give_back_all_but_first(self) -> None:
        """Makes the reader read again every line of the record but its first."""
        self._again.extendleft(reversed(self.record[1:]))
        self._number -= len(self.record[1:])

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self._number += 1
        self.record.append(line)
        return line


def read_jsonl(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Raises InputError with the place of a line that is not such an object."""
    files = [path] if path.is_file() else sorted([*path.glob("*.jsonl"), *path.glob("*.json")])
    if not files:
        raise InputError(f"{path} holds no .jsonl file")
    for file in files:
        try:
            for number, entry in _array(file) if _is_array(file) else _lines(file):
                if row := _jsonl_row(file, number, entry, options, skipped):
                    yield row
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error


def _is_array(file: Path) -> bool:
    with file.open(encoding="utf-8-sig") as text:
        return next((line.strip()[0] for line in text if line.strip()), "") == "["


def _array(file: Path) -> Iterator[tuple[int, Any]]:
    """Each entry with its place in the array, from 1."""
    yield from enumerate(_parsed(file.read_text(encoding="utf-8-sig"), str(file)), 1)


def _lines(file: Path) -> Iterator[tuple[int, Any]]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _parsed(line, f"{file}:{number}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from error


def _jsonl_row(file: Path, number: int, entry: Any, options: ImportOptions, skipped: dict[str, int]) -> Row | None:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("instruction", "output")):
        raise InputError(f"{file}:{number} has no texts instruction and output")
    extra = entry.get("input")
    prompt = "\n".join([entry["instruction"], *([extra] if isinstance(extra, str) and extra.strip() else [])])
    if not prompt.strip() or not entry["output"].strip():
        count_skipped(skipped, "empty")
        return None
    licence = entry.get("license") or entry.get("licence")
    known = licence if isinstance(licence, str) else options.licence
    return row_of(
        Kind.INSTRUCT, prompt, entry["output"], source="jsonl", licence=known, provenance=f"{file.name}:{number}"
    )
