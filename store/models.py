"""The tables.

A candidate is one turn of a trajectory: the row, the working object and the training sample are one thing.

Large texts and token ids lie in `Blob`, once each; a row holds their numbers. What a prompt shares with the one before
it is shared in
`Link`, so that a conversation of n turns takes O(n) room. Times are seconds since 1970, UTC.
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import StringConstraints
from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
)
from sqlmodel import Field

from kernelwright.policies.base import FinishReason, Origin
from kernelwright.store.connection.column_types import EnumText, JsonText, StoredRow
from kernelwright.tools.report import Cheat, Fault, Rung


class Action(StrEnum):
    """The kind of turn: how a candidate was asked for."""

    DRAFT = "draft"
    REPAIR = "repair"
    """Mends its parent, which failed."""
    REFINE = "refine"
    """Makes its parent, which is correct, faster."""
    TUNE = "tune"
    """Changes its parent's numbers, not its code. No policy is asked."""


ACTIONS_OF_THE_POLICY = (Action.DRAFT, Action.REPAIR, Action.REFINE)
"""Actions for which a policy is asked."""


Word = Annotated[str, StringConstraints(pattern="^[a-z][a-z_]*$", max_length=40)]
"""The value of an enum that a higher floor declares."""


class State(StrEnum):
    """The progress of a candidate. Each step is one transaction."""

    DRAFTING = "drafting"
    """The prompt is saved, the policy has been asked."""
    DRAFTED = "drafted"
    """The answer is saved, no verdict yet."""
    JUDGED = "judged"


def reference_column(table: str, *, required: bool = False, cycle: str | None = None) -> Any:
    """Makes an indexed column that refers to a row of `table`; `cycle` names the constraint where that table refers to
    this one too.
    """
    key = ForeignKey(f"{table}.id", use_alter=cycle is not None, name=cycle)
    return Column(Integer, key, index=True, nullable=not required)


def enum_column(kind: type[StrEnum], *, nullable: bool = False, index: bool = False) -> Any:
    """Returns a column that stores the value of a StrEnum as text."""
    return Column(EnumText(kind), nullable=nullable, index=index)


class Blob(StoredRow, table=True):
    """Bytes, addressed by the hash of their content."""

    id: int = Field(default=None, primary_key=True)
    hash: str = Field(unique=True, max_length=64)
    """SHA-256 of the bytes before compression, hex."""
    size: int = Field(ge=0)
    """Number of bytes before compression."""
    packed: bool = False
    """Whether `body` is compressed with zlib."""
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Link(StoredRow, table=True):
    """A piece that follows another: a message after the messages before it, or a run of token ids after those before
    it.
    """

    id: int = Field(default=None, primary_key=True)
    hash: str = Field(unique=True, max_length=64)
    """SHA-256 over the hash of `before`, the label and the blob's hash."""
    before_id: int | None = Field(default=None, sa_column=reference_column("link"))
    label: str = Field(max_length=32)
    """A message's role, or `tokens`."""
    blob_id: int = Field(sa_column=reference_column("blob", required=True))


class BatchRun(StoredRow, table=True):
    """A named set of trajectories, that goes on where it stopped."""

    __tablename__ = "run"

    id: int = Field(default=None, primary_key=True)
    name: str = Field(unique=True, min_length=1, max_length=200)
    created: float
    options: dict[str, Any] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )


class Trajectory(StoredRow, table=True):
    """One attempt of one policy at one problem."""

    __table_args__ = (UniqueConstraint("run_id", "key", "sample"), {"sqlite_autoincrement": True})

    id: int = Field(default=None, primary_key=True)
    run_id: int | None = Field(default=None, sa_column=reference_column("run"))
    key: str = Field(index=True, max_length=64)
    """SHA-256 of problem, policy and options: the same command has the same key."""
    sample: int = Field(default=0, ge=0)
    """Number of the sample among those with one key in one run."""
    problem: str = Field(index=True, min_length=1, max_length=300)
    problem_hash: str = Field(index=True, max_length=64)
    suite: str = Field(default="file", max_length=40)
    reference_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    """The blob with the problem's source."""
    policy: str = Field(index=True, min_length=1, max_length=500)
    options: dict[str, Any] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )
    goal: str = Field(default="", max_length=80)
    budgets: dict[str, Any] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, sa_column=Column(BigInteger))
    program: str = Field(default="", max_length=80)
    """The version of Kernelwright that wrote the row."""
    forked_from_id: int | None = Field(
        default=None, sa_column=reference_column("candidate", cycle="trajectory_fork")
    )
    """The candidate of another trajectory that this one was forked from."""
    created: float
    updated: float = Field(index=True)
    finished: float | None = Field(default=None, index=True)
    stop_reason: Word | None = Field(default=None, sa_column=Column(String(40)))
    """The reason for the stop. Where `finished` is empty the trajectory can go on: interrupted, infrastructure."""
    message: str = Field(default="", max_length=500)
    spent: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JsonText, nullable=False))
    """The budget that was used: turns, tokens, dollars, gpu_seconds, seconds."""
    best_id: int | None = Field(
        default=None, sa_column=reference_column("candidate", cycle="trajectory_best")
    )
    owner: str = Field(default="", max_length=200)
    """Host, process and its start: who works on it now."""
    lease: float = 0.0
    """Until when another host believes that the owner lives."""


class Candidate(StoredRow, table=True):
    """One turn: what was asked, what was answered."""

    __table_args__ = (UniqueConstraint("trajectory_id", "turn"), {"sqlite_autoincrement": True})

    id: int = Field(default=None, primary_key=True)
    trajectory_id: int = Field(
        sa_column=Column(Integer, ForeignKey("trajectory.id"), nullable=False)
    )
    turn: int = Field(ge=0)
    """Number of the turn in its trajectory, in the order of time."""
    parent_id: int | None = Field(default=None, sa_column=reference_column("candidate"))
    """Whom it repairs or refines."""
    depth: int = Field(default=0, ge=0)
    """Number of ancestors of the candidate: 0 for a draft."""
    action: Action = Field(sa_column=enum_column(Action))
    state: State = Field(default=State.DRAFTING, sa_column=enum_column(State, index=True))
    schema_version: int
    """The schema version of the store when the row was written."""
    prompt_version: str = Field(default="", max_length=80)
    prompt_id: int | None = Field(default=None, sa_column=reference_column("link"))
    """The last message of the prompt."""
    sampling: dict[str, Any] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )
    """policies.base.Sampling as it was asked for."""
    adapter: str | None = Field(default=None, max_length=500)
    policy: str = Field(default="", max_length=500)
    policy_revision: str | None = Field(default=None, max_length=200, index=True)
    adapter_revision: str | None = Field(default=None, max_length=200)
    tokenizer_hash: str | None = Field(default=None, max_length=200)
    chat_template_hash: str | None = Field(default=None, max_length=200)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, sa_column=Column(BigInteger))
    """The seed that was used, also where the policy drew it."""
    exact: bool = False
    """Ids and log-probs are here, and are those of the distribution really sampled: fit for GRPO."""
    finish: FinishReason | None = Field(
        default=None, sa_column=enum_column(FinishReason, nullable=True)
    )
    reply_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    """The whole text of the policy's answer."""
    source_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    """The code that was extracted from the answer."""
    source_hash: str | None = Field(default=None, max_length=64, index=True)
    """tools.problem.source_hash: equal for equal syntax trees."""
    prompt_tokens_id: int | None = Field(default=None, sa_column=reference_column("link"))
    completion_tokens_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    logprobs_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
    cached_prompt_tokens: int | None = Field(default=None, ge=0)
    usage_estimated: bool = False
    """The counts are guessed from the length of the text."""
    dollars: float | None = None
    """Empty where the price is unknown."""
    policy_seconds: float | None = None
    tool_seconds: float | None = None
    gpu_seconds: float | None = None
    created: float
    drafted: float | None = None
    judged: float | None = None
    verdict_id: int | None = Field(
        default=None, sa_column=reference_column("verdict", cycle="candidate_verdict")
    )
    """The verdict in force, which was recorded last; earlier ones stay in the table."""
    origin: Origin = Field(default=Origin.POLICY, sa_column=enum_column(Origin))
    """The author of the text: the policy, the compiler, or the user's file."""


class Verdict(StoredRow, table=True):
    """The tools' findings. Rows are only ever added: a second judgement leaves the first one as it was."""

    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int = Field(default=None, primary_key=True)
    candidate_id: int = Field(sa_column=reference_column("candidate", required=True))
    created: float
    report_id: int = Field(sa_column=reference_column("blob", required=True))
    """The tools.report.Report as JSON; the columns below repeat the fields that filters use."""
    report_version: int
    rung: Rung = Field(sa_column=enum_column(Rung))
    fault: Fault | None = Field(
        default=None, sa_column=enum_column(Fault, nullable=True, index=True)
    )
    cheat: Cheat | None = Field(default=None, sa_column=enum_column(Cheat, nullable=True))
    message: str = Field(default="", max_length=500)
    correct: bool = Field(default=False, index=True)
    correct_kb: bool | None = None
    judged_on: str = Field(default="", max_length=200)
    speedup: float | None = Field(default=None, index=True)
    speedup_low: float | None = None
    speedup_compiled: float | None = None
    speed_of_light: float | None = None
    own_share: float | None = None
    milliseconds: float | None = None
    evaluator: str = Field(default="", max_length=80)
    fingerprint: str = Field(default="", max_length=64, index=True)
    """SHA-256 of the environment: speeds compare only within one."""
    seconds: float = 0.0
    cached: bool = False


class Reward(StoredRow, table=True):
    """Parts of a reward, never only their sum. They may come long after the verdict, and again by another formula."""

    id: int = Field(default=None, primary_key=True)
    verdict_id: int = Field(sa_column=reference_column("verdict", required=True))
    created: float
    formula: str = Field(min_length=1, max_length=80)
    """Name and version of what computed them."""
    parts: dict[str, float] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )
