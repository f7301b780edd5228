"""What is asked of a verdict and what comes back, as values."""

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
    CorrectnessResult,
    Failed,
    Failure,
    Fault,
    SizeOutcome,
    Tried,
)
from kernelwright.tools.trace.trace import Traced

if TYPE_CHECKING:
    from kernelwright.tools.expected.prepared_problem import PreparedProblem
    from kernelwright.tools.judging.examination import Evidence

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
"""How a message begins of a kernel that is wrong on other inputs than those that the problem draws."""
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
    Draw.REDRAWN: "inputs that are equal in every draw of get_inputs hold other values",
}


class ChecksOf(Enum):
    """Which checks a judge makes of a candidate."""

    ONLY_JUDGE = 1
    """All: nobody else judges the candidate."""
    GPU_BESIDE_INTERPRETER = 2
    """Those that depend on a GPU's arithmetic or on long rows; an interpreter makes the others."""
    INTERPRETER_BESIDE_GPU = 3
    """Those that depend on host code and on data alone, at short rows; a GPU makes the others."""


@dataclass(frozen=True)
class Rules:
    """What is asked of a candidate."""

    own_work: Rule = field(default_factory=Rule)
    seconds: float = 120.0
    """Seconds for all of its replays."""
    may_refuse: float = 0.5
    """Share of the other sizes at which the candidate's host code may raise."""
    contiguous_inputs: bool = False
    """Whether a candidate may be wrong on inputs in other layouts than the problem's own."""
    checks: ChecksOf = ChecksOf.ONLY_JUDGE


class Thoroughness(Enum):
    """How much is asked at one size."""

    ALL = 1
    """Every distribution, other weights, decoys."""
    FEW = 2
    """Own inputs twice, other weights, other signs."""
    ONE_CALL = 3


@dataclass
class JudgeFindings:
    """What a judge found."""

    result: CorrectnessResult
    needs_gpu: str = ""
    """Why no interpreter can run it; then nothing is known of its answers."""
    coverage: Coverage | None = None
    """What the draws exercised; None on a GPU, and where a check failed."""

    def with_result(self, result: CorrectnessResult) -> JudgeFindings:
        """The same with another result."""
        return JudgeFindings(result, self.needs_gpu, self.coverage)


def distributions_for(traced: Traced, prepared: PreparedProblem, inputs: list[Any]) -> list[Draw]:
    """Returns the draws beside the problem's own at one size: those of every candidate, and those
    that its texts, its inputs or the reference ask for.
    """
    asked = {
        # A sum of numbers of all magnitudes is decided by one of them, and a scan may combine them in another order.
        Draw.EXPONENTS: not prepared.mixes_elements,
        Draw.SUBNORMAL: _holds_subnormal_numbers(prepared, inputs),
        **dict.fromkeys(OF_PAIRS, bool(pairs_of_tensors(inputs))),
        **dict.fromkeys(WITH_NAN, any(treats_nan(f.text) for f in traced.functions.values())),
    }
    return [*DISTRIBUTIONS, *(draw for draw in asked if asked[draw])]


def _holds_subnormal_numbers(prepared: PreparedProblem, inputs: list[Any]) -> bool:
    """Whether every processor computes with subnormal numbers of the inputs: those of float16 are normal ones of
    float32, and where no operator rounds they are moved and compared alone.
    """
    import torch

    return prepared.is_exact or any(
        isinstance(v, torch.Tensor) and v.dtype == torch.float16 for v in inputs
    )


def refused_sizes(tried: Sequence[Tried]) -> list[Tried]:
    """Returns the sizes that the candidate itself refuses."""
    return [t for t in tried if t.outcome in (SizeOutcome.OUTSIDE_CONTRACT, SizeOutcome.REFUSED)]


def require_enough_sizes(tried: Sequence[Tried], others: int, rules: Rules, slow: int = 0) -> None:
    """Raises Failed where most of so many other sizes say nothing of a candidate: it has not been checked.

    slow: those that were left out because they take an interpreter too long.
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
    """Returns why a correct candidate earns no full reward: its guard leaves it one size, or one dimension, at which it
    was checked. Empty where it was checked at more, or where no guard of its own kept it from that.

    Example: a kernel that raises unless `rows == 512 and columns == 512` is right, and says nothing about another size.
    problem: with its own sizes.
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
    dimensions, free_dimensions = set(own.values()), {own[name] for name in free}
    if len(free_dimensions) == 1 and len(dimensions) > 1:
        return f"it was right where {' and '.join(free)} alone varies: its own checks raise where any other size does"
    return ""


SOME_STRIDES = "it goes by the strides of its inputs, and is wrong on some layouts all the same"
SIGN_OF_NAN = "it is right on NaN, and wrong on NaN whose sign is set"
WITHOUT_ANSWER = "it gives NaN for rows of minus infinity, where the reference has an answer"


def unanswered(evidence: Evidence) -> str:
    """Returns why a candidate without a fault earns no full reward by its answers; empty if it may."""
    if evidence.goes_by_strides:
        return SOME_STRIDES
    if evidence.has_no_answer:
        return WITHOUT_ANSWER
    return SIGN_OF_NAN if evidence.reads_sign_of_nan else ""
