"""Reads the records of a file of rows: Parquet, Arrow, JSON Lines, JSON or CSV, compressed or
not.

The container is recognized by the first bytes of the file. Names are unreliable: `rows.json` is
often JSON Lines, and an export may have no extension.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.csv_records import read_csv_records, split_header

ACCEPTED_FORMS = (
    "accepted are Parquet, Arrow, JSON Lines, JSON and CSV (also gzip, bz2, xz, zstd) with the fields messages, "
    "conversations, prompt and completion, instruction and output, question and answer, prompt and chosen, or text"
)
BATCH_ROWS = 512
FOLDER_SUFFIXES = ((".parquet",), (".arrow",), (".jsonl", ".ndjson"), (".json",), (".csv", ".tsv"))
"""Suffixes of the files read from a folder: the first group with a file in the folder."""
COMPRESSION_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4")
COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
"""First bytes of compressed files, with the names of pyarrow's codecs."""
XZ_MAGIC = b"\xfd7zXZ"
OTHER_FILES = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"SQLite format 3": "a database: `agent export --format sft --db FILE --out sft.jsonl` writes rows of it",
}
"""First bytes of files without rows, with their description."""
MAGIC_BYTES = 16


class ImportedRecord(NamedTuple):
    """A record of a file, with its position."""

    location: str
    """`FILE:LINE`, or `FILE:NUMBER` if the file has no lines."""
    fields: dict[str, Any]
    error: str = ""
    """Reason against reading the record; empty if readable."""


def files_of(path: Path) -> list[Path]:
    """Returns the files of rows in a folder, or the single file. Raises InputError if there is
    none.
    """
    if not path.exists():
        raise InputError(f"there is nothing at {path}: name a file of rows, or a folder of them")
    if path.is_file():
        return [path]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    for suffixes in FOLDER_SUFFIXES:
        files = [entry for entry in entries if entry.is_file() and _suffix(entry) in suffixes]
        if files:
            return files
    folders = [entry.name for entry in entries if entry.is_dir()]
    hint = (
        f"; it has the folders {', '.join(folders[:5])}: name one, or a file"
        if folders
        else ": name a file"
    )
    accepted = ", ".join(suffix for suffixes in FOLDER_SUFFIXES for suffix in suffixes)
    raise InputError(f"the folder {path} holds no file of rows ({accepted}){hint}")


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for compression in COMPRESSION_SUFFIXES:
        name = name.removesuffix(compression)
    return Path(name).suffix


def read_records(file: Path, known_fields: Collection[str]) -> Iterator[ImportedRecord]:
    """Yields the records of a file. Of Parquet and Arrow only columns among `known_fields` are
    read.

    Raises InputError if the file is empty, damaged, or of an unknown container.
    """
    try:
        with _open(file) as stream:
            yield from _records(file, stream, known_fields)
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 at byte {error.start}: save it as UTF-8") from error
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InputError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def _open(file: Path) -> IO[bytes]:
    """Opens a file for reading in binary, decompressed if compressed."""
    with file.open("rb") as raw:
        magic = raw.read(MAGIC_BYTES)
    if magic.startswith(XZ_MAGIC):
        return lzma.open(file)
    for start, codec in COMPRESSIONS.items():
        if magic.startswith(start):
            import pyarrow as pa

            return io.BufferedReader(pa.input_stream(str(file), compression=codec))
    return file.open("rb")


def _records(
    file: Path, stream: IO[bytes], known_fields: Collection[str]
) -> Iterator[ImportedRecord]:
    # Peeking does not consume the stream.
    start = cast("io.BufferedReader", stream).peek(MAGIC_BYTES)[:1024]
    if not start:
        raise InputError(f"{file} is empty")
    for magic, description in OTHER_FILES.items():
        if start.startswith(magic):
            raise InputError(f"{file} is no file of rows but {description}")
    if start.startswith(b"PAR1"):
        return _parquet_records(file, known_fields)
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return _arrow_records(file, start.startswith(b"ARROW1"), known_fields)
    if b"\0" in start:
        raise InputError(f"{file} is no file of rows: it is binary, and neither Parquet nor Arrow")
    return _text_records(file, stream, known_fields)


def _parquet_records(file: Path, known_fields: Collection[str]) -> Iterator[ImportedRecord]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
        names = parquet.schema_arrow.names
        columns = [name for name in names if name in known_fields] or names
        batches = parquet.iter_batches(BATCH_ROWS, columns=columns)
        yield from _numbered(file, (fields for batch in batches for fields in batch.to_pylist()))
    except pa.ArrowException as error:
        raise InputError(
            f"{file} is not a readable parquet file: {str(error).splitlines()[0]}"
        ) from error


def _arrow_records(
    file: Path, is_random_access: bool, known_fields: Collection[str]
) -> Iterator[ImportedRecord]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as mapped:
            reader = pa.ipc.open_file(mapped) if is_random_access else pa.ipc.open_stream(mapped)
            columns = [
                name for name in reader.schema.names if name in known_fields
            ] or reader.schema.names
            table = reader.read_all().select(columns)
            batches = table.to_batches(max_chunksize=BATCH_ROWS)
            yield from _numbered(
                file, (fields for batch in batches for fields in batch.to_pylist())
            )
    except pa.ArrowException as error:
        raise InputError(
            f"{file} is not a readable Arrow file: {str(error).splitlines()[0]}"
        ) from error


def _numbered(file: Path, entries: Iterator[Any]) -> Iterator[ImportedRecord]:
    for number, fields in enumerate(entries, 1):
        yield _record(f"{file.name}:{number}", fields)


def _record(location: str, entry: object) -> ImportedRecord:
    if not isinstance(entry, dict):
        raise InputError(f"{location} is no object with fields: a row looks like {{...}}")
    return ImportedRecord(location, entry)


def _text_records(
    file: Path, stream: IO[bytes], known_fields: Collection[str]
) -> Iterator[ImportedRecord]:
    # A byte that is not UTF-8 becomes a lone surrogate in CSV, so that it costs its own record and no other.
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    blank_lines = 0
    first = text.readline()
    while first and not first.strip():
        blank_lines += 1
        first = text.readline()
    if not first:
        raise InputError(f"{file} is empty")
    mark = first.lstrip()[0]
    if mark == "[":
        return _array(file, first + text.read())
    if mark == "{":
        return _objects(file, first, blank_lines + 1, text, known_fields)
    return _csv(file, first, text, known_fields)


def _array(file: Path, content: str) -> Iterator[ImportedRecord]:
    return _numbered(file, iter(_parsed(content, str(file))))


def _objects(
    file: Path, first: str, line: int, text: IO[str], known_fields: Collection[str]
) -> Iterator[ImportedRecord]:
    """Yields the objects of JSON Lines, or of a single object written over several lines or
    holding a list of objects.
    """
    _check_utf8(first, f"{file}:{line}")
    try:
        entry = json.loads(first)
    except ValueError:
        whole = _parsed(first + text.read(), f"{file}:{line}")
        yield from _numbered(file, iter(_listed(whole, known_fields)))
        return
    next_line = text.readline()
    # A single line may be a whole JSON document.
    if not next_line:
        yield from _numbered(file, iter(_listed(entry, known_fields)))
        return
    yield _record(f"{file.name}:{line}", entry)
    while next_line:
        line += 1
        if next_line.strip():
            yield _record(f"{file.name}:{line}", _parsed(next_line, f"{file}:{line}"))
        next_line = text.readline()


def _listed(entry: dict[str, Any], known_fields: Collection[str]) -> list[Any]:
    """Returns the rows of a JSON object: the object itself, or the only list of objects in it
    (`{"data": [...]}`).
    """
    if set(entry) & set(known_fields):
        return [entry]
    lists = [
        value
        for value in entry.values()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    return lists[0] if len(lists) == 1 else [entry]


def _parsed(text: str, location: str) -> Any:
    _check_utf8(text, location)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{location} is not JSON: {error}") from error
    except RecursionError as error:
        raise InputError(
            f"{location} is not JSON that can be read: it is nested too deeply"
        ) from error


def _check_utf8(text: str, location: str) -> None:
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise InputError(f"{location} is not UTF-8: save it as UTF-8")


def _csv(
    file: Path, header: str, text: IO[str], known_fields: Collection[str]
) -> Iterator[ImportedRecord]:
    by_delimiter = split_header(header.rstrip("\r\n"))
    # The delimiter with the most known column names.
    names, delimiter = max(
        ((names, delimiter) for delimiter, names in by_delimiter.items()),
        key=lambda pair: len(set(pair[0]) & set(known_fields)),
    )
    if not set(names) & set(known_fields):
        raise InputError(
            f"{file} is no file of rows: it begins with {header.strip()[:40]!r}; {ACCEPTED_FORMS}"
        )
    for record in read_csv_records(text, len(names), delimiter):
        location = f"{file.name}:{record.line + 1}"
        yield ImportedRecord(location, dict(zip(names, record.cells, strict=False)), record.error)
