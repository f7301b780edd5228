"""Values of the protocol between clients and the judge service (docs/reference/service.md). Imports
no torch.
"""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    model_validator,
)

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.tools.faults import Fault, Number
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.report import Report, Rung

MAX_TEXT = 256 * 1024
"""Maximum size of a candidate or a reference, in bytes."""
MAX_BATCH = 256
"""Maximum number of submissions in a request."""
MAX_FIELDS = 64
"""Maximum number of keys in an object of a request; no value of the protocol has as many fields."""
MAX_PRIORITY = 100
"""Largest priority of a submission."""
MAX_WAIT = 60.0
"""Maximum waiting time of a request for a status, in seconds."""


class State(StrEnum):
    """State of a verdict at the service."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    """The verdict has a report."""
    FAILED = "failed"
    """The verdict has an error: unusable reference, or failure of this machine."""
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self in (State.FINISHED, State.FAILED, State.CANCELLED)


class Outcome(StrEnum):
    """Outcome of an attempt at a verdict."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The judge or the server died during the attempt."""
    INTERRUPTED = "interrupted"
    """The server was stopped, or the judge was ended because of another verdict."""
    TIMED_OUT = "timed_out"
    """The attempt exceeded the server's time limit, and its judge was ended."""


class Code(StrEnum):
    """Reason for a refused request or a failed verdict."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    INVALID = "invalid"
    NOT_FOUND = "not_found"
    METHOD = "method"
    QUEUE_FULL = "queue_full"
    QUOTA = "quota"
    CLOSING = "closing"
    NO_JUDGES = "no_judges"
    INTERNAL = "internal"
    PROBLEM = "problem"
    INFRASTRUCTURE = "infrastructure"
    LOST = "lost"


def _short(text: str) -> str:
    """Checks length and encoding. Null bytes are the candidate's fault, reported by its verdict."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise ValueError(f"is longer than {MAX_TEXT} bytes")
    return _utf8(text)


def _clean(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds null bytes")
    return _utf8(text)


def _utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not text in UTF-8") from None
    return text


def _printable(text: str) -> str:
    """Raises ValueError for control characters and for characters with an effect on the writing
    direction.
    """
    if any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in text):
        raise ValueError("holds characters that cannot be printed")
    return _clean(text)


def _targets(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_target(name).name for name in names))


def _own_work(mode: str) -> str:
    from kernelwright.agent.runtime.arguments import own_work_mode

    return own_work_mode(mode)


Text = Annotated[str, AfterValidator(_short)]
Name = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Count = Annotated[int, Strict()]
"""Integer; neither true nor "3"."""
Seconds = Annotated[float, Strict(), AllowInfNan(False)]
Moment = Annotated[float, AllowInfNan(False)]
"""Seconds since 1970."""
Switch = Annotated[bool, Strict()]
VerdictId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class WireValue(BaseModel):
    """Frozen value of the protocol; unknown fields are refused.

    pydantic stores about a kilobyte of error for each invalid item and each unknown key: a body of
    16 MiB became 10 GB. So sequences end at their first error (fail_fast), and keys are counted
    first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_keys(cls, data: object) -> Any:
        if isinstance(data, dict) and len(data) > MAX_FIELDS:
            raise ValueError(f"has {len(data)} fields: at most {MAX_FIELDS} are read")
        return data


class VerdictOptions(WireValue):
    """Options of a verdict open to clients, with their defaults."""

    targets: (
        Annotated[tuple[str, ...], Field(max_length=16, fail_fast=True), AfterValidator(_targets)]
        | None
    ) = None
    """Compilation targets; None: the target of the device."""
    own_work: Annotated[str, Field(max_length=40), AfterValidator(_own_work)] = "strict"
    train_mode: Switch = False
    contiguous_inputs: Switch = True
    profile: Switch = True
    torch_compile: Switch = False
    ncu: Switch = False
    sanitizer: Switch = False
    sizes: Count = Field(default=8, ge=0, le=64)
    seed: Count | None = Field(default=None, ge=0, lt=2**63)
    allow_import: Annotated[tuple[Name, ...], Field(max_length=16, fail_fast=True)] = ()
    interpret: Switch | None = None
    compile_seconds: Seconds = Field(default=60.0, gt=0.0, le=600.0)
    seconds: Seconds = Field(default=120.0, gt=0.0, le=1200.0)


class ProblemReference(WireValue):
    """A problem by its name in the catalogue, or by its source (KernelBench form)."""

    name: Name = ""
    source: Text | None = None

    @model_validator(mode="after")
    def _names_something(self) -> ProblemReference:
        if not self.source and not self.name.strip():
            raise ValueError("give a name of the catalogue, or a source")
        return self


class Submission(WireValue):
    """Candidate to be judged on a problem."""

    problem: ProblemReference
    candidate: Text
    options: VerdictOptions = VerdictOptions()
    device: DeviceKind | None = None
    """Kind of device; None: the server's first."""
    group: Name | None = None
    """Common name for the rollouts of a prompt, used for reward health."""
    force: Switch = False
    """Whether to judge again despite an existing verdict on the same content."""
    priority: Count = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    """Order among the waiting verdicts of this client, largest first."""


class BatchOfSubmissions(WireValue):
    """Body of a request with several submissions."""

    submissions: Annotated[
        tuple[Submission, ...], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    ]


class Error(WireValue):
    """Reason for a refused request."""

    code: Code
    message: str
    """One line with the remedy."""


class ErrorBody(WireValue):
    """Body of every error answer."""

    error: Error


class Attempt(WireValue):
    """Attempt at a verdict; times in seconds since 1970."""

    number: int
    judge: str
    started: float
    ended: float | None = None
    outcome: Outcome
    message: str = ""


class Score(WireValue):
    """Components of a reward. Trainers choose the weights."""

    ended_at: Rung
    compiled: bool
    correct: bool
    gate: float
    """0 for a cheat, a text without a candidate, or a problem whose checks accept wrong answers;
    else 1.
    """
    speedup: Number | None = None
    """Speedup over eager PyTorch; None if not timed."""
    speedup_low: Number | None = None
    """Lower 95 % bound of the speedup. Rewards use this bound, so clock noise earns nothing."""
    compile_speedup: Number | None = None
    """Speedup over torch.compile; None if not requested, or not timed by the same method."""
    compile_speedup_low: Number | None = None
    """Lower 95 % bound of `compile_speedup`."""
    speed_of_light: Number | None = None
    """Roofline time divided by the candidate's time, 0 to 1."""
    milliseconds: Number | None = None
    """Median time of a call of the candidate, in milliseconds."""
    share: Number | None = None
    """Share of the work done by the candidate's own kernels, 0 to 1."""
    time_share: Number | None = None
    """Share of GPU time in the candidate's own kernels, 0 to 1."""
    checks_passed: int = 0
    checks_made: int = 0
    """Number of answer checks up to the first failure."""
    narrow_contract: str = ""
    """Reason why a correct kernel covers too few sizes; empty for any other candidate."""
    reward_eligible: bool = True
    """Whether the candidate may earn a full reward: correct, with checks for more than one size or
    free dimension.
    """
    reward_ineligible_because: str = ""
    """Reason for the loss of the full reward; empty for an eligible candidate."""
    fault: Fault | None = None
    mask: bool = False
    """Whether to exclude this verdict from training: its fault may be caused by a loaded machine.
    """
    explanation: str = ""


class Status(WireValue):
    """Status of a verdict for a client."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    verdict_id: str
    state: State
    known: bool = False
    problem: str
    problem_hash: str
    candidate_hash: str
    device: DeviceKind
    submitted: float
    started: float | None = None
    ended: float | None = None
    position: int | None = None
    eta_seconds: float | None = None
    doing: str = ""
    attempts: tuple[Attempt, ...] = ()
    pending: int = 0
    pending_quota: int = 0
    judge_seconds: float = 0.0
    """Judge seconds spent on the requesting client's verdicts within the last hour."""
    judge_seconds_quota: float | None = None
    score: Score | None = None
    report: Report | None = None
    error: Error | None = None
    clients: tuple[str, ...] = ()
    """Submitting clients, in a list of verdicts; on a private server only the requesting client."""
    groups: tuple[str, ...] = ()
    """Groups of the submissions, in a list of verdicts."""


class BatchEntry(WireValue):
    """Result of a submission in a batch: either a status or an error."""

    status: Status | None = None
    error: Error | None = None


class BatchAnswer(WireValue):
    """Results of a batch, in the order of its submissions."""

    verdicts: tuple[BatchEntry, ...]
    retry_after: int | None = None
    """Seconds after which refused submissions may be repeated."""


class VerdictList(WireValue):
    """Verdicts, newest first."""

    verdicts: tuple[Status, ...]
    next: int | None = None
    """Value of `before` for the next page; None on the last page."""


class VerdictSource(WireValue):
    """Texts of a verdict."""

    verdict_id: str
    candidate: str
    problem: str
    """Source of the reference."""
    options: dict[str, Any]
    clients: tuple[str, ...] = ()
    """Submitting clients; on a private server only the requesting client."""
    groups: tuple[str, ...] = ()
    """Groups of the submissions."""


class VerdictIds(WireValue):
    """Verdicts to wait for together."""

    verdict_ids: Annotated[
        tuple[VerdictId, ...], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    ]


def first_line(error: Any) -> str:
    """Returns an exception's message on one line, at most 1,000 characters."""
    return " ".join(str(error).split())[:1000]
