"""Answers of the tools, as frozen values. An MCP client reads these as JSON."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from kernelwright.tools.report import Fault, Value


class Question(StrEnum):
    """Kind of verdict, by the name of its tool."""

    COMPILE = "compile"
    """Trace the host code and compile every kernel ahead of time. No GPU."""
    INTERPRET = "interpret"
    """Run the kernels under Triton's interpreter at small sizes, and compare. No GPU, nothing is compiled."""
    CHECK = "check"
    """Compile and compare, on the server's GPU, or under the interpreter without a GPU."""
    BENCH = "bench"
    """Compare, then time against eager PyTorch. Needs a GPU."""
    PROFILE = "profile"
    """Compare, then time every launch, with the roofline. Without a GPU: figures of the compiler
    only.
    """


class AnswerState(StrEnum):
    """The state of a verdict."""

    RUNNING = "running"
    """The verdict is under way; the tool `result` returns it later."""
    FINISHED = "finished"
    REFUSED = "refused"
    """Nothing was judged: the request is invalid, or the budget is spent. `error` names the remedy.
    """
    CANCELLED = "cancelled"
    """Stopped by `cancel`; no verdict was taken from the budget."""
    FAILED = "failed"
    """This machine failed, not the candidate. `error` names the remedy; the budget is unchanged."""


class VerdictOutcome(StrEnum):
    """Result of a finished verdict, in one word."""

    COMPILED = "compiled"
    NOT_COMPILED = "not_compiled"
    CORRECT = "correct"
    INCORRECT = "incorrect"
    FASTER = "faster"
    """Correct, and the 95 % interval of the speedup over the baseline lies above 1."""
    SLOWER = "slower"
    """Correct, and the 95 % interval of the speedup over the baseline lies below 1."""
    INCONCLUSIVE = "inconclusive"
    """Correct with an interval that contains 1, or not checkable on this machine."""
    INVALID = "invalid"
    """Not a candidate (no code, no ModelNew, no kernel), or torch or a trick does the work of the
    kernels.
    """
    NEEDS_GPU = "needs_gpu"
    """The question, or this candidate, needs a GPU, and this server has none."""


class BudgetLeft(Value):
    """Remaining budget of the client on this server, counted from the server's start."""

    verdicts: int
    seconds: float = Field(description="Seconds of judging.")


class ToolAnswer(Value):
    """Common fields of all tool answers."""

    verdict_id: str | None = Field(
        description="Names the verdict to `result`; null where none was made."
    )
    budget: BudgetLeft
    error: str = Field(
        default="",
        description="One line that says what to do; empty where the request was answered.",
    )


class FailureNote(Value):
    """The reason why a candidate is not correct, and the place to look at."""

    fault: Fault
    cheat: str | None = None
    message: str
    line: int | None = Field(default=None, description="In the candidate's text, from 1.")
    text: str = Field(default="", description="That line, and a caret under the column.")
    pattern: str | None = Field(default=None, description="How wrong elements lie in the output.")
    hint: str = ""
    wrong: int | None = Field(default=None, description="Wrong elements.")
    total: int | None = None
    traceback: str = Field(default="", description="The candidate's own frames.")


class KernelNote(Value):
    """Compiler figures of a kernel for the main target."""

    name: str
    target: str
    registers: int | None = None
    spills: int | None = Field(default=None, description="Bytes of local memory a thread.")
    shared: int | None = Field(default=None, description="Bytes a block.")
    occupancy: float | None = Field(default=None, description="0 to 1.")
    occupancy_limit: str = ""
    tensor_core: str = ""
    vector_bits: int | None = Field(default=None, description="Widest global load.")
    launches: int = 0


class LaunchNote(Value):
    """Time of a kernel launch."""

    kernel: str
    milliseconds: float | None = None
    share: float | None = None


class SpeedNote(Value):
    """The measured times, in milliseconds per call."""

    device: str
    candidate: float | None = None
    host_milliseconds: float | None = Field(
        default=None,
        description="What the host takes to launch one call without a CUDA graph; part of no time above.",
    )
    baseline: str = "eager"
    baseline_milliseconds: float | None = None
    baseline_host_milliseconds: float | None = None
    speedup: float | None = Field(
        default=None, description="None where both could not be timed by the same method."
    )
    speedup_low: float | None = Field(default=None, description="Lower end of the 95 % interval.")
    speedup_high: float | None = None
    speed_of_light: float | None = Field(
        default=None, description="Roofline time over the candidate's, 0 to 1."
    )
    bound: str = Field(default="", description="memory or compute.")
    notes: tuple[str, ...] = Field(
        default=(), description="How it was timed where that is unusual."
    )
    launches: tuple[LaunchNote, ...] = ()


class VerdictAnswer(ToolAnswer):
    """State of a verdict, and its result once finished."""

    state: AnswerState
    question: Question | None = None
    problem: str = ""
    outcome: VerdictOutcome | None = None
    explanation: str = ""
    ended_at: str = Field(
        default="", description="source, compile, interpreted, correctness or profile."
    )
    judged_on: str = Field(
        default="", description="cpu (interpreted, small sizes) or the GPU's name."
    )
    failure: FailureNote | None = None
    checks_passed: int | None = None
    checks_made: int | None = None
    own_share: float | None = Field(
        default=None, description="Share of the work in its own kernels, 0 to 1."
    )
    seed: int | None = Field(
        default=None, description="Repeats this verdict when it is given as `seed`."
    )
    kernels: tuple[KernelNote, ...] = ()
    speed: SpeedNote | None = None
    advice: tuple[str, ...] = Field(
        default=(), description="What the text looks like. Never the verdict."
    )
    warnings: tuple[str, ...] = ()
    doing: str = Field(default="", description="The step of a running verdict.")
    seconds: float | None = None
    report: str = Field(default="", description="The whole report as JSON, where it was asked for.")
    source: str = Field(default="", description="The candidate's text, where it was asked for.")


class ProblemLine(Value):
    """Problem in a list."""

    name: str
    title: str
    family: str


class ProblemsAnswer(ToolAnswer):
    """List of problems from the catalogue."""

    problems: tuple[ProblemLine, ...] = ()
    total: int = Field(default=0, description="Problems of the catalogue.")


class ProblemAnswer(ToolAnswer):
    """Problem with its reference and the rules for candidates."""

    name: str = ""
    title: str = ""
    family: str = ""
    problem_hash: str = ""
    reference: str = Field(
        default="", description="The PyTorch text that a candidate must agree with."
    )
    contract: str = Field(default="", description="What a candidate must look like.")


class HistoryLine(Value):
    """Verdict in a list."""

    verdict_id: str
    question: Question
    problem: str
    state: AnswerState
    outcome: VerdictOutcome | None = None
    explanation: str = ""
    candidate_hash: str = ""
    speedup: float | None = None
    created: str = Field(description="UTC, ISO 8601.")


class HistoryAnswer(ToolAnswer):
    """Earlier verdicts of this project."""

    verdicts: tuple[HistoryLine, ...] = ()
    total: int = Field(default=0, description="Verdicts that match, shown here or not.")
