"""What travels between a client and the judge service (docs/reference/service.md). Nothing here imports torch."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.tools.faults import Fault, Number
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.report import Report, Rung

MAX_TEXT = 256 * 1024
"""Bytes of a candidate, and of a reference."""
MAX_BATCH = 256
"""Submissions in one request."""
MAX_FIELDS = 64
"""Keys that an object of a request may have; no value of the wire has as many fields."""
MAX_PRIORITY = 100
"""The largest priority of a submission."""
MAX_WAIT = 60.0
"""Seconds that a request for a status may wait."""


class State(StrEnum):
    """The state of a verdict at the service."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    """It has a report."""
    FAILED = "failed"
    """It has an error: the reference cannot be used, or this machine could not judge."""
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self in (State.FINISHED, State.FAILED, State.CANCELLED)


class Outcome(StrEnum):
    """The outcome of one attempt at a verdict."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The judge or the server died over it."""
    INTERRUPTED = "interrupted"
    """The server was stopped, or the judge was ended over another verdict."""
    TIMED_OUT = "timed_out"
    """It took longer than the server allows, and its judge was ended."""


class Code(StrEnum):
    """Why a request, or a verdict, has no answer."""

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
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise ValueError(f"longer than {MAX_TEXT} bytes")
    return _clean(text)


def _clean(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds null bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not text in UTF-8") from None
    return text


def _printable(text: str) -> str:
    """Refuses control characters and those that turn the direction of a line."""
    if any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in text):
        raise ValueError("holds characters that cannot be printed")
    return _clean(text)


def _targets(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse_target(name).name for name in names))


def _own_work(asked: str) -> str:
    from kernelwright.agent.runtime.arguments import own_work_mode

    return own_work_mode(asked)


Text = Annotated[str, AfterValidator(_short)]
Name = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Count = Annotated[int, Strict()]
"""A whole number: neither true nor "3"."""
Seconds = Annotated[float, Strict()]
Switch = Annotated[bool, Strict()]
VerdictId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class WireValue(BaseModel):
    """A frozen value of the wire; what is not known is refused.

    pydantic notes an error of about a kilobyte for each item that is wrong and for each key that is not known: a body
    of 16 MiB became 10 GB. So sequences end at their first error (fail_fast), and keys are counted first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_keys(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > MAX_FIELDS:
            raise ValueError(f"has {len(given)} fields: at most {MAX_FIELDS} are read")
        return given


class VerdictOptions(WireValue):
    """The options of a verdict that a client may choose, with their defaults."""

    targets: (
        Annotated[tuple[str, ...], Field(max_length=16, fail_fast=True), AfterValidator(_targets)]
        | None
    ) = None
    """None: the device's own."""
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
    """One candidate to judge."""

    problem: ProblemReference
    candidate: Text
    options: VerdictOptions = VerdictOptions()
    device: DeviceKind | None = None
    """None: the server's first."""
    group: Name | None = None
    """Rollouts of one prompt have the same; for reward health."""
    force: Switch = False
    """Whether content that has a verdict already is judged once more."""
    priority: Count = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    """Of this client's waiting verdicts those with a larger one come first."""


class BatchOfSubmissions(WireValue):
    """Several submissions in one request."""

    submissions: Annotated[
        tuple[Submission, ...], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    ]


class Error(WireValue):
    """Why a request was refused."""

    code: Code
    message: str
    """One line that says what to do."""


class ErrorBody(WireValue):
    """The body of every answer that is an error."""

    error: Error


class Attempt(WireValue):
    """One attempt to make a verdict; times are in seconds since 1970."""

    number: int
    judge: str
    started: float
    ended: float | None = None
    outcome: Outcome
    message: str = ""


class Score(WireValue):
    """What a reward is made of. What the parts weigh is the trainer's affair."""

    ended_at: Rung
    compiled: bool
    correct: bool
    gate: float
    """0 for a cheat, for a text that is no candidate, and for a problem that wrong answers would pass; else 1."""
    speedup: Number | None = None
    """The speedup over eager PyTorch; None where nothing was timed."""
    speedup_low: Number | None = None
    """Lower 95 % bound of the speedup: what a reward pays, so that the noise of the clock earns nothing."""
    compile_speedup: Number | None = None
    """The speedup over torch.compile; None where it was not asked for, or not timed by the same method."""
    compile_speedup_low: Number | None = None
    """Lower 95 % bound of `compile_speedup`."""
    speed_of_light: Number | None = None
    """The roofline's time over the candidate's, 0 to 1."""
    milliseconds: Number | None = None
    """The candidate's median time of one call."""
    share: Number | None = None
    """The share of the work that its own kernels do, 0 to 1."""
    time_share: Number | None = None
    """The share of GPU time in its own kernels, 0 to 1."""
    checks_passed: int = 0
    checks_made: int = 0
    """Checks of the answers, up to the first that failed."""
    narrow_contract: str = ""
    """Why a correct kernel is right at too few sizes; empty for every other."""
    reward_eligible: bool = True
    """Whether it may earn a full reward: correct, and its own checks take more than one size or free dimension."""
    reward_ineligible_because: str = ""
    """Why it may earn no full reward; empty where it may."""
    fault: Fault | None = None
    mask: bool = False
    """True where this verdict should not train: a fault that a loaded machine may cause."""
    explanation: str = ""


class Status(WireValue):
    """One verdict, as one client sees it."""

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
    """Seconds of judges that verdicts of the client that asks took within the last hour."""
    judge_seconds_quota: float | None = None
    score: Score | None = None
    report: Report | None = None
    error: Error | None = None
    clients: tuple[str, ...] = ()
    """Those that submitted it, in a list of verdicts; on a private server the client alone that asks."""
    groups: tuple[str, ...] = ()
    """The groups that it was submitted with, in a list of verdicts."""


class BatchEntry(WireValue):
    """What became of one submission of a batch: one of the two is None."""

    status: Status | None = None
    error: Error | None = None


class BatchAnswer(WireValue):
    """One entry for each submission, in their order."""

    verdicts: tuple[BatchEntry, ...]
    retry_after: int | None = None
    """Seconds after which the refused ones may be repeated."""


class VerdictList(WireValue):
    """Verdicts, the newest first."""

    verdicts: tuple[Status, ...]
    next: int | None = None
    """What `before` takes for the verdicts that follow; None where none do."""


class VerdictSource(WireValue):
    """The texts of a verdict."""

    verdict_id: str
    candidate: str
    problem: str
    """The reference's source."""
    options: dict[str, Any]
    clients: tuple[str, ...] = ()
    """Those that submitted it; on a private server the client alone that asks."""
    groups: tuple[str, ...] = ()
    """The groups that it was submitted with."""


class VerdictIds(WireValue):
    """Verdicts that a client waits for together."""

    verdict_ids: Annotated[
        tuple[VerdictId, ...], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)
    ]


def first_line(error: Any) -> str:
    """An exception's message as one line."""
    return " ".join(str(error).split())[:1000]
