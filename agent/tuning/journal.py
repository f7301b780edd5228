"""The journal of a tuning: each result is a row of a file, so the same command continues after a
stop.

A row is written when its configuration was compiled, timed or judged, and is never repeated. An
incomplete last row is ignored and made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.closing_context import ClosingContext
from kernelwright.errors import InputError

JOURNAL_VERSION = 1
"""Version of the format, raised when a row changes its meaning."""


class Journal(ClosingContext):
    """Rows of JSON, one per line, after a first line with the identity of the tuning. For one
    thread.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """identity: hash of all inputs that determine the rows.

        The file of another tuning is overwritten. Raises InputError if the file cannot be
        written.
        """
        self.path = path
        self._rows: dict[tuple[str, str], Any] = {}
        head = {"journal": JOURNAL_VERSION, "identity": identity}
        try:
            rows = list(_lines(path)) if path.exists() else []
            results = rows[1:] if rows and rows[0] == head else []
            for row in results:
                self._rows[str(row["kind"]), str(row["key"])] = row["value"]
            _write_whole(path, [head, *results])
            self._file = path.open("ab")
        except OSError as error:
            raise InputError(
                f"{path} cannot be written: {error.strerror}: name another file with --out"
            ) from None
        self.resumed = bool(self._rows)

    def find(self, kind: str, key: str) -> Any:
        """Returns the value of a row; None if there is no such row."""
        return self._rows.get((kind, key))

    def add(self, kind: str, key: str, value: object) -> None:
        """Writes a row and returns when it lies on the disk."""
        line = json.dumps({"kind": kind, "key": key, "value": value}, separators=(",", ":")) + "\n"
        self._file.write(line.encode("utf-8"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._rows[kind, key] = value

    def close(self) -> None:
        """Closes the file. All rows are on the disk already."""
        self._file.close()


def _lines(path: Path) -> Iterator[Any]:
    """Yields the complete rows up to the first broken row."""
    for line in path.read_bytes().split(b"\n"):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            return
        if not isinstance(row, dict) or not (
            "journal" in row or {"kind", "key", "value"} <= set(row)
        ):
            return
        yield row


def _write_whole(path: Path, rows: list[Any]) -> None:
    """Writes the journal to a temporary file and renames it, so the journal is never incomplete."""
    temporary_path = path.with_name(f".{path.name}.part")
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    temporary_path.write_text("".join(lines), encoding="utf-8")
    temporary_path.replace(path)
