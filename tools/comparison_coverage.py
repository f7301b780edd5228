"""What a verdict exercised of a kernel: outcomes of its comparisons of data, and draws that were searched for."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.faults import Number, Value

MAX_COMPARISONS = 64
"""Comparisons that a report lists, one-sided ones first."""


class OutcomeCoverage(StrEnum):
    """What is known of the two outcomes of one comparison."""

    BOTH = "both"
    UNCOVERED = "uncovered"
    """One was never produced, though a searched draw brought the operands nearer to it than any other draw did."""
    BOUNDED = "bounded"
    """One was never produced, and no draw on which the reference is finite brings the operands nearer: a guard of a
    division, a value that is never negative.
    """
    UNDECIDED = "undecided"
    """A conjunction or disjunction had one outcome: nothing tells how near its parts were to the other together."""
    NOT_SEARCHED = "not_searched"
    """One was never produced, and nothing was searched for: it is evaluated at other sizes than the base size only."""


class ComparisonCoverage(Value):
    """One comparison of a kernel's text whose operands depend on loaded data."""

    line: int
    """Line of the candidate's file; 0 for a function of a library."""
    text: str
    operator: str
    """<, <=, >, >=, ==, !=, min, max, and, or; +, -, `+ constant` and `- constant` for a sum."""
    true: bool
    """Whether it held on a lane that is not masked off; of min and max, whether the first operand was larger; of a sum,
    whether its first operand that is data was more than 2^-14 of the other one.
    """
    false: bool
    evaluations: int
    """Blocks that were compared."""
    outcomes: OutcomeCoverage
    nearest: tuple[Number, Number] | None = None
    """Operands of a one-sided comparison where they came nearest, the data first."""


class ConstantResult(Value):
    """A result of an operation on data that was one value on all draws, although an operand took several: what the
    kernel does with another value was not seen.
    """

    line: int
    """Line of the candidate's file; 0 for a function of a library."""
    text: str
    operation: str
    """Of Triton's builder or language: `ashr`, `fp_to_si`, `reduce`."""
    value: Number | None = None
    """The only value; None where it is not finite."""


class SearchedDraw(Value):
    """A draw that was made to produce outcomes that no other draw had produced."""

    change: str
    """What was changed, in words."""
    used: bool
    """Whether the reference is finite and accurate on it, so that the candidate was checked on it."""
    produced: int = 0
    """Comparisons that have had both outcomes since."""


class Coverage(Value):
    """What the draws of a verdict exercised, seen by an interpreter: a GPU tells nothing of outcomes."""

    comparisons: tuple[ComparisonCoverage, ...] = ()
    comparison_count: int = 0
    """All of them, listed or not."""
    constant_results: tuple[ConstantResult, ...] = ()
    searched: tuple[SearchedDraw, ...] = ()
    search_seconds: Number = 0.0
    unseen: str = ""
    """Why no interpreter saw a candidate that is right on a GPU; empty where one did."""

    @property
    def uncovered(self) -> tuple[ComparisonCoverage, ...]:
        """The comparisons that a kernel may do something else behind, unseen."""
        return tuple(one for one in self.comparisons if one.outcomes is OutcomeCoverage.UNCOVERED)

    @property
    def reward_ineligible_because(self) -> str:
        """Why a kernel that was right on all draws earns no full reward, in one line; empty where it may."""
        if self.unseen:
            return f"its comparisons were seen by no interpreter: {self.unseen}"
        if not self.uncovered:
            return self._constant_result
        first = self.uncovered[0]
        if first.operator[0] in "+-":
            return (
                f"an operand of a sum was next to nothing beside the other on every draw: `{first.operator}` at line "
                f"{first.line}: {first.text}"
            )
        never = "true" if not first.true else "false"
        more = f", and {len(self.uncovered) - 1} more" if len(self.uncovered) > 1 else ""
        return (
            f"a comparison was never {never} on any draw: `{first.operator}` at line "
            f"{first.line}: {first.text}{more}"
        )

    @property
    def _constant_result(self) -> str:
        if not self.constant_results:
            return ""
        first = self.constant_results[0]
        value = "one value" if first.value is None else f"{first.value:.6g}"
        return (
            f"a result was {value} on every draw: `{first.operation}` at line {first.line}: "
            f"{first.text}"
        )
