"""Report values about a kernel's comparisons of data: outcomes exercised, and searched draws."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.faults import Number, Value

MAX_COMPARISONS = 64
"""Maximum number of comparisons listed in a report, one-sided ones first."""


class OutcomeCoverage(StrEnum):
    """Knowledge about the two outcomes of a comparison."""

    BOTH = "both"
    UNCOVERED = "uncovered"
    """An outcome never occurred, although a searched draw brought the operands closer than any
    other draw."""
    BOUNDED = "bounded"
    """An outcome never occurred, and no draw with a finite reference brings the operands closer.

    Examples: the guard of a division, a nonnegative value.
    """
    UNDECIDED = "undecided"
    """A conjunction or disjunction had one outcome: nothing tells how near its parts were to the other together."""
    NOT_SEARCHED = "not_searched"
    """An outcome never occurred, and there was no search: evaluated only at sizes other than the
    base size."""


class ComparisonCoverage(Value):
    """A comparison in a kernel's source whose operands depend on loaded data."""

    line: int
    """Line of the candidate's file; 0 for a function of a library."""
    text: str
    operator: str
    """<, <=, >, >=, ==, !=, min, max, and, or; +, -, `+ constant` and `- constant` for a sum."""
    true: bool
    """True on an active lane; for min and max, the first operand was larger; for a sum, its first
    data-dependent operand exceeded 2^-14 of the other."""
    false: bool
    evaluations: int
    """Compared blocks."""
    outcomes: OutcomeCoverage
    nearest: tuple[Number, Number] | None = None
    """Operands of a one-sided comparison at their smallest distance, data first."""


class ConstantResult(Value):
    """A result of an operation on data with a single value on all draws although an operand varied:
    behaviour for other values is unknown."""

    line: int
    """Line of the candidate's file; 0 for a function of a library."""
    text: str
    operation: str
    """Of Triton's builder or language: `ashr`, `fp_to_si`, `reduce`."""
    value: Number | None = None
    """The only value; None if not finite."""


class SearchedDraw(Value):
    """A draw made to produce outcomes missing in all other draws."""

    change: str
    """Change of the draw, in words."""
    used: bool
    """The reference is finite and accurate on the draw, so that the candidate was checked."""
    produced: int = 0
    """Comparisons that have had both outcomes since."""


class Coverage(Value):
    """Comparisons exercised by a verdict's draws, observed by an interpreter: a GPU reports no
    outcomes."""

    comparisons: tuple[ComparisonCoverage, ...] = ()
    comparison_count: int = 0
    """All of them, listed or not."""
    constant_results: tuple[ConstantResult, ...] = ()
    searched: tuple[SearchedDraw, ...] = ()
    search_seconds: Number = 0.0
    unseen: str = ""
    """Reason why no interpreter observed a candidate that passed on a GPU; empty if observed."""

    @property
    def uncovered(self) -> tuple[ComparisonCoverage, ...]:
        """The comparisons with an outcome behind which unseen behaviour may lie."""
        return tuple(
            comparison
            for comparison in self.comparisons
            if comparison.outcomes is OutcomeCoverage.UNCOVERED
        )

    @property
    def reward_ineligible_because(self) -> str:
        """Reason for a reduced reward of a kernel that passed all draws, in a line; empty without
        one."""
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
