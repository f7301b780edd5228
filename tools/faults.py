"""Why a candidate is not correct, and the outcome at each size, as values: frozen and JSON-safe,
as every value here.

Nothing imports torch.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer


def _read_number(value: object) -> Any:
    return (
        {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(value, value)
        if isinstance(value, str)
        else value
    )


def _write_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


Number = Annotated[
    float, BeforeValidator(_read_number), PlainSerializer(_write_number, when_used="json")
]
"""A float whose infinities and NaN are written to JSON as the strings "inf", "-inf" and "nan"."""


class Value(BaseModel):
    """Frozen value. `with_` returns a changed copy."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def with_(self, **changes: Any) -> Any:
        """Returns a copy with changed fields, which are not validated."""
        return self.model_copy(update=changes)


class Fault(StrEnum):
    """Reason why a candidate is not correct. Every fault is the candidate's own."""

    NO_CODE = "no_code"
    """The text holds no code at all."""
    SYNTAX = "syntax"
    ENTRY_POINT = "entry_point"
    """No `class ModelNew`, or it cannot be built with the problem's init inputs."""
    IMPORT = "import"
    """The module raises during import."""
    NO_KERNEL = "no_kernel"
    """No Triton kernel is defined, or none is launched."""
    COMPILE = "compile"
    RESOURCES = "resources"
    """More shared memory, registers or threads than the target has."""
    LAUNCH = "launch"
    """The host code raises on the way to a launch, or the launch is refused."""
    RUNTIME = "runtime"
    """The candidate's Python code raises."""
    OUTPUT = "output"
    """Not a tensor, another number of outputs, another device."""
    SHAPE = "shape"
    DTYPE = "dtype"
    LAYOUT = "layout"
    """Wrong on non-contiguous inputs (transposed, sliced, expanded); or an output of another layout."""
    ALIAS = "alias"
    """The output is an input, a weight, or a view of either, unlike the reference's output."""
    MISMATCH = "mismatch"
    PRECISION = "precision"
    """Right up to rounding, but worse than the problem's own precision by more than the allowed
    factor (tf32 for fp32).
    """
    NON_FINITE = "non_finite"
    OUT_OF_BOUNDS = "out_of_bounds"
    """Reads or writes outside its tensors."""
    MUTATION = "mutation"
    """Changes an input or weight that the reference does not change; or lacks a buffer that the
    reference updates."""
    NONDETERMINISM = "nondeterminism"
    """Two calls on the same inputs disagree by more than the tolerance."""
    UNTRACEABLE = "untraceable"
    """Host code reads tensor contents, or behaves differently at every call, so that its launches
    cannot be recorded.
    """
    UNCHECKED = "unchecked"
    """At the problem's own size the candidate launches a kernel which this device cannot check; or
    its weights cannot be loaded, and their use is unknown."""
    FALLBACK = "fallback"
    """torch, or the host, does the kernels' work."""
    CHEAT = "cheat"
    """Cheating, of the kind in `Failure.cheat`."""
    UNJUDGED = "unjudged"
    """The judge itself raised an error on this candidate, named in the message. Other candidates
    are unaffected."""
    TIMEOUT = "timeout"
    CRASH = "crash"
    """The process died: signal, os._exit, a sticky CUDA error."""
    MEMORY = "memory"


class Cheat(StrEnum):
    """Kind of an attempt to cheat."""

    TAMPER = "tamper"
    """Changes torch, triton, the judge's recorder or the interpreter under it."""
    CACHE = "cache"
    """Returns an answer computed for other inputs."""
    CLOCK = "clock"
    """Claims less time than passed: side streams, threads, patched events."""
    TOO_FAST = "physics"
    """Faster than memory and arithmetic allow. Databases and reports hold it under its first name."""
    DECOY = "decoy"
    """Launches kernels on which the output does not depend."""
    ESCAPE = "escape"
    """Accesses files, network, processes or memory of others."""
    FORGERY = "forgery"
    """Writes to the verdict channel, or sends data outside the protocol."""
    WEIGHTS = "weights"
    """The answer does not follow the weights: folded at the first call."""


class SourceLine(Value):
    """A place in the candidate's own text."""

    line: int
    column: int | None = None
    text: str = ""

    def caret(self) -> str:
        """Returns the line, and a caret below if the column is known."""
        return self.text if self.column is None else f"{self.text}\n{' ' * max(self.column, 0)}^"


class WrongElement(Value):
    """Wrong element of an output."""

    index: tuple[int, ...]
    expected: Number
    got: Number


class Pattern(StrEnum):
    """Spatial pattern of a mismatch in the output, a hint at its cause."""

    LAST_BLOCK = "last_block"
    """Only the tail of the rows or of the flat output: the mask."""
    STRIDED = "strided"
    """Every k-th element: a stride."""
    SCALED = "scaled"
    """The ratio of the outputs is constant."""
    SHIFTED = "shifted"
    """The difference of the outputs is constant."""
    ZEROS = "zeros"
    """The elements are all zero: not written."""
    UNWRITTEN = "unwritten"
    """The poison is still there."""
    TRANSPOSED = "transposed"
    NON_FINITE_ROWS = "non_finite_rows"
    """NaN from some row on: a reduction."""
    LARGE_VALUES = "large_values"
    """Wrong only for large values: accumulation or overflow."""
    ROUNDING = "rounding"
    """Small everywhere: precision (tf32, bf16, an approximate function)."""
    SOME_ROWS = "some_rows"
    EVERYWHERE = "everywhere"


class Mismatch(Value):
    """Position and kind of an output's deviation."""

    output: int = 0
    """Index of the wrong output."""
    draw: str = ""
    """Distribution on which the fault occurred."""
    wrong: int = 0
    total: int = 0
    first: WrongElement | None = None
    worst: tuple[WrongElement, ...] = ()
    pattern: Pattern | None = None
    hint: str = ""
    """Sentence on the part of the kernel to inspect."""
    max_error: Number | None = None
    """Largest absolute difference from the float64 reference."""
    error_ratio: Number | None = None
    """Candidate's RMS error over eager's own, both against float64."""


class Failure(Value):
    """Why a rung was not passed."""

    fault: Fault
    message: str
    """Single line, with limited length, without control characters."""
    cheat: Cheat | None = None
    where: SourceLine | None = None
    trace: str = ""
    """The traceback's tail, the candidate's own frames only, capped."""
    mismatch: Mismatch | None = None


class Failed(Exception):
    """Carries a Failure to the edge of its rung, which converts it to a value. Never leaves
    tools/.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class InfrastructureError(RuntimeError):
    """Trouble of the machine, not of the candidate: a busy GPU, a dead driver, a full disk.

    Never a reward. The message is a single line of advice.
    """

    bad_input = False
    """Whether a name given by the user is unusable, such as a missing database: the command exits
    with 2 instead of 3.
    """


def clean_text(text: object, limit: int = 2000) -> str:
    """Cleans text from a candidate: removes control characters, and cuts the middle with a note of
    the amount."""
    raw = "".join(
        c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)
    )
    if len(raw) <= limit:
        return raw
    half = limit // 2
    return f"{raw[:half]}\n[... {len(raw) - 2 * half} characters cut ...]\n{raw[-half:]}"


ARITHMETIC_FAULTS = frozenset(
    {Fault.PRECISION, Fault.MISMATCH, Fault.NON_FINITE, Fault.OUT_OF_BOUNDS}
)
"""Faults that a kernel whose products are in tf32 may not have with the same text in fp32. Three
drafts of transposed convolutions ended in an illegal address on an H100 with Triton 3.6
(bench/results/compiler_drafts-gpu.md); why is not known.
"""


class SizeOutcome(StrEnum):
    """Result of a candidate at a single size."""

    RIGHT = "right"
    WRONG = "wrong"
    OUTSIDE_CONTRACT = "outside_contract"
    """The candidate's own host code raises at this size, and so accepts no input of this size.
    Allowed except at the problem's own size.
    """
    REFUSED = "refused"
    """A kernel does not compile or launch there for want of the GPU's resources. Allowed as OUTSIDE_CONTRACT is."""
    UNUSED = "unused"
    """The reference itself does not run there, or the interpreter would take too long."""


class Tried(Value):
    """Size at which a candidate was checked."""

    sizes: dict[str, int] = {}
    """Module-level integers of the reference; empty for the problem's own size."""
    why: str = ""
    """Reason for this size: "rows one more than 64"."""
    strategy: str = ""
    """Strategies which drew the size, `tools/sizing/strategies.py`: "one, edge of a block"."""
    outcome: SizeOutcome = SizeOutcome.RIGHT
    message: str = ""
    """Message of the failure of a wrong or refused candidate."""


class LayoutCheck(Value):
    """Call of a candidate on inputs with another memory layout than the problem's."""

    layouts: dict[str, str] = {}
    """`input 0 (x)` -> `transposed (strides (1, 64))`, for each input with another layout."""
    outcome: SizeOutcome = SizeOutcome.RIGHT
    """RIGHT, WRONG, OUTSIDE_CONTRACT if the host code raises, REFUSED, or UNUSED without a
    result.
    """
    message: str = ""
    """Message of the failure of a candidate which was wrong or raised."""
    mismatch: Mismatch | None = None

    @property
    def where(self) -> str:
        """Returns the layouts as a clause: `input 0 (x) is transposed (strides (1, 64))`."""
        return " and ".join(f"{name} is {layout}" for name, layout in self.layouts.items())
