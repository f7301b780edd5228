"""Searches for outcomes of a kernel's comparisons that no draw has produced, on a CPU at the base
size.

    ordinary draws            `x > 1e7` is never true; nearest miss 3.9e6 beside 1e7
    Put((1e7,))               1e7, 2e7 and their neighbours: it is true, and the answer is compared

In order: thresholds are placed among the inputs; then numbers at which an elementary function of an
input reaches a threshold (its root, its logarithm, ...); then magnitudes are spread over the range
that the reference tolerates; then rows are scaled by the missing factor, corrected by the effect of
the last factor on the operand.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence

from kernelwright.tools.comparison_coverage import (
    MAX_COMPARISONS,
    ComparisonCoverage,
    ConstantResult,
    Coverage,
    OutcomeCoverage,
    SearchedDraw,
)
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.expected.searched_draws import (
    Change,
    Put,
    Scaled,
    Spread,
    usable_numbers,
)
from kernelwright.tools.replaying.interpreter.comparisons.messages import (
    ToldComparison,
    ToldOutcomes,
    ToldResult,
)
from kernelwright.tools.replaying.interpreter.comparisons.outcomes import ADDITIVE, LOGICAL

MAX_SEARCH_DRAWS = 6
"""Maximum number of searched draws per verdict on which the candidate runs."""
MAX_SEARCHED_NUMBERS = 16
"""Maximum number of values placed among the inputs of a draw."""
MAX_NUMBERS_BY_BITS = 6
"""Maximum number of values by bit pattern: fewer, so that each is frequent, since neighbours differ
in their bits."""
NEAR_ONE = 256.0
"""Upper bound of numbers near one; the lower bound is its inverse."""
MAX_TRIALS = 12
"""Maximum number of reference runs to find usable values."""
SPREAD_LIMITS = (100, 50, 24)
"""Powers of two over which magnitudes are spread: the first at which the reference is accurate is
used."""
TRIED_FACTORS = (1.0, 0.5)
"""Fractions of a scale's logarithm, tried in order until the reference is accurate."""
SMALLEST_NORMAL = 2.0**-126
FP32_EXPONENTS = 255
"""Number of float32 exponents without those of infinities and NaN."""
MAX_LOGARITHM = 80.0
"""Maximum logarithm of scales, and of exponentiated numbers."""
NEARER = 0.999
"""Ratio below which a distance counts as changed."""

Expect = Callable[[Change], ExpectedOutputs | None]
Tell = Callable[[], ToldOutcomes]
"""Returns comparisons and constant results so far; nearest operands are those since the previous
call."""


class OutcomeSearch:
    """The search of a verdict."""

    def __init__(
        self, expect: Expect, check: Callable[[ExpectedOutputs, int], None], tell: Tell
    ) -> None:
        """expect: returns a changed draw with expected outputs, None if the reference is not
        accurate on it. check: runs and compares a call of the candidate; raises Failed."""
        self._expect = expect
        self._tell = tell
        self._check = check
        self._comparisons: dict[int, ToldComparison] = {}
        self._constant_results: list[ToldResult] = []
        self._misses: dict[int, list[tuple[float, float]]] = {}
        """Nearest operands of each comparison: before the search, then in each searched draw."""
        self._scales: dict[int, list[tuple[float, float]]] = {}
        """For each comparison, logarithms of the scale of all inputs and of the resulting operand.
        """
        self._last: tuple[Change, ExpectedOutputs | None] | None = None
        """The last computed draw: a usable change is tried next."""
        self._draws: list[SearchedDraw] = []
        self._seconds = 0.0

    def run(self) -> None:
        """Searches for missing outcomes of all comparisons at once. Raises Failed if the candidate
        is wrong."""
        began = time.monotonic()
        try:
            self._listen(None)
            for change in self._changes():
                if len(self._draws) >= MAX_SEARCH_DRAWS:
                    break
                self._try(change)
        finally:
            self._seconds, self._last = time.monotonic() - began, None

    def _listen(self, change: Change | None) -> None:
        outcomes = self._tell()
        self._constant_results = outcomes.constant_results
        for comparison in outcomes.comparisons:
            self._comparisons[comparison.number] = comparison
            if comparison.nearest is None:
                continue
            self._misses.setdefault(comparison.number, []).append(comparison.nearest)
            if isinstance(change, Scaled) and not change.in_turns and comparison.nearest[0]:
                point = math.log(change.scale), math.log(abs(comparison.nearest[0]))
                self._scales.setdefault(comparison.number, []).append(point)

    def _missing(self) -> list[ToldComparison]:
        """Returns comparisons with a missing outcome, except those with infinite operands alone."""
        return [
            comparison
            for comparison in self._comparisons.values()
            if comparison.one_sided
            and not comparison.of_arguments
            and (comparison.number in self._misses or comparison.operator in LOGICAL)
        ]

    def _expected(self, change: Change) -> ExpectedOutputs | None:
        if self._last is None or self._last[0] != change:
            self._last = change, self._expect(change)
        return self._last[1]

    def _try(self, change: Change) -> None:
        missing = len(self._missing())
        expected = self._expected(change)
        if expected is not None:
            self._check(expected, len(self._draws))
            self._listen(change)
        produced = missing - len(self._missing())
        self._draws.append(
            SearchedDraw(change=str(change)[:200], used=expected is not None, produced=produced)
        )

    def _changes(self) -> Iterator[Change]:
        """Yields a draw of all thresholds, then of numbers whose functions reach them, then further
        ones while an outcome is missing."""
        constants = [
            comparison.constant
            for comparison in self._comparisons.values()
            if comparison.constant is not None and not comparison.of_arguments
        ]
        if usable := self._usable([*self._turning_numbers(), *constants]):
            yield Put(usable)
        if usable := self._usable(
            self._numbers_of_functions()
        ):  # a larger number of the row may have hidden a turn
            yield Put(usable)
        for numbers in self._numbers_by_bits():
            if self._constant_results and (usable := self._usable(numbers)):
                yield Put(usable)
        if self._missing() and (spread := self._spread()) is not None:
            yield spread
        for in_turns in (True, False, False, False):
            if (scaled := self._scaled(in_turns)) is not None:
                yield scaled

    def _usable(self, numbers: Sequence[float]) -> tuple[float, ...]:
        chosen = tuple(dict.fromkeys(n for n in numbers if math.isfinite(n) and n))[
            :MAX_SEARCHED_NUMBERS
        ]
        return usable_numbers(
            chosen, lambda group: self._expected(Put(group)) is not None, MAX_TRIALS
        )

    def _turning_numbers(self) -> list[float]:
        """Returns second operands of one-sided comparisons.

        For a conjunction, those of other comparisons and the midpoints between them.
        """
        missing = self._missing()
        numbers = [
            n
            for comparison in missing
            for n in _turning_numbers(comparison, self._misses.get(comparison.number, []))
        ]
        if any(comparison.operator in LOGICAL for comparison in missing):
            constants = sorted(
                {
                    comparison.constant
                    for comparison in self._comparisons.values()
                    if comparison.constant is not None
                }
            )
            numbers += [(a + b) / 2 for a, b in itertools.pairwise(constants)] + constants
        return numbers

    def _numbers_of_functions(self) -> list[float]:
        """Returns arguments at which elementary functions reach thresholds, those of missing
        outcomes first."""
        constants = [
            comparison.constant for comparison in self._comparisons.values() if comparison.constant
        ]
        numbers = dict.fromkeys([*self._turning_numbers(), *constants])
        return [value for number in numbers for value in _arguments_of_functions(number)]

    def _numbers_by_bits(self) -> tuple[list[float], list[float]]:
        """Returns numbers whose bits are integers in the source combined with data before a
        constant result: near one, and others.

        They are drawn separately: beside a large number in its row, an error on a small one is
        hidden.
        """
        constants = [constant for result in self._constant_results for constant in result.constants]
        numbers = dict.fromkeys(
            number for constant in constants for number in numbers_with_bits(int(constant))
        )
        near = [number for number in numbers if 1 / NEAR_ONE <= abs(number) <= NEAR_ONE]
        remaining = [number for number in numbers if number not in near]
        return near[:MAX_NUMBERS_BY_BITS], remaining[:MAX_NUMBERS_BY_BITS]

    def _spread(self) -> Spread | None:
        return next(
            (Spread(limit) for limit in SPREAD_LIMITS if self._expected(Spread(limit)) is not None),
            None,
        )

    def _scaled(self, in_turns: bool) -> Scaled | None:
        """Returns the scale that should equalise the operands of the first comparison that depends
        on the inputs; or None."""
        for comparison in self._missing():
            misses = self._misses.get(comparison.number, [])
            if not misses or misses[-1] in misses[-3:-1]:
                continue  # other inputs give the same operands: no scale moves them
            logarithm = _missing_scale(
                misses, () if in_turns else self._scales.get(comparison.number, ())
            )
            if logarithm is None:
                continue
            for part in TRIED_FACTORS:
                scaled = Scaled(math.exp(logarithm * part), in_turns)
                if self._expected(scaled) is not None:
                    return scaled
        return None

    # ------------------------------------------------------------------ the result
    @property
    def outcomes(self) -> ToldOutcomes:
        """The last reported outcomes."""
        return ToldOutcomes(list(self._comparisons.values()), self._constant_results)

    def coverage(self, final: ToldOutcomes) -> Coverage:
        """Returns the exercised comparisons. final: outcomes at the end of the verdict, over all
        sizes."""
        listed = sorted(
            map(self._coverage_of, final.comparisons),
            key=lambda c: (c.outcomes is OutcomeCoverage.BOTH, c.line),
        )
        return Coverage(
            comparisons=tuple(listed[:MAX_COMPARISONS]), comparison_count=len(listed),
            constant_results=tuple(map(_constant_result, final.constant_results)),
            searched=tuple(self._draws), search_seconds=self._seconds,
        )  # fmt: skip

    def _coverage_of(self, comparison: ToldComparison) -> ComparisonCoverage:
        misses = self._misses.get(comparison.number, [])
        nearest = _nearest(misses) if misses else None
        return ComparisonCoverage(
            line=comparison.line,
            text=comparison.text,
            operator=comparison.operator,
            true=comparison.true,
            false=comparison.false,
            evaluations=comparison.evaluations,
            outcomes=self._outcomes(comparison, misses),
            nearest=nearest if comparison.one_sided else None,
        )

    def _outcomes(
        self, comparison: ToldComparison, misses: Sequence[tuple[float, float]]
    ) -> OutcomeCoverage:
        if not comparison.one_sided:
            return OutcomeCoverage.BOTH
        if comparison.operator in ADDITIVE or comparison.of_arguments:
            return OutcomeCoverage.UNCOVERED
        if comparison.number not in self._comparisons:
            return OutcomeCoverage.NOT_SEARCHED
        if comparison.operator in LOGICAL:
            return OutcomeCoverage.UNDECIDED
        if not misses or _distance(misses[0]) == 0.0:
            return (
                OutcomeCoverage.BOUNDED
            )  # an infinite bound; or the operands meet, and cross nowhere
        searched = min(map(_distance, misses[1:]), default=math.inf)
        moved = 0.0 < searched < NEARER * _distance(misses[0])
        return OutcomeCoverage.UNCOVERED if moved else OutcomeCoverage.BOUNDED


def _constant_result(result: ToldResult) -> ConstantResult:
    return ConstantResult(
        line=result.line, text=result.text, operation=result.operation, value=result.value
    )


def _nearest(misses: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(misses, key=_distance)


def _distance(operands: tuple[float, float]) -> float:
    return abs(operands[0] - operands[1])


def numbers_with_bits(bits: int) -> Iterator[float]:
    """Yields the floats with an integer as mantissa, as all bits, or as exponent, and the integer
    itself.

    Example: numbers_with_bits(0x3DCCCCCD) yields 1.6 (mantissa 0x4CCCCD), 0.1 (all bits) and
    1036831949.0.
    """
    import struct

    for whole, floating, one_bits, mantissa in (
        ("<I", "<f", 0x3F800000, 23),
        ("<H", "<e", 0x3C00, 10),
    ):
        width = 8 * struct.calcsize(whole)
        if -(1 << (width - 1)) <= bits < 1 << width:
            pattern = bits % (1 << width)
            for number in (one_bits | pattern % (1 << mantissa), pattern):
                value = struct.unpack(floating, struct.pack(whole, number))[0]
                if (
                    abs(value) >= SMALLEST_NORMAL
                ):  # of a subnormal number the answer may be zero anyway
                    yield value
    if 0 < bits < FP32_EXPONENTS:
        yield 2.0 ** (bits - FP32_EXPONENTS // 2)
    yield float(bits)


def _turning_numbers(
    comparison: ToldComparison, misses: Sequence[tuple[float, float]]
) -> Iterator[float]:
    """Yields the second operand, and the float with its bits if the kernel compares bits."""
    import struct

    for other in (
        [comparison.constant]
        if comparison.constant is not None
        else [other for _, other in misses[:1]]
    ):
        yield other
        if comparison.dtype in ("int32", "uint32") and abs(other) < 1 << 31 and other == int(other):
            yield struct.unpack("<f", struct.pack("<i", int(other)))[0]


def _arguments_of_functions(number: float) -> Iterator[float]:
    """Yields arguments at which elementary functions have this value: square, root, logarithms,
    exponentials, reciprocal."""
    size = abs(number)
    yield math.sqrt(size)
    if abs(number) < MAX_LOGARITHM:
        yield math.exp(number)
        yield 2.0**number
    if size:
        yield math.log(size)
        yield math.log2(size)
        yield 1.0 / size
    if size < 1e18:
        yield size * size


def _missing_scale(
    misses: Sequence[tuple[float, float]], scales: Sequence[tuple[float, float]]
) -> float | None:
    """Returns the logarithm of the input scale that should equalise the operands; None if one is
    zero, or if they are equal.

    scales: logarithms of earlier scales and of the operand; the line through the last two predicts
    the operand. Example: the nearest operands 2 and 200 and no earlier scales give log(100). If
    scale 100 gave only 20, that is a slope of 0.5 (the operand grows with the root), and the next
    scale is 10,000.
    """
    data, other = map(abs, _nearest(misses))
    if not data or not other or data == other:
        return None
    aim = math.log(other)
    logarithm = aim - math.log(data)
    if scales:
        scale, operand = scales[-1]
        slope = 1.0
        if len(scales) > 1 and scales[-2][0] != scale:
            slope = (operand - scales[-2][1]) / (scale - scales[-2][0])
        logarithm = scale + (aim - operand) / slope if slope else logarithm
    return max(-MAX_LOGARITHM, min(MAX_LOGARITHM, logarithm))
