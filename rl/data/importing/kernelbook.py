"""Parquet with python_code (a module) and triton_code (what Inductor, or a person, made of it)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.exits import InputError
from rl.data.importing.entry_points import renamed
from rl.data.importing.kinds import Asked, count
from rl.data.importing.licences import is_permissive
from rl.data.rows import Kind, Row, row_of

COLUMNS = ("python_code", "triton_code")
FACTS = ("licenses", "license", "repo_name", "module_name", "uuid", "entry_point")
BATCH = 256


def read(path: Path, asked: Asked, skipped: dict[str, int]) -> Iterator[Row]:
    """Raises InputError for a file that is not parquet, or has other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if not files:
        raise InputError(f"{path} holds no .parquet file")
    for file in files:
        try:
            parquet = pq.ParquetFile(file)
            names = parquet.schema_arrow.names
            if missing := [name for name in COLUMNS if name not in names]:
                raise InputError(f"{file} has no column {', '.join(missing)}: it needs {' and '.join(COLUMNS)}")
            columns = [*COLUMNS, *(name for name in FACTS if name in names)]
            for cells in (c for batch in parquet.iter_batches(BATCH, columns=columns) for c in batch.to_pylist()):
                if row := _row(file, cells, asked, skipped):
                    yield row
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{file} is not a readable parquet file: {str(error).splitlines()[0]}") from error


def _row(file: Path, cells: dict[str, Any], asked: Asked, skipped: dict[str, int]) -> Row | None:
    python, triton = (cells[name] if isinstance(cells[name], str) else "" for name in COLUMNS)
    if not python.strip() or not triton.strip():
        count(skipped, "empty")
        return None
    licence = _licence(cells) or asked.licence
    if not asked.any_licence and licence and not is_permissive(licence):
        count(skipped, f"licence {licence}")
        return None
    if not asked.any_licence and not licence:
        count(skipped, "licence not known (give --licence, or --any-licence)")
        return None
    place = next((str(cells[name]) for name in ("uuid", "module_name", "entry_point") if cells.get(name)), "")
    repository = str(cells.get("repo_name") or "")
    python, triton, entry = renamed(python, triton, str(cells.get("entry_point") or ""))
    was = f"class {entry}" if entry else ""
    return row_of(
        Kind.TRANSLATE, python, triton, reference=python, source="kernelbook", licence=licence,
        provenance=" ".join(part for part in (file.name, repository, place, was) if part),
    )  # fmt: skip


def _licence(cells: dict[str, Any]) -> str:
    """A list is what was found in a repository, not a choice: all of it holds."""
    told = cells.get("licenses") or cells.get("license")
    if isinstance(told, list):
        told = ", ".join(str(one) for one in told)
    return told.strip() if isinstance(told, str) else ""
