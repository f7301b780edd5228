"""One JSON object a line, with instruction (and input) and output; or a JSON array of such objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.exits import InputError
from rl.data.importing.kinds import Asked, count
from rl.data.rows import Kind, Row, row_of


def read(path: Path, asked: Asked, skipped: dict[str, int]) -> Iterator[Row]:
    """Raises InputError with the line that is not such an object."""
    files = [path] if path.is_file() else sorted([*path.glob("*.jsonl"), *path.glob("*.json")])
    if not files:
        raise InputError(f"{path} holds no .jsonl file")
    for file in files:
        try:
            for number, told in _array(file) if _is_array(file) else _lines(file):
                if row := _row(file, number, told, asked, skipped):
                    yield row
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error


def _is_array(file: Path) -> bool:
    with file.open(encoding="utf-8-sig") as text:
        return next((line.strip()[0] for line in text if line.strip()), "") == "["


def _array(file: Path) -> Iterator[tuple[int, Any]]:
    """Each with its place in the array, from 1."""
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


def _row(file: Path, number: int, told: Any, asked: Asked, skipped: dict[str, int]) -> Row | None:
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
