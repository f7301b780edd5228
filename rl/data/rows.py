"""One row of a corpus, and how rows lie on a disk: parquet shards, written whole or not at all, read a batch at a
time.
"""

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
"""Rows of one file. A shard of long rows is some tens of MB in memory."""
READ_ROWS = 512
PARQUET_MAGIC = b"PAR1"
OPTIONAL_COLUMNS = frozenset({"messages"})
"""Columns that corpora of an earlier version lack."""


class Kind(StrEnum):
    """The task that a row trains."""

    DRAFT = "draft"
    """Reference -> candidate, in the compact form that the agent asks small policies in."""
    REPAIR = "repair"
    """Reference, broken candidate and the tools' message -> candidate."""
    FIM = "fim"
    """Fill in the middle."""
    TRANSLATE = "translate"
    """From CUDA, PyTorch or another source to Triton."""
    INSTRUCT = "instruct"
    """A question or a conversation, and its answer."""
    TEXT = "text"
    """A text as it is, without a prompt."""


class Split(StrEnum):
    """Whether a row is trained on or held out, and why it is held out."""

    TRAIN = "train"
    HELD_OUT_COMPOSITION = "held_out_composition"
    """Holds a pair of neighbouring operations that no training row has."""
    HELD_OUT_DEPTH = "held_out_depth"
    """A longer chain of operations than any training row."""
    HELD_OUT_FAMILY = "held_out_family"
    """Rows of a family that training leaves out whole."""


class Row(Value):
    """One training example. Everything but its texts has a default, so that some columns can be read alone."""

    id: str = ""
    """SHA-1 over kind, prompt and completion as they are, hex."""
    kind: Kind = Kind.DRAFT
    prompt: str = ""
    """Exactly what the policy is shown."""
    completion: str = ""
    """Exactly what the policy has to say."""
    messages: tuple[Message, ...] = ()
    """The conversation that `prompt` is the text of; empty where it is one message of the user."""
    problem: str = ""
    """The name of the problem."""
    reference: str = ""
    """The problem's source, or the source that a kernel was made from; empty where there is none."""
    family: str = ""
    depth: int = 0
    """Operations in the reference's chain; 0 where unknown."""
    split: Split = Split.TRAIN
    source: str = ""
    """The corpus that the row is from: synth, inductor, kernelbook, two_csv, tree, jsonl ..."""
    licence: str = ""
    """SPDX name, empty where unknown."""
    provenance: str = ""
    """The place in the source: generator and seed, or file and line."""
    prompt_hash: str = ""
    """SHA-1 over the normalised text, hex."""
    completion_hash: str = ""
    compile: dict[str, bool] = {}
    """Whether it compiles, by target: `{"sm_90": True}`. A target that was not tried is absent."""
    correct: bool | None = None
    """The tools' verdict on correctness; None where it was not asked for."""


def row_of(kind: Kind, prompt: str, completion: str, **facts: Any) -> Row:
    """A row with its id and hashes."""
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
    """Newlines as \\n, no blanks at the ends of lines, at most two empty lines together, one newline at the end.

    Indentation stays as it is.
    """
    lines = [
        line.rstrip()
        for line in text.removeprefix("\ufeff")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .split("\n")
    ]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n") + "\n"


def text_hash(text: str) -> str:
    """SHA-1 of the normalised text, hex: what exact duplicates have in common."""
    return _sha1(normalise_text(text))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


# -------------------------------------------------------------- on the disk
def shards(place: Path) -> list[Path]:
    """The parquet files of a folder in order, or the one file. Raises InputError where there is none."""
    if place.is_file():
        return [place]
    found = sorted(place.glob("*.parquet")) if place.is_dir() else []
    if not found:
        raise InputError(
            f"there is no corpus at {place}: give a folder with .parquet files, such as `rl data synth` writes"
        )
    return found


def write_rows(folder: Path, rows: Iterable[Row], shard_rows: int = SHARD_ROWS) -> int:
    """Adds shards of at most `shard_rows` after those that are there.

    How many rows were written. Each shard appears whole or not at all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows, written = iter(rows), 0
    number = _next_number(folder)
    while batch := list(islice(rows, shard_rows)):
        write_shard(folder / f"rows-{number:05d}.parquet", batch)
        number, written = number + 1, written + len(batch)
    return written


def write_shard(path: Path, rows: Sequence[Row]) -> None:
    """Writes one parquet file under a temporary name and renames it when it is complete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [_cell(getattr(row, name)) for row in rows] for name in Row.model_fields}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.table(columns, schema=schema()), partial, compression="zstd")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_rows(place: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of a folder or a file, a batch in memory at a time.

    Fields that are not among `columns` have their defaults.

    Raises: InputError where there is no corpus, or a file is not one of ours.
    """
    for path in shards(place):
        yield from _read(path, columns)


def count_rows(place: Path) -> int:
    """Counts the rows of a corpus by its footers. Raises InputError where there is none, or a file is damaged."""
    count = 0
    for path in shards(place):
        with _parquet(path) as file:
            count += file.metadata.num_rows
    return count


def is_corpus(place: Path) -> bool:
    """Whether a folder or a file holds rows in the form that `rl data` writes. Reads footers only."""
    paths = (
        [place] if place.is_file() else sorted(place.glob("*.parquet")) if place.is_dir() else []
    )
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
    """Opens a parquet file. Raises InputError where it, or what is read of it, is damaged."""
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
        there = set(file.schema_arrow.names)
        missing = set(columns or Row.model_fields) - there - OPTIONAL_COLUMNS
        if missing:
            raise InputError(
                f"{path} has no column {', '.join(sorted(missing))}: make a corpus of it with "
                "`rl data import rows FILE --out CORPUS` first"
            )
        wanted = [name for name in columns or Row.model_fields if name in there]
        for batch in file.iter_batches(READ_ROWS, columns=wanted):
            yield from (_row(cells) for cells in batch.to_pylist())


def _row(cells: dict[str, Any]) -> Row:
    if "compile" in cells:
        cells["compile"] = dict(cells["compile"] or ())
    if "messages" in cells:
        cells["messages"] = cells["messages"] or ()
    return Row(**cells)


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return [message.model_dump(mode="json") for message in value]
    return list(value.items()) if isinstance(value, dict) else value


def schema() -> Any:
    """The pyarrow schema of a shard."""
    import pyarrow as pa

    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    special = {
        "depth": pa.int32(), "correct": pa.bool_(), "compile": pa.map_(pa.string(), pa.bool_()),
        "messages": pa.list_(message),
    }  # fmt: skip
    return pa.schema([(name, special.get(name, pa.string())) for name in Row.model_fields])


def _next_number(folder: Path) -> int:
    numbers = [
        int(m[1])
        for path in folder.glob("rows-*.parquet")
        if (m := re.match(r"rows-(\d+)\.", path.name))
    ]
    return max(numbers, default=-1) + 1
