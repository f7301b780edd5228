"""One JSON object a line, with instruction (and input) and output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from agent.exits import InputError
from rl.data.importing.kinds import Asked, count
from rl.data.rows import Kind, Row, row_of


def read(path: Path, asked: Asked, skipped: dict[str, int]) -> Iterator[Row]:
    """Raises InputError with the line that is not such an object."""
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    if not files:
        raise InputError(f"{path} holds no .jsonl file")
    for file in files:
        try:
            with file.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip() and (row := _row(file, number, line, asked, skipped)):
                        yield row
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error


def _row(file: Path, number: int, line: str, asked: Asked, skipped: dict[str, int]) -> Row | None:
    try:
        told = json.loads(line)
    except ValueError as error:
        raise InputError(f"{file}:{number} is not JSON: {error}") from error
    if not isinstance(told, dict) or not all(isinstance(told.get(name), str) for name in ("instruction", "output")):
        raise InputError(f"{file}:{number} has no texts instruction and output")
    extra = told.get("input")
    prompt = "\n".join([told["instruction"], *([extra] if isinstance(extra, str) and extra.strip() else [])])
    if not prompt.strip() or not told["output"].strip():
        count(skipped, "empty")
        return None
    licence = told.get("license") or told.get("licence")
    known = licence if isinstance(licence, str) else asked.licence
    return row_of(
        Kind.INSTRUCT, prompt, told["output"], source="jsonl", licence=known, provenance=f"{file.name}:{number}"
    )
