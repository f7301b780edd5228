"""Version 1: blobs, chains, runs, trajectories, candidates, verdicts, rewards."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.engine import Connection
from sqlalchemy.types import TypeEngine

metadata = MetaData()


def _id() -> Column[Any]:
    return Column("id", Integer, primary_key=True)


def _reference(
    name: str, table: str, *, required: bool = False, cycle: str | None = None
) -> Column[Any]:
    key = ForeignKey(f"{table}.id", use_alter=cycle is not None, name=cycle)
    return Column(name, Integer, key, index=True, nullable=not required)


def _text(name: str, length: int, **options: Any) -> Column[Any]:
    return Column(name, String(length), **{"nullable": False, **options})


def _number(name: str, kind: type[TypeEngine[Any]], **options: Any) -> Column[Any]:
    return Column(name, kind, **{"nullable": True, **options})


Table(
    "blob",
    metadata,
    _id(),
    _text("hash", 64, unique=True),
    _number("size", Integer, nullable=False),
    _number("packed", Boolean, nullable=False),
    _number("body", LargeBinary, nullable=False),
)
Table(
    "link",
    metadata,
    _id(),
    _text("hash", 64, unique=True),
    _reference("before_id", "link"),
    _text("label", 32),
    _reference("blob_id", "blob", required=True),
)
Table(
    "run",
    metadata,
    _id(),
    _text("name", 200, unique=True),
    _number("created", Float, nullable=False),
    Column("options", Text, nullable=False),
)
Table(
    "trajectory",
    metadata,
    _id(),
    _reference("run_id", "run"),
    _text("key", 64, index=True),
    _number("sample", Integer, nullable=False),
    _text("problem", 300, index=True),
    _text("problem_hash", 64, index=True),
    _text("suite", 40),
    _reference("reference_id", "blob"),
    _text("policy", 500, index=True),
    Column("options", Text, nullable=False),
    _text("goal", 80),
    Column("budgets", Text, nullable=False),
    _number("seed", BigInteger),
    _text("program", 80),
    _reference("forked_from_id", "candidate", cycle="trajectory_fork"),
    _number("created", Float, nullable=False),
    _number("updated", Float, nullable=False, index=True),
    _number("finished", Float, index=True),
    _text("stop_reason", 40, nullable=True),
    _text("message", 500),
    Column("spent", Text, nullable=False),
    _reference("best_id", "candidate", cycle="trajectory_best"),
    _text("owner", 200),
    _number("lease", Float, nullable=False),
    UniqueConstraint("run_id", "key", "sample"),
    sqlite_autoincrement=True,
)
Table(
    "candidate",
    metadata,
    _id(),
    Column("trajectory_id", Integer, ForeignKey("trajectory.id"), nullable=False),
    _number("turn", Integer, nullable=False),
    _reference("parent_id", "candidate"),
    _number("depth", Integer, nullable=False),
    _text("action", 32),
    _text("state", 32, index=True),
    _number("schema_version", Integer, nullable=False),
    _text("prompt_version", 80),
    _reference("prompt_id", "link"),
    Column("sampling", Text, nullable=False),
    _text("adapter", 500, nullable=True),
    _text("policy", 500),
    _text("policy_revision", 200, nullable=True, index=True),
    _text("adapter_revision", 200, nullable=True),
    _text("tokenizer_hash", 200, nullable=True),
    _text("chat_template_hash", 200, nullable=True),
    _number("seed", BigInteger),
    _number("exact", Boolean, nullable=False),
    _text("finish", 32, nullable=True),
    _reference("reply_id", "blob"),
    _reference("source_id", "blob"),
    _text("source_hash", 64, nullable=True, index=True),
    _reference("prompt_tokens_id", "link"),
    _reference("completion_tokens_id", "blob"),
    _reference("logprobs_id", "blob"),
    _number("prompt_tokens", Integer),
    _number("completion_tokens", Integer),
    _number("cached_prompt_tokens", Integer),
    _number("usage_estimated", Boolean, nullable=False),
    _number("dollars", Float),
    _number("policy_seconds", Float),
    _number("tool_seconds", Float),
    _number("gpu_seconds", Float),
    _number("created", Float, nullable=False),
    _number("drafted", Float),
    _number("judged", Float),
    _reference("verdict_id", "verdict", cycle="candidate_verdict"),
    UniqueConstraint("trajectory_id", "turn"),
    sqlite_autoincrement=True,
)
Table(
    "verdict",
    metadata,
    _id(),
    _reference("candidate_id", "candidate", required=True),
    _number("created", Float, nullable=False),
    _reference("report_id", "blob", required=True),
    _number("report_version", Integer, nullable=False),
    _text("rung", 32),
    _text("fault", 32, nullable=True, index=True),
    _text("cheat", 32, nullable=True),
    _text("message", 500),
    _number("correct", Boolean, nullable=False, index=True),
    _number("correct_kb", Boolean),
    _text("judged_on", 200),
    _number("speedup", Float, index=True),
    _number("speedup_low", Float),
    _number("speedup_compiled", Float),
    _number("speed_of_light", Float),
    _number("own_share", Float),
    _number("milliseconds", Float),
    _text("evaluator", 80),
    _text("fingerprint", 64, index=True),
    _number("seconds", Float, nullable=False),
    _number("cached", Boolean, nullable=False),
    sqlite_autoincrement=True,
)
Table(
    "reward",
    metadata,
    _id(),
    _reference("verdict_id", "verdict", required=True),
    _number("created", Float, nullable=False),
    _text("formula", 80),
    Column("parts", Text, nullable=False),
)


def apply(connection: Connection) -> None:
    """Creates the tables from a copy of the metadata.

    After use with a server, SQLAlchemy marks the constraints of reference cycles as created by
    ALTER, and SQLite would then omit them.
    """
    fresh = MetaData()
    for table in metadata.tables.values():
        table.to_metadata(fresh)
    fresh.create_all(connection, checkfirst=False)
