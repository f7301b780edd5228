"""What a phase found out, written as it goes: a phase that is ended in the middle has told what it knew."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Results:
    """Figures by name, and tables by title, in one JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._figures: dict[str, Any] = {}
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self.began = time.monotonic()
        self.failures: list[str] = []
        self._write(False)

    def say(self, **figures: Any) -> None:
        """Names with spaces in the place of underscores."""
        self._figures |= {name.replace("_", " "): value for name, value in figures.items()}
        self._write(False)

    def add(self, title: str, **row: Any) -> None:
        """One more row of a table."""
        self._tables.setdefault(title, []).append(
            {name.replace("_", " "): value for name, value in row.items()}
        )
        self._write(False)

    def table(self, title: str, rows: Sequence[dict[str, Any]]) -> None:
        """All rows of a table, in the place of those before."""
        self._tables[title] = [
            {name.replace("_", " "): value for name, value in row.items()} for row in rows
        ]
        self._write(False)

    def must(self, holds: bool, what: str) -> None:
        """Records what does not hold and has to."""
        if not holds:
            self.failures.append(what)
            self._write(False)

    def finish(self) -> int:
        """The exit status."""
        self._write(True)
        return 1 if self.failures else 0

    def _write(self, whole: bool) -> None:
        found = {
            "whole": whole, "seconds": round(time.monotonic() - self.began, 1), "failures": self.failures,
            "figures": self._figures, "tables": self._tables,
        }  # fmt: skip
        beside = self._file.with_name(f".{self._file.name}.part")
        beside.write_text(json.dumps(found, indent=1), encoding="utf-8")
        beside.replace(self._file)


def markdown(title: str, found: dict[str, Any]) -> list[str]:
    """The lines of one phase."""
    ended = "" if found["whole"] else " (ended by its time limit)"
    lines = [f"## {title}{ended}", "", f"{found['seconds']:.0f} s.", ""]
    lines += [f"- **does not hold: {what}**" for what in found["failures"]]
    if found["figures"]:
        lines += [
            "| | |",
            "|---|---|",
            *(f"| {name} | {_told(value)} |" for name, value in found["figures"].items()),
            "",
        ]
    for name, rows in found["tables"].items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines += [f"{name}:", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += [
            "| " + " | ".join(_told(row.get(column)) for column in columns) + " |" for row in rows
        ]
        lines.append("")
    return lines


def _told(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


class PhaseRequest(argparse.Namespace):
    """What every phase is told."""

    devices: list[str]
    workers: int
    seconds: float
    out: Path
    candidates: Path


def asked(description: str | None, argv: Sequence[str] | None = None) -> PhaseRequest:
    """The arguments of one phase."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--devices", type=lambda text: text.split(","), required=True)
    parser.add_argument(
        "--workers", type=int, default=4, help="places at the CPU rungs of each GPU"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--candidates", type=Path, required=True, help="made by bench.several.candidates"
    )
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args(argv, PhaseRequest())
