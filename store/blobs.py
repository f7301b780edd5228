"""Content-addressed storage: blobs are stored once, and chains of blobs share equal beginnings.

A chain is a linked list from the last piece to the first. Its links are addressed by the hash of
everything before them, so two prompts with equal first messages share these links:

    save_chain([("system", S), ("user", A)])                     links 1 <- 2
    save_chain([("system", S), ("user", A), ("assistant", B)])   links 1 <- 2 <- 3 (only link 3 is written)

Token ids and log-probs are restored bit for bit: int32 and float32 if every value fits, otherwise
int64 and float64.
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
"""Label of links that hold token ids."""

TOKENS_PER_LINK = 512
"""Number of token ids in a link of a chain."""
MAX_VALUES_PER_QUERY = 500
"""Maximum number of values in an IN (...) clause, below the parameter limit of every database."""


def pack_text(text: str) -> bytes:
    """Encodes text as UTF-8. Lone surrogates, which JSON answers may contain, are preserved."""
    return text.encode("utf-8", "surrogatepass")


def unpack_text(body: bytes) -> str:
    """Decodes bytes written by `pack_text`."""
    return body.decode("utf-8", "surrogatepass")


def pack_integers(values: Sequence[int]) -> bytes:
    """Packs integers as a type code byte and little-endian values of 32 or 64 bits.

    Raises StoreError if a value needs more than 64 bits.
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
    """Packs numbers as float32 if no value loses precision (samplers compute in float32),
    otherwise as float64.
    """
    narrow = array("f", values)
    # Comparing after the conversion finds every value that float32 rounds (NaN also falls back).
    lossless = narrow.tolist() == [float(value) for value in values]
    return _pack(narrow if lossless else array("d", values))


def unpack_numbers(body: bytes) -> tuple[Any, ...]:
    """Unpacks the values packed by `pack_integers` or `pack_numbers`."""
    # The first byte is the type code of the array: i, q, f or d.
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
    """Returns the SHA-256 of a body as 64 hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def compress(body: bytes) -> tuple[bool, bytes]:
    """Returns (compressed?, bytes): the zlib form of the body if shorter, otherwise the body
    itself.
    """
    packed = zlib.compress(body)
    return (True, packed) if len(packed) < len(body) else (False, body)


def decompress(packed: bool, body: bytes) -> bytes:
    """Restores a body from its stored bytes. Raises StoreError if the bytes are damaged."""
    try:
        return zlib.decompress(body) if packed else body
    except zlib.error as error:
        raise StoreError(
            f"a blob of the database is damaged ({error}): save the rest with `sqlite3 FILE .recover`",
            StoreTrouble.CORRUPT,
        ) from error


def split_into_batches(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Yields the distinct values in batches of at most MAX_VALUES_PER_QUERY."""
    distinct = list(dict.fromkeys(values))
    for start in range(0, len(distinct), MAX_VALUES_PER_QUERY):
        yield distinct[start : start + MAX_VALUES_PER_QUERY]


@cache
def _insert(table: str, dialect: str) -> Any:
    """Builds the INSERT for rows addressed by hash; returns hash and id of each inserted row."""
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
def _find(table: str, single: bool) -> Any:
    """Builds the query for rows by hash.

    A single hash is compared with `=`: SQLAlchemy renders IN (...) anew for every number of
    values, and one hash is the most frequent case.
    """
    target = StoredRow.metadata.tables[table]
    named = (
        target.c.hash == bindparam("hashes")
        if single
        else target.c.hash.in_(bindparam("hashes", expanding=True))
    )
    return select(target.c.hash, target.c.id).where(named)


def ids_by_hash(connection: Connection, table: str, hashes: Iterable[str]) -> dict[str, int]:
    """Returns the row id for each hash in the table; unknown hashes are omitted."""
    ids: dict[str, int] = {}
    for part in split_into_batches(hashes):
        single = len(part) == 1
        parameters = {"hashes": part[0] if single else part}
        ids.update((hash, id) for hash, id in connection.execute(_find(table, single), parameters))
    return ids


def insert_missing(
    connection: Connection, table: str, rows: Sequence[dict[str, Any]]
) -> dict[str, int]:
    """Inserts the rows whose hashes are new and returns the ids of all rows by hash.

    Safe if another process inserts equal rows concurrently.
    """
    dialect = connection.dialect.name
    new = {row["hash"]: row for row in rows}
    ids = {} if dialect in ("sqlite", "postgresql") else ids_by_hash(connection, table, new)
    # Sorted, because two processes that insert equal rows in different orders deadlock on a server.
    missing = [new[hash] for hash in sorted(new.keys() - ids.keys())]
    if missing:
        inserted = connection.execute(_insert(table, dialect), missing)
        ids.update((hash, id) for hash, id in inserted)
    # ON CONFLICT DO NOTHING returns no id for rows that existed before: look these up.
    return ids | ids_by_hash(connection, table, new.keys() - ids.keys())


def save_blobs(connection: Connection, bodies: Sequence[bytes]) -> list[int]:
    """Saves bodies and returns their ids in order.

    A body already stored is not written again.
    """
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
    """Loads bodies by row id, decompressed. None among the ids is skipped."""
    bodies: dict[int, bytes] = {}
    for part in split_into_batches(id for id in ids if id is not None):
        for id, packed, body in connection.execute(_BODIES, {"ids": part}):
            bodies[id] = decompress(packed, bytes(body))
    return bodies


def save_chain(connection: Connection, pieces: Sequence[tuple[str, bytes]]) -> int | None:
    """Saves a chain of (label, bytes) and returns the id of the last link; None for an empty
    chain. Only new links are written.
    """
    hashes = _chain_hashes(pieces)
    # A hash covers everything before its link, so links found in the table form the shared prefix.
    ids = ids_by_hash(connection, "link", hashes)
    new = [
        (hash, label, body)
        for hash, (label, body) in zip(hashes, pieces, strict=True)
        if hash not in ids
    ]
    before = {hash: earlier for earlier, hash in pairwise(hashes)}
    blobs = save_blobs(connection, [body for _, _, body in new])
    # First to last: each new link refers to the id of the link before.
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
    """Loads the pieces of chains, first to last, by the id of the last link of each chain."""
    links_by_head: dict[int, list[tuple[str, int]]] = {}
    for part in split_into_batches(head for head in heads if head is not None):
        for head, label, blob_id in connection.execute(_walk(part)):
            links_by_head.setdefault(head, []).append((label, blob_id))
    blob_ids = [blob_id for chain in links_by_head.values() for _, blob_id in chain]
    bodies = load_blobs(connection, blob_ids)
    chains: dict[int, list[tuple[str, bytes]]] = {}
    for head, chain in links_by_head.items():
        chains[head] = [(label, bodies[blob_id]) for label, blob_id in chain]
    return chains


def _walk(heads: Sequence[int]) -> Any:
    """Builds a recursive query for all links of the chains that end in `heads`, ordered from
    first to last link.
    """
    link, before = aliased(Link), aliased(Link)
    start: Any = select(
        col(link.id).label("head"),
        col(link.before_id),
        col(link.label),
        col(link.blob_id),
        literal(0).label("step"),
    ).where(col(link.id).in_(heads))
    # The recursion starts at the heads (step 0) and follows `before_id` towards the first link.
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
    """Splits token ids into pieces of TOKENS_PER_LINK. A prompt that grows at its end shares its
    first pieces.
    """
    # An empty list gives a single empty piece, so that it differs from missing ids.
    starts = range(0, max(len(ids), 1), TOKENS_PER_LINK)
    return [(TOKENS_LABEL, pack_integers(ids[start : start + TOKENS_PER_LINK])) for start in starts]


def join_tokens(pieces: Sequence[tuple[str, bytes]]) -> tuple[int, ...]:
    """Joins the pieces made by `token_pieces`."""
    return tuple(token for _, body in pieces for token in unpack_numbers(body))
