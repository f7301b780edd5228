"""Bytes that are kept once, and chains of them: what two prompts share at their beginning is one chain.

Token ids and log-probs come back bit for bit: int32 and float32 where every value fits, int64 and float64 where one
does not.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from sqlalchemy import bindparam, insert, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.orm import aliased
from sqlmodel import col

from kernelwright.store.connection.column_types import StoredRow
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.models import Blob, Link

TOKENS_LABEL = "tokens"
"""Label of the links that hold token ids."""

TOKENS_PER_LINK = 512
MAX_VALUES_PER_QUERY = 500
"""Names in one IN (...): under every database's limit of parameters."""


def pack_text(text: str) -> bytes:
    """Encodes text as UTF-8; lone surrogates, which a JSON answer may hold, survive."""
    return text.encode("utf-8", "surrogatepass")


def unpack_text(body: bytes) -> str:
    """Decodes the bytes that `pack_text` made."""
    return body.decode("utf-8", "surrogatepass")


def pack_integers(values: Sequence[int]) -> bytes:
    """Packs integers as one byte for the width, then little-endian. Raises StoreError where a value needs more than 64
    bits.
    """
    try:
        return _pack(array("i", values))
    except OverflowError:
        pass
    try:
        return _pack(array("q", values))
    except OverflowError as error:
        raise StoreError(
            "a token id needs more than 64 bits: no tokenizer has such", StoreTrouble.INVALID
        ) from error


def pack_numbers(values: Sequence[float]) -> bytes:
    """float32 where that loses nothing, which is what samplers compute in; else float64."""
    narrow = array("f", values)
    return _pack(narrow if narrow.tolist() == [float(v) for v in values] else array("d", values))


def unpack_numbers(body: bytes) -> tuple[Any, ...]:
    """Returns the values that `pack_integers` or `pack_numbers` packed."""
    values = array(chr(body[0]))
    values.frombytes(body[1:])
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)


def _pack(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.typecode.encode() + values.tobytes()


def address(body: bytes) -> str:
    """Returns the SHA-256 of a body as 64 hexadecimal digits, by which the body is found again."""
    return hashlib.sha256(body).hexdigest()


def compress(body: bytes) -> tuple[bool, bytes]:
    """Whether it was worth it, and the shorter of the two."""
    packed = zlib.compress(body)
    return (True, packed) if len(packed) < len(body) else (False, body)


def decompress(packed: bool, body: bytes) -> bytes:
    """Raises StoreError where the bytes are damaged."""
    try:
        return zlib.decompress(body) if packed else body
    except zlib.error as error:
        raise StoreError(
            f"a blob of the database is damaged ({error}): save the rest with `sqlite3 FILE .recover`",
            StoreTrouble.CORRUPT,
        ) from error


def split_into_batches(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Distinct values, at most MAX_VALUES_PER_QUERY at a time."""
    rest = list(dict.fromkeys(values))
    for start in range(0, len(rest), MAX_VALUES_PER_QUERY):
        yield rest[start : start + MAX_VALUES_PER_QUERY]


@cache
def _insert(table: str, dialect: str) -> Any:
    target = StoredRow.metadata.tables[table]
    new: Any
    match dialect:
        case "sqlite":
            new = sqlite.insert(target).on_conflict_do_nothing(index_elements=["hash"])
        case "postgresql":
            new = postgresql.insert(target).on_conflict_do_nothing(index_elements=["hash"])
        case _:
            new = insert(target)
    return new.returning(target.c.hash, target.c.id)


@cache
def _find(table: str, one: bool) -> Any:
    """An IN (...) is written anew for every number of names: for one name, the most frequent number, there is none."""
    target = StoredRow.metadata.tables[table]
    named = (
        target.c.hash == bindparam("hashes")
        if one
        else target.c.hash.in_(bindparam("hashes", expanding=True))
    )
    return select(target.c.hash, target.c.id).where(named)


def ids_by_hash(connection: Connection, table: str, hashes: Iterable[str]) -> dict[str, int]:
    """Returns the row of each hash that the table holds; hashes that it lacks are left out."""
    found: dict[str, int] = {}
    for part in split_into_batches(hashes):
        one = len(part) == 1
        wanted = {"hashes": part[0] if one else part}
        found.update((hash, id) for hash, id in connection.execute(_find(table, one), wanted))
    return found


def insert_missing(
    connection: Connection, table: str, rows: Sequence[dict[str, Any]]
) -> dict[str, int]:
    """The ids of the rows with these hashes, added where there are none, also where another process adds them at
    this moment.
    """
    dialect = connection.dialect.name
    new = {row["hash"]: row for row in rows}
    there = {} if dialect in ("sqlite", "postgresql") else ids_by_hash(connection, table, new)
    if missing := [
        new[hash] for hash in sorted(new.keys() - there.keys())
    ]:  # in one order: no deadlock on a server
        there.update(
            (hash, id) for hash, id in connection.execute(_insert(table, dialect), missing)
        )
    return there | ids_by_hash(connection, table, new.keys() - there.keys())


def save_blobs(connection: Connection, bodies: Sequence[bytes]) -> list[int]:
    """Saves bodies and returns the id of each, in order. A body that is stored already is not written again."""
    rows = [_blob_row(body) for body in bodies]
    ids = insert_missing(connection, "blob", rows)
    return [ids[row["hash"]] for row in rows]


def _blob_row(body: bytes) -> dict[str, Any]:
    packed, short = compress(body)
    return {"hash": address(body), "size": len(body), "packed": packed, "body": short}


_BODIES = select(col(Blob.id), col(Blob.packed), col(Blob.body)).where(
    col(Blob.id).in_(bindparam("ids", expanding=True))
)


def load_blobs(connection: Connection, ids: Iterable[int | None]) -> dict[int, bytes]:
    """Returns the bodies of these rows, decompressed, by their row; None among the ids is skipped."""
    bodies: dict[int, bytes] = {}
    for part in split_into_batches(id for id in ids if id is not None):
        for id, packed, body in connection.execute(_BODIES, {"ids": part}):
            bodies[id] = decompress(packed, bytes(body))
    return bodies


def save_chain(connection: Connection, pieces: Sequence[tuple[str, bytes]]) -> int | None:
    """The last link of a chain of (label, bytes); only links that are not there yet are written. None for no pieces."""
    hashes = _chain_hashes(pieces)
    ids = ids_by_hash(connection, "link", hashes)
    new = [
        (hash, label, body)
        for hash, (label, body) in zip(hashes, pieces, strict=True)
        if hash not in ids
    ]
    before = {hash: earlier for earlier, hash in pairwise(hashes)}
    blobs = save_blobs(connection, [body for _, _, body in new])
    for (hash, label, _), blob_id in zip(new, blobs, strict=True):
        link = {
            "hash": hash,
            "before_id": ids.get(before.get(hash, "")),
            "label": label,
            "blob_id": blob_id,
        }
        ids |= insert_missing(connection, "link", [link])
    return ids[hashes[-1]] if hashes else None


def _chain_hashes(pieces: Sequence[tuple[str, bytes]]) -> list[str]:
    hashes: list[str] = []
    for label, body in pieces:
        before = hashes[-1] if hashes else ""
        hashes.append(address(f"{before}\n{label}\n{address(body)}".encode()))
    return hashes


def load_chains(
    connection: Connection, heads: Iterable[int | None]
) -> dict[int, list[tuple[str, bytes]]]:
    """The pieces of each chain, first to last, by the id of its last link."""
    places: dict[int, list[tuple[str, int]]] = {}
    for part in split_into_batches(head for head in heads if head is not None):
        for head, label, blob_id in connection.execute(_walk(part)):
            places.setdefault(head, []).append((label, blob_id))
    bodies = load_blobs(connection, (blob_id for chain in places.values() for _, blob_id in chain))
    return {
        head: [(label, bodies[blob_id]) for label, blob_id in chain]
        for head, chain in places.items()
    }


def _walk(heads: Sequence[int]) -> Any:
    """Every link of the chains that end in `heads`, each chain from its first."""
    link, before = aliased(Link), aliased(Link)
    start: Any = select(
        col(link.id).label("head"),
        col(link.before_id),
        col(link.label),
        col(link.blob_id),
        literal(0).label("step"),
    ).where(col(link.id).in_(heads))
    chain = start.cte("chain", recursive=True)
    step = select(
        chain.c.head,
        col(before.before_id),
        col(before.label),
        col(before.blob_id),
        chain.c.step + 1,
    )
    chain = chain.union_all(step.join(chain, col(before.id) == chain.c.before_id))
    return select(chain.c.head, chain.c.label, chain.c.blob_id).order_by(
        chain.c.head, chain.c.step.desc()
    )


def token_pieces(ids: Sequence[int]) -> list[tuple[str, bytes]]:
    """Runs of TOKENS_A_LINK ids, so that a prompt that grows at its end shares its beginning."""
    starts = range(0, max(len(ids), 1), TOKENS_PER_LINK)
    return [(TOKENS_LABEL, pack_integers(ids[start : start + TOKENS_PER_LINK])) for start in starts]


def join_tokens(pieces: Sequence[tuple[str, bytes]]) -> tuple[int, ...]:
    """Joins the pieces that `token_pieces` made."""
    return tuple(token for _, body in pieces for token in unpack_numbers(body))
