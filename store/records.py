"""Frozen values that go in and come out: how a trajectory starts, what to look for, and one turn with everything
that training needs.
"""

from __future__ import annotations

import hashlib
import json
import math
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import JsonValue

from kernelwright.policies.base import Completion, Message, Sampling, Usage, Value
from kernelwright.store.models import Action, Candidate, State, Trajectory, Verdict
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Cheat, Environment, Fault, Report, Rung


class TrajectoryStart(Value):
    """The values that a trajectory begins with. Equal problem, policy and options mean the same command,
    which resumes.
    """

    problem: Problem
    policy: str
    options: dict[str, JsonValue] = {}
    """Whatever else makes two commands differ: target, search, goal."""
    goal: str = ""
    budgets: dict[str, JsonValue] = {}
    """Not part of the key: a budget may be raised, and the trajectory goes on."""
    seed: int | None = None
    program: str = ""

    @property
    def key(self) -> str:
        """Returns the key as a SHA-256 in hexadecimal."""
        parts = [self.problem.hash, self.policy, self.options]
        return hashlib.sha256(
            json.dumps(parts, sort_keys=True, allow_nan=False).encode()
        ).hexdigest()


class TrajectoryFilter(Value):
    """Every field that is set must hold."""

    run: str | None = None
    """The name of the run that the trajectory belongs to."""
    key: str | None = None
    problem: str | None = None
    problem_hash: str | None = None
    suite: str | None = None
    policy: str | None = None
    """The policy that the trajectory was begun with."""
    finished: bool | None = None
    stop_reason: str | None = None
    since: float | None = None
    """Created at this time or later."""
    until: float | None = None


class CandidateFilter(TrajectoryFilter):
    """Selects candidates; `since` and other times are compared with the candidate's."""

    trajectory_id: int | None = None
    parent_id: int | None = None
    action: Action | None = None
    state: State | None = None
    exact: bool | None = None
    policy_revision: str | None = None
    adapter_revision: str | None = None
    source_hash: str | None = None
    correct: bool | None = None
    """Whether the verdict is correct; False selects candidates that were judged and are not correct."""
    rung: Rung | None = None
    fault: Fault | None = None
    cheat: Cheat | None = None
    judged_on: str | None = None
    fingerprint: str | None = None
    min_speedup: float | None = None


class Order(StrEnum):
    """The order in which candidates are listed."""

    NEWEST = "newest"
    OLDEST = "oldest"
    FASTEST = "fastest"
    """The fastest first, of candidates with a speedup only."""


class Entry(NamedTuple):
    """A line of a list."""

    candidate: Candidate
    trajectory: Trajectory
    verdict: Verdict | None
    """The verdict in force, which was recorded last; None where there is none."""


class SearchHit(NamedTuple):
    """A line of a search's result."""

    entry: Entry
    excerpt: str
    """A line that holds a word looked for; empty where none does (the problem's name was found)."""


class Turn(Value):
    """One turn, exactly as it was: ids and log-probs bit for bit, no text tokenised again."""

    candidate_id: int
    trajectory_id: int
    run_id: int | None
    turn: int
    parent_id: int | None
    depth: int
    action: Action
    state: State
    problem: str
    problem_hash: str
    suite: str
    prompt_version: str
    schema_version: int
    messages: tuple[Message, ...]
    sampling: Sampling
    adapter: str | None
    completion: Completion | None
    """The policy's answer; None while the candidate is drafted."""
    paid_for_nothing: Usage | None = None
    """While the candidate is drafted: the usage of answers that were charged for and held no reply."""
    source: str | None
    source_hash: str | None
    report: Report | None
    """The report of the verdict in force; None where there is none."""
    verdict_id: int | None
    fingerprint: str
    rewards: dict[str, float] | None
    """Parts by name, of the latest formula that scored this verdict."""
    formula: str | None
    tool_seconds: float | None
    gpu_seconds: float | None
    created: float
    drafted: float | None
    judged: float | None


class Stats(Value):
    """The size of a database, and its numbers of rows."""

    version: int
    where: str
    bytes: int | None
    """Bytes of the file and its WAL; None on a server."""
    runs: int
    trajectories: int
    unfinished: int
    candidates: dict[State, int]
    verdicts: int
    correct: int
    rewards: int
    blobs: int
    blob_bytes: int
    """Bytes of the texts before compression."""
    stored_bytes: int
    """Bytes of the blobs after compression."""


class SweptCounts(Value):
    """The rows and bytes that gc removed."""

    links: int
    blobs: int
    bytes: int


def fingerprint(environment: Environment) -> str:
    """SHA-256 over GPU, driver and versions; the host's name is no part of it: two equal machines may be compared."""
    parts = environment.model_dump(mode="json", exclude={"host"})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def dump_report(report: Report) -> bytes:
    """Standard JSON, ASCII, keys sorted; infinities and NaN as the strings that tools.report reads back."""
    return json.dumps(
        _plain(report.model_dump(warnings="error")), sort_keys=True, separators=(",", ":")
    ).encode()


def load_report(body: bytes) -> Report:
    """Reads the bytes that `dump_report` made."""
    return Report.model_validate(json.loads(body))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
