"""Reads CSV records one by one, and goes on after a record that is not well-formed."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

DELIMITERS = (",", "\t", ";")
MAX_FIELD_CHARACTERS = 1 << 24
"""Characters of one CSV field."""


class CsvRecord(NamedTuple):
    """One record of a CSV file, or the place where one could not be read."""

    line: int
    """First line of the record, from 1."""
    cells: Sequence[str]
    error: str = ""
    """Reason why the record cannot be used; empty where it can."""


def split_header(line: str) -> dict[str, list[str]]:
    """Returns the column names of a header line by each delimiter that it may be written with."""
    return {
        delimiter: next(csv.reader([line], delimiter=delimiter), []) for delimiter in DELIMITERS
    }


def read_csv_records(lines: Iterable[str], columns: int, delimiter: str) -> Iterator[CsvRecord]:
    """Yields each record of a file with so many columns.

    A quotation mark that is missing swallows the records that follow. Reading goes on at the next line within what was
    swallowed that begins with a quotation mark and is the beginning of a well-formed record; lines before it might be
    the rest of the broken one, and are left out.
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
        except csv.Error as error:
            source.give_back_all_but_first()
            if not resyncing:
                yield CsvRecord(first_line, [], f"is not well-formed CSV: {error}")
            resyncing = True
            continue
        if resyncing and not (source.record[0].startswith('"') and len(cells) >= columns):
            source.give_back_all_but_first()
            continue
        resyncing = False
        if cells:
            yield CsvRecord(first_line, cells, _error_of(cells, columns))


def _error_of(cells: Sequence[str], columns: int) -> str:
    """Returns the reason why a record's cells make no row; empty where they do."""
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return "is not UTF-8: save the file as UTF-8"
    if len(cells) != columns:
        return "has another number of fields than the header: check its quotes"
    return ""


class _RereadableLines:
    """Lines of a text, of which those of the last record can be read once more."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._returned = deque[str]()
        self._number = 0
        self.record: list[str] = []
        """The lines that were read since `begin_record`."""

    def begin_record(self) -> int:
        """Returns the number of the line that comes next, from 1."""
        self.record = []
        return self._number + 1

    def give_back_all_but_first(self) -> None:
        """Makes the reader read again every line of the record but its first."""
        self._returned.extendleft(reversed(self.record[1:]))
        self._number -= len(self.record[1:])

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else next(self._lines)
        self._number += 1
        self.record.append(line)
        return line
