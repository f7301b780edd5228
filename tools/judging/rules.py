"""Input and output values of a verdict: rules, draws, findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparison_coverage import Coverage
from kernelwright.tools.compiling.text.nan_handling import treats_nan
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import (
    OF_PAIRS,
    WITH_NAN,
    Draw,
    pairs_of_tensors,
)
from kernelwright.tools.references.size_search import changeable_integers
from kernelwright.tools.report import (
    Check,
    CorrectnessResult,
    Failed,
    Failure,
    Fault,
    OwnWork,
    SizeOutcome,
    Tried,
)
from kernelwright.tools.trace.trace import Traced

if TYPE_CHECKING:
    from kernelwright.tools.expected.prepared_problem import PreparedProblem
    from kernelwright.tools.judging.searching.outcome_search import OutcomeSearch
    from kernelwright.tools.judging.size_checks import SizeChecks

DISTRIBUTIONS = (
    Draw.SIGNED,
    Draw.NEGATIVE,
    Draw.WIDE,
    Draw.LARGE,
    Draw.TINY,
    Draw.CONSTANT_ROWS,
    Draw.ZERO_ROWS,
    Draw.SPECIAL,
    Draw.INFINITE,
    Draw.SCALED,
    Draw.ISOLATED,
    Draw.STRUCTURED,
    Draw.ALONE,
    Draw.MINUS_INFINITE_ROWS,
    Draw.OFFSET,
    Draw.REDRAWN,
)

ELSEWHERE = "right on the problem's own inputs; wrong where "
"""Prefix of messages about kernels that fail only on inputs which the problem does not draw."""
WHERE = {
    Draw.SIGNED: "half of the numbers change their sign",
    Draw.LARGE: "numbers are about 20 times as large",
    Draw.WIDE: "numbers have magnitudes over sixteen powers of two",
    Draw.CONSTANT_ROWS: "every row is one number",
    Draw.SPECIAL: "some numbers are zero, some simple, some large",
    Draw.NEGATIVE: "every number is below zero",
    Draw.TINY: "numbers are a ten-thousandth as large",
    Draw.ZERO_ROWS: "some rows are zeros",
    Draw.NAN: "some numbers are NaN",
    Draw.NEGATIVE_NAN: "some numbers are NaN whose sign is set",
    Draw.INFINITE: "some numbers are infinite",
    Draw.MEETING: "some numbers of two inputs are equal or nearly so",
    Draw.SEARCHED: "numbers lie where comparisons of the kernel turn",
    Draw.SCALED: "rows are scaled by large and small powers of two",
    Draw.ISOLATED: "all but a few numbers of each row are zero",
    Draw.MIXED_ROWS: "some rows hold zeros, some few numbers among zeros",
    Draw.STRUCTURED: "rows are sorted, repeated, mirrored, whole or one-hot",
    Draw.INDEX_ENDS: "indices are the first and the last",
    Draw.ALONE: "all but a few numbers of each row are minus infinity",
    Draw.AGREEING: "two inputs agree but for a few numbers",
    Draw.MATRICES: "inputs or weights are triangular, of rank one, of few bits, of equal rows, or equal",
    Draw.SUBNORMAL: "the numbers of an input are subnormal",
    Draw.MINUS_INFINITE_ROWS: "some rows are minus infinity",
    Draw.EXPONENTS: "an input holds numbers of every exponent",
    Draw.CONVERGED: "one input is nearly another",
    Draw.OFFSET: "rows have a large common offset",
    Draw.GRADED: "some numbers of a row are a million times as large as the others",
    Draw.REDRAWN: "inputs that are equal in every draw of get_inputs hold other values",
}


class ChecksOf(Enum):
    """Selection of a judge's checks."""

    ONLY_JUDGE = 1
    """All checks: there is no other judge of the candidate."""
    GPU_BESIDE_INTERPRETER = 2
    """Checks that depend on a GPU's arithmetic or on long rows; an interpreter makes the others."""
    INTERPRETER_BESIDE_GPU = 3
    """Checks that depend on host code and data alone, at short rows; a GPU makes the others."""


@dataclass(frozen=True)
class Rules:
    """Requirements on a candidate."""

    own_work: Rule = field(default_factory=Rule)
    seconds: float = 120.0
    """Time limit, in seconds, of all its replays."""
    may_refuse: float = 0.5
    """Maximum share of the other sizes at which the candidate's host code may raise."""
    contiguous_inputs: bool = False
    """Accepts wrong answers on inputs in other layouts than the problem's own."""
    checks: ChecksOf = ChecksOf.ONLY_JUDGE


class Thoroughness(Enum):
    """Amount of checks at a size."""

    ALL = 1
    """Checks every distribution, other weights, decoys."""
    FEW = 2
    """Checks own inputs twice, other weights, other signs."""
    ONE_CALL = 3


@dataclass
class JudgeFindings:
    """Findings of a judge."""

    result: CorrectnessResult
    needs_gpu: str = ""
    """Reason why no interpreter can run the candidate; its answers are unknown then."""
    coverage: Coverage | None = None
    """Outcomes exercised by the draws; None on a GPU, and after a failed check."""

    def with_result(self, result: CorrectnessResult) -> JudgeFindings:
        """Returns the findings with another result."""
        return JudgeFindings(result, self.needs_gpu, self.coverage)


@dataclass
class Evidence:
    """Findings about a candidate at all sizes so far."""

    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tolerances: list[Any] = field(default_factory=list)
    """Eager's own error by output, if float64 outputs exist."""
    work: OwnWork | None = None
    share: float | None = None
    """Share of the reference's operations not done by torch in the candidate, 0 to 1."""
    deterministic: bool | None = None
    """Two calls on equal inputs agreed bit for bit on a GPU; None under the interpreter."""
    only_moves: bool | None = None
    """The problem only moves values, at every size examined so far; None before the first."""
    search: OutcomeSearch | None = None
    """The search after the ordinary draws; None if these found a fault."""
    has_no_answer: bool = False
    """Yields NaN for rows of minus infinity although no sum or product of the reference combines
    them."""
    reads_sign_of_nan: bool = False
    """Correct on NaN, and wrong on NaN with a set sign."""
    goes_by_strides: bool = False
    """Correct if no input has a usual stride, and wrong in another layout."""
    moves_on: bool = False
    """State of the candidate's own changes at every call."""
    reloaded: bool | None = None
    """True if all weights of the reference are loaded into the candidate; None if the reference has
    none."""

    def add(self, checks: SizeChecks) -> None:
        """Adds the comparisons at a size, and the first remark of each kind."""
        self.checks += checks.checks
        if checks.notes and not any(note.startswith("right, and ") for note in self.notes):
            self.notes.append(checks.notes[0])
        if checks.undecided and checks.undecided not in self.notes:
            self.notes.append(checks.undecided)


def distributions_for(traced: Traced, prepared: PreparedProblem, inputs: list[Any]) -> list[Draw]:
    """Returns the draws of a size beside the problem's own: the common ones, and those that
    kernels, inputs or reference call for."""
    conditions = {
        # A sum of numbers of all magnitudes is decided by one of them, and a scan may combine them in another order.
        Draw.EXPONENTS: not prepared.mixes_elements,
        Draw.GRADED: prepared.mixes_elements and not prepared.is_exact,
        Draw.SUBNORMAL: _holds_subnormal_numbers(prepared, inputs),
        **dict.fromkeys(OF_PAIRS, bool(pairs_of_tensors(inputs))),
        **dict.fromkeys(WITH_NAN, any(treats_nan(f.text) for f in traced.functions.values())),
    }
    return [*DISTRIBUTIONS, *(draw for draw in conditions if conditions[draw])]


def _holds_subnormal_numbers(prepared: PreparedProblem, inputs: list[Any]) -> bool:
    """Returns True if every processor computes with subnormal numbers of the inputs.

    Those of float16 are normal in float32; without rounding operators, they are only moved and
    compared.
    """
    import torch

    return prepared.is_exact or any(
        isinstance(v, torch.Tensor) and v.dtype == torch.float16 for v in inputs
    )


def refused_sizes(tried: Sequence[Tried]) -> list[Tried]:
    """Returns the sizes that the candidate itself refuses."""
    return [t for t in tried if t.outcome in (SizeOutcome.OUTSIDE_CONTRACT, SizeOutcome.REFUSED)]


def require_enough_sizes(tried: Sequence[Tried], others: int, rules: Rules, slow: int = 0) -> None:
    """Raises Failed if a majority of the other sizes yields no result: the candidate has not been
    checked.

    slow: number of sizes skipped because they take an interpreter too long.
    """
    refused = refused_sizes(tried)
    if others and len(refused) > rules.may_refuse * others:
        message = (
            f"refuses {len(refused)} of {others} other sizes, the last with: {refused[-1].message}"
        )
        raise Failed(Failure(fault=Fault.RUNTIME, message=message))
    if others and slow > rules.may_refuse * others:
        unused = [t for t in tried if t.outcome is SizeOutcome.UNUSED]
        message = f"{slow} of {others} other sizes could not be checked: {unused[-1].message}"
        raise Failed(Failure(fault=Fault.TIMEOUT, message=message))


def narrow_contract(problem: Problem, result: CorrectnessResult) -> str:
    """Returns the reason for a reduced reward of a correct candidate whose guard admits a single
    size or dimension; else "".

    Example: a kernel that raises unless `rows == 512 and columns == 512` is correct, and shows
    nothing about other sizes. problem: with its own sizes.
    """
    is_guarded = any(size.outcome is SizeOutcome.OUTSIDE_CONTRACT for size in result.tried)
    if not is_guarded and not result.fixed_sizes:
        return ""
    own = changeable_integers(problem)
    right = [own | size.sizes for size in result.tried if size.outcome is SizeOutcome.RIGHT]
    if result.fixed_sizes:
        free = [name for name in own if name not in result.fixed_sizes]
    else:
        free = [name for name in own if len({sizes[name] for sizes in right}) > 1]
    if not free:
        return "it was right at the problem's own size only: its own checks raise at every other size that was drawn"
    # Sizes that the problem gives one value are one dimension: they vary together.
    dimensions = set(own.values())
    free_dimensions = {own[name] for name in free}
    if len(free_dimensions) == 1 and len(dimensions) > 1:
        return f"it was right where {' and '.join(free)} alone varies: its own checks raise where any other size does"
    return ""


SOME_STRIDES = "it goes by the strides of its inputs, and is wrong on some layouts all the same"
SIGN_OF_NAN = "it is right on NaN, and wrong on NaN whose sign is set"
WITHOUT_ANSWER = "it gives NaN for rows of minus infinity, where the reference has an answer"


def unanswered(evidence: Evidence) -> str:
    """Returns the reason for a reduced reward of a candidate without a fault, from its answers; ""
    without one."""
    if evidence.goes_by_strides:
        return SOME_STRIDES
    if evidence.has_no_answer:
        return WITHOUT_ANSWER
    return SIGN_OF_NAN if evidence.reads_sign_of_nan else ""
