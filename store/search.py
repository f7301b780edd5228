"""Full-text search over answers, code and failures: FTS5 on SQLite, to_tsvector on PostgreSQL,
LIKE elsewhere.

Words are runs of letters and digits: `tl.dot` is the phrase "tl dot", and `softmax` matches
`fused_softmax`. All terms must match. Double quotes join several words to a phrase; a trailing *
matches prefixes (`soft*` matches softmax).

    terms_of('"block size" soft*')
    [SearchTerm(("block", "size"), whole=True), SearchTerm(("soft",), whole=False)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    and_,
    column,
    delete,
    func,
    insert,
    select,
    table,
    text,
)
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped
from sqlmodel import col

from kernelwright.store.blobs import load_blobs, unpack_text
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.migrations.m0002_search import search_text
from kernelwright.store.models import Candidate, Trajectory, Verdict
from kernelwright.store.records import load_report
from kernelwright.tools.report import Failure, Report

MAX_SEARCHED_CHARACTERS = 100_000
"""Number of indexed characters of each text."""
CANDIDATE, VERDICT = "candidate", "verdict"


class SearchTerm(NamedTuple):
    """Word or phrase of a search."""

    words: tuple[str, ...]
    """Words of the phrase in order, in lower case."""
    whole: bool
    """Whether the last word must match completely; False also matches longer words with this
    prefix.
    """


def words_of(content: str) -> list[str]:
    """Returns the words of a text in lower case, without punctuation."""
    return re.findall(r"[^\W_]+", content.lower())


def terms_of(query: str) -> list[SearchTerm]:
    """Parses a query into terms.

    Raises StoreError if the query has neither letters nor digits.
    """
    parts = re.findall(r'"([^"]*)"|(\S+)', query)
    terms: list[SearchTerm] = []
    for quoted, bare in parts:
        words = tuple(words_of(quoted or bare))
        # Punctuation alone gives no words.
        if words:
            terms.append(SearchTerm(words, whole=not bare.endswith("*")))
    if not terms:
        raise StoreError(
            "nothing to search for: give a word, signs alone are not indexed", StoreTrouble.UNUSABLE
        )
    return terms


def index_candidate(
    connection: Connection, id: int, problem: str, reply: str, source: str | None
) -> None:
    """Adds problem, reply and source of a candidate to the full-text index."""
    _index(connection, CANDIDATE, id, f"{problem}\n{reply}\n{source or ''}")


def index_verdict(connection: Connection, id: int, report: Report) -> None:
    """Adds the failure of a verdict to the full-text index.

    Verdicts without a failure have no text.
    """
    if report.failure is not None:
        _index(connection, VERDICT, id, _failure_text(report.failure))


def _failure_text(failure: Failure) -> str:
    hint = failure.mismatch.hint if failure.mismatch else ""
    return "\n".join([failure.fault, failure.message, failure.trace, hint])


_FTS5 = {
    kind: insert(table(f"{kind}_text", column("rowid"), column("words")))
    for kind in (CANDIDATE, VERDICT)
}
_ELSEWHERE = insert(search_text)


def _index(connection: Connection, kind: str, id: int, content: str) -> None:
    words = " ".join(words_of(content[:MAX_SEARCHED_CHARACTERS]))
    if connection.dialect.name == "sqlite":
        connection.execute(_FTS5[kind], {"rowid": id, "words": words})
    else:
        connection.execute(_ELSEWHERE, {"kind": kind, "id": id, "words": f" {words} "})


def matching(dialect: str, kind: str, terms: Sequence[SearchTerm], ids: tuple[int, int]) -> Any:
    """Builds a SELECT of the ids in the inclusive range `ids` whose text matches all terms."""
    if dialect == "sqlite":
        table = f"{kind}_text"
        match = (
            f"SELECT rowid FROM {table} WHERE {table} MATCH :{kind}_words AND rowid BETWEEN :{kind}_first AND "
            f":{kind}_last"
        )
        values = {f"{kind}_words": _fts5(terms), f"{kind}_first": ids[0], f"{kind}_last": ids[1]}
        return text(match).bindparams(**values).columns(id=Integer)
    condition = _tsquery(terms) if dialect == "postgresql" else _like(terms)
    return select(search_text.c.id).where(
        search_text.c.kind == kind, search_text.c.id.between(*ids), condition
    )


def _fts5(terms: Sequence[SearchTerm]) -> str:
    """Builds an FTS5 query such as `"block size" "soft" *`."""
    phrases: list[str] = []
    for term in terms:
        phrase = " ".join(term.words)
        phrases.append(f'"{phrase}"' if term.whole else f'"{phrase}" *')
    return " ".join(phrases)


def _tsquery(terms: Sequence[SearchTerm]) -> ColumnElement[bool]:
    """Builds a condition with a query such as `('block' <-> 'size') & ('soft':*)`."""
    phrases: list[str] = []
    for term in terms:
        phrase = " <-> ".join(f"'{word}'" for word in term.words)
        phrases.append(phrase if term.whole else f"{phrase}:*")
    query = func.to_tsquery(text("'simple'"), " & ".join(f"({phrase})" for phrase in phrases))
    return func.to_tsvector(text("'simple'"), search_text.c.words).bool_op("@@")(query)


def _like(terms: Sequence[SearchTerm]) -> ColumnElement[bool]:
    """Builds LIKE conditions.

    Words contain neither % nor _, and indexed text begins and ends with a blank.
    """
    patterns = [f"% {' '.join(term.words)}{' ' if term.whole else ''}%" for term in terms]
    return and_(*(search_text.c.words.like(pattern) for pattern in patterns))


def excerpt(content: str, terms: Sequence[SearchTerm], width: int = 160) -> str:
    """Returns the first line with a search word, trying the words in the order of the query."""
    lines = content.splitlines()
    for word in (term.words[0] for term in terms):
        for line in lines:
            if (position := line.lower().find(word)) >= 0:
                start = max(0, position - width // 2)
                return line[start : start + width].strip()
    return ""


def sweep_index(connection: Connection) -> None:
    """Removes deleted rows from the full-text index.

    A contentless FTS5 table cannot delete single texts, so the index is rebuilt.
    """
    if connection.dialect.name != "sqlite":
        tables: tuple[tuple[str, Any], ...] = ((CANDIDATE, Candidate), (VERDICT, Verdict))
        for kind, table in tables:
            gone = search_text.c.id.not_in(select(col(table.id)))
            connection.execute(delete(search_text).where(search_text.c.kind == kind, gone))
        return
    # The docsize table lists the indexed ids; an id without a row means that a row was deleted.
    orphans = "SELECT EXISTS(SELECT 1 FROM {0}_text_docsize WHERE id NOT IN (SELECT id FROM {0}))"
    if any(
        connection.exec_driver_sql(orphans.format(kind)).scalar() for kind in (CANDIDATE, VERDICT)
    ):
        _rebuild(connection)


def _rebuild(connection: Connection) -> None:
    for kind in (CANDIDATE, VERDICT):
        connection.exec_driver_sql(f"INSERT INTO {kind}_text({kind}_text) VALUES ('delete-all')")
    columns = (
        col(Candidate.id),
        col(Trajectory.problem),
        col(Candidate.reply_id),
        col(Candidate.source_id),
    )
    answered = select(*columns).join(Trajectory, col(Candidate.trajectory_id) == col(Trajectory.id))
    for row in _pages(
        connection, answered.where(col(Candidate.reply_id).is_not(None)), col(Candidate.id)
    ):
        bodies = load_blobs(connection, row[2:])
        reply, source = (unpack_text(bodies.get(id, b"")) for id in row[2:])
        index_candidate(connection, row[0], row[1], reply, source)
    failed = select(col(Verdict.id), col(Verdict.report_id)).where(col(Verdict.fault).is_not(None))
    for id, report_id in _pages(connection, failed, col(Verdict.id)):
        index_verdict(connection, id, load_report(load_blobs(connection, [report_id])[report_id]))


def _pages(
    connection: Connection,
    statement: Select[*tuple[Any, ...]],
    id: Mapped[int],
    size: int = 500,
) -> Iterator[Any]:
    """Yields all rows in pages of `size`, ordered by `id`, the first column."""
    # Keyset paging: OFFSET would read all earlier rows again for every page.
    after = 0
    while rows := connection.execute(statement.where(id > after).order_by(id).limit(size)).all():
        yield from rows
        after = rows[-1][0]
