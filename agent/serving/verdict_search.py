"""Finds verdicts in the record: by state, client, group, problem, fault and time, page by page."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import sqlalchemy as sa
from pydantic import Field

from kernelwright.agent.serving.record import (
    PLAIN_COLUMNS,
    RememberedVerdict,
    VerdictDatabase,
    remembered,
)
from kernelwright.agent.serving.tables import SUBMISSION, VERDICT
from kernelwright.agent.serving.wire import Moment, State, WireValue
from kernelwright.tools.faults import Fault

MAX_LISTED = 200
"""Maximum number of verdicts on a page."""


class VerdictQuery(WireValue):
    """Filter for a list of verdicts; all given parts must hold."""

    state: State | None = None
    client: Annotated[str | None, Field(max_length=64)] = None
    """Client among the submitters."""
    group: Annotated[str | None, Field(max_length=200)] = None
    """Group among those of the submissions."""
    problem: Annotated[str | None, Field(max_length=200)] = None
    fault: Fault | None = None
    since: Moment | None = None
    """Submitted at this time or later, in seconds since 1970."""
    until: Moment | None = None
    """Submitted before this time, in seconds since 1970."""
    before: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    """Value of `next` from the previous page."""
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 50


class Submitters(NamedTuple):
    """Clients and groups of a verdict's submissions."""

    clients: tuple[str, ...]
    groups: tuple[str, ...]


def find_verdicts(
    record: VerdictDatabase, query: VerdictQuery, viewer: str | None
) -> list[RememberedVerdict]:
    """Returns the verdicts of a query, newest first.

    viewer: client restricted to verdicts of its own submissions; None: no restriction.
    """
    statement = sa.select(*PLAIN_COLUMNS).order_by(VERDICT.c.sequence.desc()).limit(query.limit)
    statement = statement.where(*_conditions(query))
    if viewer is not None:
        statement = statement.where(_is_submitted(SUBMISSION.c.client == viewer))
    with record.read() as connection:
        return [remembered(row) for row in connection.execute(statement).mappings()]


def _conditions(query: VerdictQuery) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if query.state is not None:
        conditions.append(VERDICT.c.state == query.state.value)
    if query.problem is not None:
        conditions.append(VERDICT.c.problem == query.problem)
    if query.fault is not None:
        conditions.append(sa.func.json_extract(VERDICT.c.score, "$.fault") == query.fault.value)
    if query.since is not None:
        conditions.append(VERDICT.c.submitted >= query.since)
    if query.until is not None:
        conditions.append(VERDICT.c.submitted < query.until)
    if query.before is not None:
        conditions.append(VERDICT.c.sequence < query.before)
    # One submission has both: a client's group of that name, not another client's.
    submitted: list[sa.ColumnElement[bool]] = []
    if query.client is not None:
        submitted.append(SUBMISSION.c.client == query.client)
    if query.group is not None:
        submitted.append(SUBMISSION.c.group == query.group)
    if submitted:
        conditions.append(_is_submitted(*submitted))
    return conditions


def _is_submitted(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Returns the SQL condition for verdicts with such a submission."""
    return sa.exists().where(SUBMISSION.c.verdict_id == VERDICT.c.id, *conditions)


def submitters(
    record: VerdictDatabase, verdict_ids: list[str], viewer: str | None
) -> dict[str, Submitters]:
    """Returns the clients and groups of each verdict, in alphabetical order.

    viewer: client restricted to its own name and groups; None: no restriction.
    """
    statement = sa.select(
        SUBMISSION.c.verdict_id, SUBMISSION.c.client, SUBMISSION.c.group
    ).distinct()
    statement = statement.where(SUBMISSION.c.verdict_id.in_(verdict_ids))
    if viewer is not None:
        statement = statement.where(SUBMISSION.c.client == viewer)
    clients: dict[str, set[str]] = {verdict_id: set() for verdict_id in verdict_ids}
    groups: dict[str, set[str]] = {verdict_id: set() for verdict_id in verdict_ids}
    with record.read() as connection:
        for verdict_id, client, group in connection.execute(statement):
            clients[verdict_id].add(client)
            if group is not None:
                groups[verdict_id].add(group)
    return {v: Submitters(tuple(sorted(clients[v])), tuple(sorted(groups[v]))) for v in verdict_ids}
