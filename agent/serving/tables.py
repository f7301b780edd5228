"""The tables of the service's record (SQLite). Times are seconds since 1970."""

from __future__ import annotations

import sqlalchemy as sa

from kernelwright.store.connection.versioned_file import Tables

UNKNOWN_DOMAIN = "?"
"""Domain of verdicts recorded by version 1, whose references may be any client's."""
METADATA = sa.MetaData()

VERDICT = sa.Table(
    "verdict",
    METADATA,
    sa.Column("id", sa.String, primary_key=True, comment="hash of the content"),
    sa.Column("sequence", sa.Integer, nullable=False, unique=True, comment="order of arrival"),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("problem", sa.String, nullable=False, index=True),
    sa.Column("problem_hash", sa.String, nullable=False),
    sa.Column("candidate_hash", sa.String, nullable=False),
    sa.Column("device", sa.String, nullable=False),
    sa.Column(
        "domain",
        sa.String,
        nullable=False,
        server_default=UNKNOWN_DOMAIN,
        comment="whose reference it is",
    ),
    sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
    sa.Column("submitted", sa.Float, nullable=False),
    sa.Column("started", sa.Float),
    sa.Column("ended", sa.Float),
    sa.Column("score", sa.String, comment="JSON of a Score"),
    sa.Column("error_code", sa.String),
    sa.Column("error_message", sa.String),
    sa.Column("problem_json", sa.LargeBinary, nullable=False, comment="zlib, JSON of a Problem"),
    sa.Column("candidate", sa.LargeBinary, nullable=False, comment="zlib"),
    sa.Column("options", sa.String, nullable=False, comment="JSON of Options"),
    sa.Column("report", sa.LargeBinary, comment="zlib, JSON of a Report"),
    sa.Index("verdict_state", "state", "sequence"),
    sa.Index("verdict_ended", "device", "ended"),
    sa.Index("verdict_state_ended", "state", "ended"),
)

ATTEMPT = sa.Table(
    "attempt",
    METADATA,
    sa.Column("verdict_id", sa.String, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("judge", sa.String, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
    sa.Column("outcome", sa.String, nullable=False),
    sa.Column("message", sa.String, nullable=False),
)

_UPGRADES = {
    1: (
        f"ALTER TABLE verdict ADD COLUMN domain VARCHAR NOT NULL DEFAULT '{UNKNOWN_DOMAIN}'",
        "CREATE INDEX verdict_state_ended ON verdict (state, ended)",
    ),
    2: ("ALTER TABLE verdict ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",),
    3: (),  # the table of references is new
}

SUBMISSION = sa.Table(
    "submission",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("verdict_id", sa.String, nullable=False, index=True),
    sa.Column("client", sa.String, nullable=False),
    sa.Column("group", sa.String),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("withdrawn", sa.Boolean, nullable=False),
)

REFERENCE = sa.Table(
    "reference",
    METADATA,
    sa.Column("key", sa.String, primary_key=True, comment="hash of domain, problem and mode"),
    sa.Column("evaluator", sa.String, nullable=False, comment="the version that tried it"),
    sa.Column("outcome", sa.String, nullable=False, comment="JSON of a TrialOutcome"),
    sa.Column("at", sa.Float, nullable=False),
)
TABLES = Tables(METADATA, version=4, upgrades=_UPGRADES)
