"""Database tables.

A candidate is a turn of a trajectory; the row serves as working object and as training sample.

Large texts and token ids are stored once in `Blob`, and rows refer to them by id. Prompts share
equal beginnings through `Link`, so a conversation of n turns takes O(n) space. Times are seconds
since 1970 in UTC.
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
    """Kind of a turn: how the candidate was requested."""

    DRAFT = "draft"
    REPAIR = "repair"
    """Fixes the parent, which failed."""
    REFINE = "refine"
    """Speeds up the parent, which is correct."""
    TUNE = "tune"
    """Changes numeric parameters of the parent without calling a policy."""


ACTIONS_OF_THE_POLICY = (Action.DRAFT, Action.REPAIR, Action.REFINE)
"""Actions that call a policy."""


Word = Annotated[str, StringConstraints(pattern="^[a-z][a-z_]*$", max_length=40)]
"""Value of an enum declared by a higher floor."""


class CandidateState(StrEnum):
    """Progress of a candidate. Each step is a transaction."""

    DRAFTING = "drafting"
    """The prompt is saved and the policy was called."""
    DRAFTED = "drafted"
    """The answer is saved; there is no verdict yet."""
    JUDGED = "judged"


def reference_column(table: str, *, required: bool = False, cycle: str | None = None) -> Any:
    """Creates an indexed column that refers to a row of `table`.

    `cycle` names the constraint if the tables refer to each other.
    """
    key = ForeignKey(f"{table}.id", use_alter=cycle is not None, name=cycle)
    return Column(Integer, key, index=True, nullable=not required)


def enum_column(kind: type[StrEnum], *, nullable: bool = False, index: bool = False) -> Any:
    """Creates a column that stores the value of a StrEnum as text."""
    return Column(EnumText(kind), nullable=nullable, index=index)


class Blob(StoredRow, table=True):
    """Bytes addressed by the hash of their content."""

    id: int = Field(default=None, primary_key=True)
    hash: str = Field(unique=True, max_length=64)
    """SHA-256 of the uncompressed bytes, in hexadecimal."""
    size: int = Field(ge=0)
    """Size of the uncompressed content in bytes."""
    packed: bool = False
    """Whether `body` is compressed with zlib."""
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Link(StoredRow, table=True):
    """Piece of a chain: a message after earlier messages, or a run of token ids after earlier
    runs.
    """

    id: int = Field(default=None, primary_key=True)
    hash: str = Field(unique=True, max_length=64)
    """SHA-256 over the hash of `before`, the label and the hash of the blob."""
    before_id: int | None = Field(default=None, sa_column=reference_column("link"))
    label: str = Field(max_length=32)
    """Role of a message, or `tokens`."""
    blob_id: int = Field(sa_column=reference_column("blob", required=True))


class BatchRun(StoredRow, table=True):
    """Named set of trajectories; repeating the command continues the run."""

    __tablename__ = "run"

    id: int = Field(default=None, primary_key=True)
    name: str = Field(unique=True, min_length=1, max_length=200)
    created: float
    options: dict[str, Any] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )


class Trajectory(StoredRow, table=True):
    """Attempt of a policy at a problem."""

    __table_args__ = (UniqueConstraint("run_id", "key", "sample"), {"sqlite_autoincrement": True})

    id: int = Field(default=None, primary_key=True)
    run_id: int | None = Field(default=None, sa_column=reference_column("run"))
    key: str = Field(index=True, max_length=64)
    """SHA-256 of problem, policy and options: equal commands have equal keys."""
    sample: int = Field(default=0, ge=0)
    """Number of the sample among trajectories with equal key in a run."""
    problem: str = Field(index=True, min_length=1, max_length=300)
    problem_hash: str = Field(index=True, max_length=64)
    suite: str = Field(default="file", max_length=40)
    reference_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    """Blob with the source of the problem."""
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
    """Version of Kernelwright that wrote the row."""
    forked_from_id: int | None = Field(
        default=None, sa_column=reference_column("candidate", cycle="trajectory_fork")
    )
    """Candidate of another trajectory from which this trajectory was forked."""
    created: float
    updated: float = Field(index=True)
    finished: float | None = Field(default=None, index=True)
    stop_reason: Word | None = Field(default=None, sa_column=Column(String(40)))
    """Reason for the stop.

    A trajectory without `finished` can be resumed (interrupted, infrastructure).
    """
    message: str = Field(default="", max_length=500)
    spent: dict[str, Any] = Field(default_factory=dict, sa_column=Column(JsonText, nullable=False))
    """Spent budget: turns, tokens, dollars, gpu_seconds, seconds."""
    best_id: int | None = Field(
        default=None, sa_column=reference_column("candidate", cycle="trajectory_best")
    )
    owner: str = Field(default="", max_length=200)
    """Host, process and start time of the process that holds the lease."""
    lease: float = 0.0
    """Time until which processes on other hosts treat the owner as alive."""


class Candidate(StoredRow, table=True):
    """Turn of a trajectory: prompt, answer and measurements."""

    __table_args__ = (UniqueConstraint("trajectory_id", "turn"), {"sqlite_autoincrement": True})

    id: int = Field(default=None, primary_key=True)
    trajectory_id: int = Field(
        sa_column=Column(Integer, ForeignKey("trajectory.id"), nullable=False)
    )
    turn: int = Field(ge=0)
    """Number of the turn in its trajectory, in chronological order."""
    parent_id: int | None = Field(default=None, sa_column=reference_column("candidate"))
    """Candidate that this turn repairs, refines or tunes."""
    depth: int = Field(default=0, ge=0)
    """Number of ancestors: 0 for a draft."""
    action: Action = Field(sa_column=enum_column(Action))
    state: CandidateState = Field(
        default=CandidateState.DRAFTING, sa_column=enum_column(CandidateState, index=True)
    )
    schema_version: int
    """Schema version of the store when the row was written."""
    prompt_version: str = Field(default="", max_length=80)
    prompt_id: int | None = Field(default=None, sa_column=reference_column("link"))
    """Last message of the prompt."""
    sampling: dict[str, Any] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )
    """Sampling settings of the request, as policies.base.Sampling."""
    adapter: str | None = Field(default=None, max_length=500)
    policy: str = Field(default="", max_length=500)
    policy_revision: str | None = Field(default=None, max_length=200, index=True)
    adapter_revision: str | None = Field(default=None, max_length=200)
    tokenizer_hash: str | None = Field(default=None, max_length=200)
    chat_template_hash: str | None = Field(default=None, max_length=200)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, sa_column=Column(BigInteger))
    """Seed in use, including seeds drawn by the policy."""
    exact: bool = False
    """Whether token ids and log-probs are those of the sampled distribution, fit for GRPO."""
    finish: FinishReason | None = Field(
        default=None, sa_column=enum_column(FinishReason, nullable=True)
    )
    reply_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    """Full text of the policy's answer."""
    source_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    """Code extracted from the answer."""
    source_hash: str | None = Field(default=None, max_length=64, index=True)
    """tools.problem.source_hash of the code: equal for equal syntax trees."""
    prompt_tokens_id: int | None = Field(default=None, sa_column=reference_column("link"))
    completion_tokens_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    logprobs_id: int | None = Field(default=None, sa_column=reference_column("blob"))
    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
    cached_prompt_tokens: int | None = Field(default=None, ge=0)
    usage_estimated: bool = False
    """Whether token counts are estimated from the length of the text."""
    dollars: float | None = None
    """Price in dollars; empty if unknown."""
    policy_seconds: float | None = None
    tool_seconds: float | None = None
    gpu_seconds: float | None = None
    created: float
    drafted: float | None = None
    judged: float | None = None
    verdict_id: int | None = Field(
        default=None, sa_column=reference_column("verdict", cycle="candidate_verdict")
    )
    """Latest verdict, which is the verdict in force; earlier verdicts remain in the table."""
    origin: Origin = Field(default=Origin.POLICY, sa_column=enum_column(Origin))
    """Author of the text: policy, compiler or user file."""


class Verdict(StoredRow, table=True):
    """Result of the judge.

    Rows are only added: judging again leaves earlier verdicts unchanged.
    """

    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int = Field(default=None, primary_key=True)
    candidate_id: int = Field(sa_column=reference_column("candidate", required=True))
    created: float
    report_id: int = Field(sa_column=reference_column("blob", required=True))
    """JSON of tools.report.Report; the columns below repeat fields used by filters."""
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
    """SHA-256 of the environment: speeds are comparable only between equal fingerprints."""
    seconds: float = 0.0
    cached: bool = False


class Reward(StoredRow, table=True):
    """Parts of a reward, never only their sum.

    A verdict may be scored later and by several formulas.
    """

    id: int = Field(default=None, primary_key=True)
    verdict_id: int = Field(sa_column=reference_column("verdict", required=True))
    created: float
    formula: str = Field(min_length=1, max_length=80)
    """Name and version of the reward formula."""
    parts: dict[str, float] = Field(
        default_factory=dict, sa_column=Column(JsonText, nullable=False)
    )
