"""Frozen values of the store's interface: start of a trajectory, filters, and turns with all
training data.
"""

from __future__ import annotations

import hashlib
import json
import math
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from kernelwright.policies.base import Completion, Message, Sampling, Usage, Value
from kernelwright.store.models import Action, Candidate, CandidateState, Trajectory, Verdict
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Cheat, Environment, Fault, Report, Rung


class TrajectoryStart(Value):
    """Initial values of a trajectory.

    Equal problem, policy and options mean equal commands, so the trajectory is resumed.
    """

    problem: Problem
    policy: str
    options: dict[str, JsonValue] = {}
    """Other options that distinguish two commands: target, search, goal."""
    goal: str = ""
    budgets: dict[str, JsonValue] = {}
    """Budgets, excluded from the key: a trajectory may be resumed with a larger budget."""
    seed: int | None = None
    program: str = ""

    @property
    def key(self) -> str:
        """Returns the SHA-256 of problem, policy and options in hexadecimal."""
        parts = [self.problem.hash, self.policy, self.options]
        return hashlib.sha256(
            json.dumps(parts, sort_keys=True, allow_nan=False).encode()
        ).hexdigest()


class TurnPosition(NamedTuple):
    """Position of a new turn in the tree of candidates."""

    action: Action
    parent_id: int | None
    turn: int | None
    """Number of the turn; None selects the next turn."""
    prompt_version: str


class StopOutcome(NamedTuple):
    """Outcome of a stopped trajectory."""

    reason: str
    message: str
    best_id: int | None
    """Best candidate; None leaves the stored candidate unchanged."""
    spent: dict[str, JsonValue] | None
    """Spent budget; None leaves the stored budget unchanged."""


class TrajectoryFilter(Value):
    """Selects trajectories: every field with a value must match."""

    run: str | None = None
    """Name of the run that contains the trajectory."""
    key: str | None = None
    problem: str | None = None
    problem_hash: str | None = None
    suite: str | None = None
    policy: str | None = None
    """Policy with which the trajectory began."""
    finished: bool | None = None
    stop_reason: str | None = None
    since: float | None = None
    """Earliest creation time of a match, inclusive."""
    until: float | None = None


class CandidateFilter(TrajectoryFilter):
    """Selects candidates; `since` and `until` compare creation times of candidates."""

    trajectory_id: int | None = None
    parent_id: int | None = None
    action: Action | None = None
    state: CandidateState | None = None
    exact: bool | None = None
    policy_revision: str | None = None
    adapter_revision: str | None = None
    source_hash: str | None = None
    correct: bool | None = None
    """Whether the verdict is correct; False selects judged candidates with incorrect verdicts."""
    rung: Rung | None = None
    fault: Fault | None = None
    cheat: Cheat | None = None
    judged_on: str | None = None
    fingerprint: str | None = None
    min_speedup: float | None = None


class Order(StrEnum):
    """Order in which candidates are listed."""

    NEWEST = "newest"
    OLDEST = "oldest"
    FASTEST = "fastest"
    """Fastest first; lists only candidates with a speedup."""


class Entry(NamedTuple):
    """Candidate of a list, with its trajectory and verdict."""

    candidate: Candidate
    trajectory: Trajectory
    verdict: Verdict | None
    """Latest verdict, which is in force; None for unjudged candidates."""


class SearchHit(NamedTuple):
    """Candidate of a search result."""

    entry: Entry
    excerpt: str
    """Line with a search word; empty if only the problem's name matched."""


class Turn(Value):
    """Turn as recorded: token ids and log-probs bit for bit, without tokenising text again."""

    candidate_id: int
    trajectory_id: int
    run_id: int | None
    turn: int
    parent_id: int | None
    depth: int
    action: Action
    state: CandidateState
    problem: str
    problem_hash: str
    suite: str
    prompt_version: str
    schema_version: int
    messages: tuple[Message, ...]
    sampling: Sampling
    adapter: str | None
    completion: Completion | None
    """Answer of the policy; None while the candidate is drafted."""
    paid_for_nothing: Usage | None = None
    """Usage of charged answers without a reply, while the candidate is drafted."""
    source: str | None
    source_hash: str | None
    report: Report | None
    """Report of the verdict in force; None for unjudged candidates."""
    verdict_id: int | None
    fingerprint: str
    rewards: dict[str, float] | None
    """Reward parts by name, from the latest formula that scored this verdict."""
    formula: str | None
    tool_seconds: float | None
    gpu_seconds: float | None
    created: float
    drafted: float | None
    judged: float | None


class Stats(Value):
    """Size of a database and row counts."""

    version: int
    where: str
    bytes: int | None
    """Bytes of the file and its WAL; None on a server."""
    runs: int
    trajectories: int
    unfinished: int
    candidates: dict[CandidateState, int]
    verdicts: int
    correct: int
    rewards: int
    blobs: int
    blob_bytes: int
    """Bytes of the texts before compression."""
    stored_bytes: int
    """Bytes of the blobs after compression."""


class SweptCounts(Value):
    """Rows and bytes removed by gc."""

    links: int
    blobs: int
    bytes: int


def fingerprint(environment: Environment) -> str:
    """Returns the SHA-256 over GPU, driver and versions.

    The host name is excluded, so that equal machines are comparable.
    """
    # Changing what is hashed here makes all stored speeds incomparable with new ones.
    parts = environment.model_dump(mode="json", exclude={"host"})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def dump_report(report: Report) -> bytes:
    """Serialises a report as ASCII JSON with sorted keys.

    Infinities and NaN become strings, which tools.report parses.
    """
    return json.dumps(
        _plain(report.model_dump(warnings="error")), sort_keys=True, separators=(",", ":")
    ).encode()


def load_report(body: bytes) -> Report:
    """Parses bytes written by `dump_report`."""
    return Report.model_validate(json.loads(body))


def _plain(value: object) -> object:
    """Returns a JSON value with infinities and NaN as strings: JSON has no numbers for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return value
