"""The two-CSV layout: `fim_sft.csv` (fill in the middle) and `cu2triton_sft.csv` (CUDA to Triton), columns prompt and completion."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from agent.exits import InputError
from rl.data.importing.kinds import Asked, count
from rl.data.rows import Kind, Row, row_of

FILES = {"fim_sft.csv": Kind.FIM, "cu2triton_sft.csv": Kind.TRANSLATE}
COLUMNS = ("prompt", "completion")
LONGEST = 1 << 24
"""Characters of one field."""


def read(path: Path, asked: Asked, skipped: dict[str, int]) -> Iterator[Row]:
    """Raises InputError for wrong columns, rows of another length, bytes that are not UTF-8."""
    files = [path] if path.is_file() else [path / name for name in FILES if (path / name).is_file()]
    if not files:
        raise InputError(f"{path} holds neither {' nor '.join(FILES)}: name the folder, or one of the files")
    for file in files:
        kind = FILES.get(file.name, Kind.FIM if "fim" in file.name.lower() else Kind.TRANSLATE)
        yield from _rows(file, kind, asked, skipped)


def _rows(file: Path, kind: Kind, asked: Asked, skipped: dict[str, int]) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            missing = set(COLUMNS) - set(reader.fieldnames or ())
            if missing:
                raise InputError(f"{file} has no column {', '.join(sorted(missing))}: it needs {' and '.join(COLUMNS)}")
            for number, cells in enumerate(reader, 1):
                if None in cells or None in cells.values():
                    raise InputError(
                        f"{file}: record {number} (to line {reader.line_num}) has another number of fields than the header: mend its quotes"
                    )
                if not cells["prompt"].strip() or not cells["completion"].strip():
                    count(skipped, "empty")
                    continue
                yield row_of(
                    kind,
                    cells["prompt"],
                    cells["completion"],
                    source="two_csv",
                    licence=asked.licence,
                    provenance=f"{file.name}:{number}",
                )
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{file} is not well-formed CSV: {error}") from error
