"""A row of a corpus, and its storage: parquet shards, written atomically, read a batch at a time."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Message
from kernelwright.tools.report import Value

SHARD_ROWS = 4096
"""Number of rows of a file. A shard of long rows takes some tens of MB in memory."""
READ_ROWS = 512
"""Number of rows read at a time."""
PARQUET_MAGIC = b"PAR1"
OPTIONAL_COLUMNS = frozenset({"messages"})
"""Columns missing in corpora of an earlier version."""


class Kind(StrEnum):
    """The task trained by a row."""

    DRAFT = "draft"
    """Reference -> candidate, in the compact form of prompts for small policies."""
    REPAIR = "repair"
    """Reference, broken candidate and the tools' message -> candidate."""
    FIM = "fim"
    """Text before and after a hole -> text of the hole (fill in the middle)."""
    TRANSLATE = "translate"
    """From CUDA, PyTorch or another source to Triton."""
    INSTRUCT = "instruct"
    """A question or a conversation -> its answer."""
    TEXT = "text"
    """Plain text, without a prompt."""


class Split(StrEnum):
    """Whether a row is trained on or held out, and the reason for holding it out."""

    TRAIN = "train"
    HELD_OUT_COMPOSITION = "held_out_composition"
    """Contains a pair of neighbouring operations absent from all training rows."""
    HELD_OUT_DEPTH = "held_out_depth"
    """A longer chain of operations than in any training row."""
    HELD_OUT_FAMILY = "held_out_family"
    """Rows of a family excluded from training."""


class Row(Value):
    """A training example. All fields except the texts have defaults, so some columns can be read
    alone.
    """

    id: str = ""
    """SHA-1 of kind, prompt and completion, hex."""
    kind: Kind = Kind.DRAFT
    prompt: str = ""
    """The exact input of the policy."""
    completion: str = ""
    """The exact expected output of the policy."""
    messages: tuple[Message, ...] = ()
    """The conversation whose text is `prompt`; empty for a single message of the user."""
    problem: str = ""
    """Name of the problem of the row."""
    reference: str = ""
    """The problem's source, or the source of a translated kernel; empty if there is none."""
    family: str = ""
    depth: int = 0
    """Number of operations in the reference's chain; 0 if unknown."""
    split: Split = Split.TRAIN
    source: str = ""
    """The corpus of origin: synth, inductor, kernelbook, two_csv, tree, jsonl ..."""
    licence: str = ""
    """SPDX name; empty if unknown."""
    provenance: str = ""
    """The position in the source: generator and seed, or file and line."""
    prompt_hash: str = ""
    """SHA-1 of the normalised text, hex."""
    completion_hash: str = ""
    compile: dict[str, bool] = {}
    """Whether the completion compiles, by target: `{"sm_90": True}`. Untried targets are absent."""
    correct: bool | None = None
    """The tools' verdict on correctness; None if not requested."""


def row_of(kind: Kind, prompt: str, completion: str, **facts: Any) -> Row:
    """Returns a row with its id and hashes."""
    return Row(
        id=_sha1(f"{kind}\0{prompt}\0{completion}"),
        kind=kind,
        prompt=prompt,
        completion=completion,
        prompt_hash=text_hash(prompt),
        completion_hash=text_hash(completion),
        **facts,
    )


def normalise_text(text: str) -> str:
    r"""Normalises newlines to \n, removes blanks at line ends, limits empty lines to two in a row,
    and ends the text with a single newline.

    Indentation is unchanged.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    stripped = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{4,}", "\n\n\n", stripped).strip("\n") + "\n"


def text_hash(text: str) -> str:
    """Returns the SHA-1 of the normalised text, hex: equal for exact duplicates."""
    return _sha1(normalise_text(text))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


# -------------------------------------------------------------- on the disk
def shards(path: Path) -> list[Path]:
    """Returns the parquet files of a folder in order, or the single file. Raises InputError if
    there is none.
    """
    if path.is_file():
        return [path]
    paths = sorted(path.glob("*.parquet")) if path.is_dir() else []
    if not paths:
        raise InputError(
            f"there is no corpus at {path}: give a folder with .parquet files, such as `rl data synth` writes"
        )
    return paths


def write_rows(folder: Path, rows: Iterable[Row], shard_rows: int = SHARD_ROWS) -> int:
    """Writes new shards of at most `shard_rows` rows after existing ones, and returns the number
    of rows.

    Each shard appears complete or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows, written = iter(rows), 0
    number = _next_number(folder)
    while batch := list(islice(rows, shard_rows)):
        write_shard(folder / f"rows-{number:05d}.parquet", batch)
        number, written = number + 1, written + len(batch)
    return written


def write_shard(path: Path, rows: Sequence[Row]) -> None:
    """Writes a parquet file under a temporary name, then renames it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [_cell(getattr(row, name)) for row in rows] for name in Row.model_fields}
    # Renamed when complete, so readers never see half a shard.
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.table(columns, schema=schema()), partial, compression="zstd")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_rows(corpus: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Yields the rows of a folder or a file, with a single batch in memory.

    Fields outside `columns` have their defaults. Raises InputError if there is no corpus, or a
    file is not a corpus file.
    """
    for path in shards(corpus):
        yield from _read(path, columns)


def count_rows(corpus: Path) -> int:
    """Counts the rows of a corpus by its footers. Raises InputError if there is none, or a file
    is damaged.
    """
    count = 0
    for path in shards(corpus):
        with _parquet(path) as file:
            count += file.metadata.num_rows
    return count


def is_corpus(corpus: Path) -> bool:
    """Returns whether a folder or a file holds rows in the format of `rl data`. Reads footers
    only.
    """
    paths = [corpus]
    if not corpus.is_file():
        paths = sorted(corpus.glob("*.parquet")) if corpus.is_dir() else []
    return bool(paths) and all(_has_row_columns(path) for path in paths)


def _has_row_columns(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        if file.read(4) != PARQUET_MAGIC:
            return False
    try:
        names = set(pq.ParquetFile(path).schema_arrow.names)
    except (pa.ArrowException, OSError):
        return False
    return set(Row.model_fields) - OPTIONAL_COLUMNS <= names


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Opens a parquet file. Raises InputError if the file or its content is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise InputError(
            f"{path} is not a readable parquet file: {str(error).splitlines()[0]} "
            "(`rl data import rows FILE --out CORPUS` makes a corpus of JSON Lines, CSV and other forms)"
        ) from error


def _read(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    with _parquet(path) as file:
        stored = set(file.schema_arrow.names)
        # Columns of earlier versions may be absent and get their defaults.
        missing = set(columns or Row.model_fields) - stored - OPTIONAL_COLUMNS
        if missing:
            raise InputError(
                f"{path} has no column {', '.join(sorted(missing))}: make a corpus of it with "
                "`rl data import rows FILE --out CORPUS` first"
            )
        selected = [name for name in columns or Row.model_fields if name in stored]
        for batch in file.iter_batches(READ_ROWS, columns=selected):
            yield from (_row(cells) for cells in batch.to_pylist())


def _row(cells: dict[str, Any]) -> Row:
    # Parquet returns maps as lists of pairs, and missing values as None.
    if "compile" in cells:
        cells["compile"] = dict(cells["compile"] or ())
    if "messages" in cells:
        cells["messages"] = cells["messages"] or ()
    return Row(**cells)


def _cell(value: object) -> Any:
    if isinstance(value, tuple):
        return [message.model_dump(mode="json") for message in value]
    return list(value.items()) if isinstance(value, dict) else value


def schema() -> Any:
    """Returns the pyarrow schema of a shard."""
    import pyarrow as pa

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    special = {
        "depth": pa.int32(), "correct": pa.bool_(), "compile": pa.map_(pa.string(), pa.bool_()),
        "messages": pa.list_(message),
    }  # fmt: skip
    return pa.schema([(name, special.get(name, pa.string())) for name in Row.model_fields])


def _next_number(folder: Path) -> int:
    numbers = [-1]
    for path in folder.glob("rows-*.parquet"):
        if match := re.match(r"rows-(\d+)\.", path.name):
            numbers.append(int(match[1]))
    return max(numbers) + 1
