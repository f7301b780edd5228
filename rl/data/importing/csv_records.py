"""Reads CSV records in turn, and continues after a malformed record.

columns 2, lines:  a,b / "x,y / "c","d"
-> ["a", "b"]; an error at line 2 (the quote never ends); ["c", "d"]
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

DELIMITERS = (",", "\t", ";")
MAX_FIELD_CHARACTERS = 1 << 24
"""Largest number of characters of a CSV field."""


class CsvRecord(NamedTuple):
    """A record of a CSV file, or the position of an unreadable record."""

    line: int
    """First line of the record, from 1."""
    cells: Sequence[str]
    error: str = ""
    """Reason against using the record; empty if usable."""


def split_header(line: str) -> dict[str, list[str]]:
    """Returns the column names of a header line for each possible delimiter."""
    return {
        delimiter: next(csv.reader([line], delimiter=delimiter), []) for delimiter in DELIMITERS
    }


def read_csv_records(lines: Iterable[str], columns: int, delimiter: str) -> Iterator[CsvRecord]:
    """Yields each record of a file with `columns` columns.

    A missing quotation mark swallows the following records. Reading resumes at the next swallowed
    line that begins with a quotation mark and starts a well-formed record; lines before it may
    belong to the broken record and are left out.
    """
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    source = _RereadableLines(lines)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    resyncing = False
    while True:
        first_line = source.begin_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        # Only the first error of a broken region is reported.
        except csv.Error as error:
            source.give_back_all_but_first()
            if not resyncing:
                yield CsvRecord(first_line, [], f"is not well-formed CSV: {error}")
            resyncing = True
            continue
        # A line without a leading quote may be the rest of the broken record.
        if resyncing and not (source.record[0].startswith('"') and len(cells) >= columns):
            source.give_back_all_but_first()
            continue
        resyncing = False
        if cells:
            yield CsvRecord(first_line, cells, _error_of(cells, columns))


def _error_of(cells: Sequence[str], columns: int) -> str:
    """Returns the reason against a record's cells as a row; empty if usable."""
    # Bytes outside UTF-8 were decoded to lone surrogates.
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return "is not UTF-8: save the file as UTF-8"
    if len(cells) != columns:
        return "has another number of fields than the header: check its quotes"
    return ""


class _RereadableLines:
    """Lines of a text; the lines of the last record can be read again."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._returned = deque[str]()
        self._number = 0
        self.record: list[str] = []
        """The lines that were read since `begin_record`."""

    def begin_record(self) -> int:
        """Starts a record, and returns the number of its first line, from 1."""
        self.record = []
        return self._number + 1

    def give_back_all_but_first(self) -> None:
        """Makes the reader read again every line of the record except the first."""
        self._returned.extendleft(reversed(self.record[1:]))
        self._number -= len(self.record[1:])

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else next(self._lines)
        self._number += 1
        self.record.append(line)
        return line
