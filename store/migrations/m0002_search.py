"""Version 2: full-text search.

SQLite uses a contentless FTS5 table; other databases a table of words, with a GIN index on
PostgreSQL.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, TextClause, insert, text
from sqlalchemy.engine import Connection

metadata = MetaData()
search_text = Table(
    "search_text",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("words", Text, nullable=False),
)
FTS5_TABLE = "CREATE VIRTUAL TABLE {kind}_text USING fts5(words, content='', tokenize='unicode61 remove_diacritics 2')"
GIN_INDEX = "CREATE INDEX search_text_words ON search_text USING gin (to_tsvector('simple', words))"

CANDIDATES = text(
    "SELECT c.id, t.problem, r.packed, r.body, s.packed, s.body FROM candidate c JOIN trajectory t ON t.id "
    "= c.trajectory_id"
    " JOIN blob r ON r.id = c.reply_id LEFT JOIN blob s ON s.id = c.source_id"
    " WHERE c.id > :after ORDER BY c.id LIMIT 200"
)
VERDICTS = text(
    "SELECT v.id, b.packed, b.body FROM verdict v JOIN blob b ON b.id = v.report_id"
    " WHERE v.fault IS NOT NULL AND v.id > :after ORDER BY v.id LIMIT 200"
)


def apply(connection: Connection) -> None:
    """Adds the full-text index and indexes existing candidates and verdicts."""
    if connection.dialect.name == "sqlite":
        for kind in ("candidate", "verdict"):
            connection.exec_driver_sql(FTS5_TABLE.format(kind=kind))
    else:
        metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(GIN_INDEX)
    for row in _all(connection, CANDIDATES):
        _add(
            connection,
            "candidate",
            row[0],
            f"{row[1]}\n{_text(row[2], row[3])}\n{_text(row[4], row[5])}",
        )
    for row in _all(connection, VERDICTS):
        _add(connection, "verdict", row[0], _failure(_text(row[1], row[2])))


def _all(connection: Connection, statement: TextClause) -> Iterator[Any]:
    """Yields the rows of a statement page by page, because tables may exceed the memory."""
    after = 0
    while rows := connection.execute(statement, {"after": after}).all():
        yield from rows
        after = rows[-1][0]


def _text(packed: bool | None, body: bytes | None) -> str:
    if body is None:
        return ""
    return (zlib.decompress(body) if packed else bytes(body)).decode("utf-8", "surrogatepass")


def _failure(report: str) -> str:
    failure = json.loads(report)["failure"]
    mismatch = failure.get("mismatch") or {}
    return "\n".join(
        [failure["fault"], failure["message"], failure["trace"], mismatch.get("hint", "")]
    )


def _add(connection: Connection, kind: str, id: int, content: str) -> None:
    words = " ".join(re.findall(r"[^\W_]+", content[:100_000].lower()))
    if connection.dialect.name == "sqlite":
        connection.execute(
            text(f"INSERT INTO {kind}_text(rowid, words) VALUES (:id, :words)"),
            {"id": id, "words": words},
        )
    else:
        connection.execute(insert(search_text).values(kind=kind, id=id, words=f" {words} "))
