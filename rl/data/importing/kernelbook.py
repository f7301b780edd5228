"""KernelBook: parquet files with python_code (a PyTorch module) and triton_code (its kernel by
Inductor or a person).

A pair of classes `Foo` and `FooNew` is renamed to `Model` and `ModelNew`, the names required by
the tools.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.formats import ImportOptions, count_skipped
from kernelwright.rl.data.importing.licences import is_permissive
from kernelwright.rl.data.rows import Kind, Row, row_of
from kernelwright.tools.parsing import parse_module

COLUMNS = ("python_code", "triton_code")
PROVENANCE_FIELDS = ("licenses", "license", "repo_name", "module_name", "uuid", "entry_point")
KERNELBOOK_BATCH_ROWS = 256
REFERENCE_CLASS, CANDIDATE_CLASS = "Model", "ModelNew"


def read(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Yields the rows of all files. Raises InputError for a file that is not parquet, or has
    other columns.
    """
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
                raise InputError(
                    f"{file} has no column {', '.join(missing)}: it needs {' and '.join(COLUMNS)}"
                )
            columns = [*COLUMNS, *(name for name in PROVENANCE_FIELDS if name in names)]
            for batch in parquet.iter_batches(KERNELBOOK_BATCH_ROWS, columns=columns):
                for cells in batch.to_pylist():
                    if row := _row(file, cells, options, skipped):
                        yield row
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{file} is not a readable parquet file: {str(error).splitlines()[0]}"
            ) from error


def _row(
    file: Path, cells: dict[str, Any], options: ImportOptions, skipped: dict[str, int]
) -> Row | None:
    python, triton = (cells[name] if isinstance(cells[name], str) else "" for name in COLUMNS)
    if not python.strip() or not triton.strip():
        count_skipped(skipped, "empty")
        return None
    licence = _licence(cells) or options.licence
    if not options.any_licence and licence and not is_permissive(licence):
        count_skipped(skipped, f"licence {licence}")
        return None
    if not options.any_licence and not licence:
        count_skipped(skipped, "licence not known (give --licence, or --any-licence)")
        return None
    entry_name = next(
        (str(cells[name]) for name in ("uuid", "module_name", "entry_point") if cells.get(name)), ""
    )
    repository = str(cells.get("repo_name") or "")
    python, triton, entry = rename_classes(python, triton, str(cells.get("entry_point") or ""))
    was = f"class {entry}" if entry else ""
    return row_of(
        Kind.TRANSLATE, python, triton, reference=python, source="kernelbook", licence=licence,
        provenance=" ".join(part for part in (file.name, repository, entry_name, was) if part),
    )  # fmt: skip


def _licence(cells: dict[str, Any]) -> str:
    """Returns the row's licence. A list of licences names all licences of a repository and offers
    no choice: all apply.
    """
    licence = cells.get("licenses") or cells.get("license")
    if isinstance(licence, list):
        licence = ", ".join(str(name) for name in licence)
    return licence.strip() if isinstance(licence, str) else ""


def rename_classes(reference: str, candidate: str, entry_point: str = "") -> tuple[str, str, str]:
    """Returns both texts with the tools' class names, and the reference's former name; empty if
    nothing was renamed.

    `entry_point`: the class named by the corpus. Texts without a pair of classes, or with another
    use of Model or ModelNew, are unchanged.
    """
    try:
        entry = _entry(reference, candidate, entry_point)
        if not entry:
            return reference, candidate, ""
        names = {entry: REFERENCE_CLASS, f"{entry}New": CANDIDATE_CLASS}
        return _replaced(reference, names), _replaced(candidate, names), entry
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return reference, candidate, ""


def _entry(reference: str, candidate: str, entry_point: str) -> str:
    original, new = parse_module(reference), parse_module(candidate)
    pairs = [name for name in _classes(original) if f"{name}New" in _classes(new)]
    if not pairs or {REFERENCE_CLASS, CANDIDATE_CLASS} & (_names(original) | _names(new)):
        return ""
    return entry_point if entry_point in pairs else pairs[-1]


def _classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(_classes(tree))


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """Replaces whole names except attributes: `nn.LayerNorm` stays if the class is LayerNorm.
    Strings and comments stay.
    """
    lines, before, tokens = list(io.StringIO(text)), "", []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in names and before != ".":
            tokens.append(token)
        before = token.string
    # From the end, so earlier positions stay valid.
    for token in reversed(tokens):
        row, first, last = token.start[0] - 1, token.start[1], token.end[1]
        lines[row] = lines[row][:first] + names[token.string] + lines[row][last:]
    return "".join(lines)
