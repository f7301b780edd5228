"""What a tuning has found out so far, a row at a time, in a file of its own: the same command goes on where it stopped.

A row is written when its configuration was compiled, timed or judged, and never again. A last row that was cut off is
left out and made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError

JOURNAL_VERSION = 1
"""Raised when a row changes its meaning."""


class Journal:
    """Rows of JSON, one per line, after a first line that says of which tuning. For one thread."""

    def __init__(self, path: Path, identity: str) -> None:
        """identity: of everything that decides what the rows say.

        A file of another tuning is begun anew. Raises InputError where it cannot be written.
        """
        self.path = path
        self._rows: dict[tuple[str, str], Any] = {}
        head = {"journal": JOURNAL_VERSION, "identity": identity}
        try:
            kept = list(_lines(path)) if path.exists() else []
            same = bool(kept) and kept[0] == head
            for row in kept[1:] if same else ():
                self._rows[str(row["kind"]), str(row["key"])] = row["value"]
            _write_whole(path, [head, *(kept[1:] if same else ())])
            self._file = path.open("ab")
        except OSError as error:
            raise InputError(
                f"{path} cannot be written: {error.strerror}: name another file with --out"
            ) from None
        self.resumed = bool(self._rows)

    def find(self, kind: str, key: str) -> Any:
        """The value of a row; None where there is none."""
        return self._rows.get((kind, key))

    def add(self, kind: str, key: str, value: Any) -> None:
        """Writes a row, and returns when it lies on the disk."""
        line = json.dumps({"kind": kind, "key": key, "value": value}, separators=(",", ":")) + "\n"
        self._file.write(line.encode("utf-8"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._rows[kind, key] = value

    def close(self) -> None:
        """Closes the file; every line of it was written when it was told."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lines(path: Path) -> Iterator[Any]:
    """Returns the whole rows; what follows a broken one is not believed."""
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
    """Writes the journal to another file that takes the place of the old one, so that there is never half of it."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(
        "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows), encoding="utf-8"
    )
    beside.replace(path)
