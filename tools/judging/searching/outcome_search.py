"""Searches for the outcomes of a kernel's comparisons that no draw has produced, on a CPU at the base size.

    ordinary draws            `x > 1e7` is never true; nearest miss 3.9e6 beside 1e7
    Put((1e7,))               1e7, 2e7, numbers one step beside it: it is true, and the answer is compared

Numbers that a comparison turns at are put among the inputs; then numbers at which an elementary function of an input
turns it (its root, its logarithm, ...); then magnitudes are spread over what the reference can be given; then rows are
scaled by the factor that is missing, and by what the last factor taught of how the operand follows it.
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

MAX_DRAWS = 6
"""Searched draws of one verdict on which the candidate runs."""
MAX_NUMBERS = 16
"""Numbers that one draw puts among the inputs."""
MAX_NUMBERS_BY_BITS = 6
"""Fewer, so that each of them comes often: a number beside it has other bits."""
NEAR_ONE = 256.0
"""The largest of numbers near one; the least is its inverse."""
MAX_TRIALS = 12
"""Runs of the reference that find which numbers it can be given."""
SPREAD_LIMITS = (100, 50, 24)
"""Powers of two over which magnitudes are spread, the first at which the reference is accurate."""
TRIED_FACTORS = (1.0, 0.5)
"""Parts of a scale's logarithm, tried in turns until the reference is accurate."""
SMALLEST_NORMAL = 2.0**-126
FP32_EXPONENTS = 255
"""Exponents of float32, that of infinities and NaN left out."""
MAX_LOGARITHM = 80.0
"""Of scales, and of numbers that are exponentiated."""
NEARER = 0.999
"""A distance that is smaller by this factor has moved."""

Expect = Callable[[Change], ExpectedOutputs | None]
Tell = Callable[[], ToldOutcomes]
"""The comparisons and the constant results so far; the nearest operands are those since it was called before."""


class OutcomeSearch:
    """The search of one verdict."""

    def __init__(
        self, expect: Expect, check: Callable[[ExpectedOutputs, int], None], tell: Tell
    ) -> None:
        """expect: a changed draw and what should come of it, None where the reference is not accurate on it. check: one
        call of the candidate on it, compared; raises Failed.
        """
        self._expect, self._tell, self._check = expect, tell, check
        self._told: dict[int, ToldComparison] = {}
        self._constant_results: list[ToldResult] = []
        self._misses: dict[int, list[tuple[float, float]]] = {}
        """The nearest operands of each comparison: before the search, then in each searched draw."""
        self._scales: dict[int, list[tuple[float, float]]] = {}
        """For each comparison, logarithms of scales of all inputs and of the operand that they gave."""
        self._last: tuple[Change, ExpectedOutputs | None] | None = None
        """The draw that was computed last: what is found usable is tried next."""
        self._draws: list[SearchedDraw] = []
        self._seconds = 0.0

    def run(self) -> None:
        """Searches for the missing outcomes of all comparisons at once. Raises Failed where the candidate is wrong."""
        began = time.monotonic()
        try:
            self._listen(None)
            for change in self._changes():
                if len(self._draws) >= MAX_DRAWS:
                    break
                self._try(change)
        finally:
            self._seconds, self._last = time.monotonic() - began, None

    def _listen(self, change: Change | None) -> None:
        outcomes = self._tell()
        self._constant_results = outcomes.constant_results
        for told in outcomes.comparisons:
            self._told[told.number] = told
            if told.nearest is None:
                continue
            self._misses.setdefault(told.number, []).append(told.nearest)
            if isinstance(change, Scaled) and not change.in_turns and told.nearest[0]:
                point = math.log(change.scale), math.log(abs(told.nearest[0]))
                self._scales.setdefault(told.number, []).append(point)

    def _missing(self) -> list[ToldComparison]:
        """The one-sided comparisons, but for those with infinite operands alone."""
        return [
            told
            for told in self._told.values()
            if told.one_sided
            and not told.of_arguments
            and (told.number in self._misses or told.operator in LOGICAL)
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
        """Yields a draw of all numbers that are compared with, one of numbers whose functions are those, then further
        ones as long as an outcome is missing.
        """
        constants = [
            told.constant
            for told in self._told.values()
            if told.constant is not None and not told.of_arguments
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
        chosen = tuple(dict.fromkeys(n for n in numbers if math.isfinite(n) and n))[:MAX_NUMBERS]
        return usable_numbers(
            chosen, lambda group: self._expected(Put(group)) is not None, MAX_TRIALS
        )

    def _turning_numbers(self) -> list[float]:
        """The second operands of one-sided comparisons. A conjunction turns at those of other comparisons, or between
        two of them.
        """
        missing = self._missing()
        numbers = [
            n for told in missing for n in _turning_numbers(told, self._misses.get(told.number, []))
        ]
        if any(told.operator in LOGICAL for told in missing):
            constants = sorted(
                {told.constant for told in self._told.values() if told.constant is not None}
            )
            numbers += [(a + b) / 2 for a, b in itertools.pairwise(constants)] + constants
        return numbers

    def _numbers_of_functions(self) -> list[float]:
        """The arguments at which elementary functions are what is compared with, those of missing outcomes first."""
        constants = [told.constant for told in self._told.values() if told.constant]
        numbers = dict.fromkeys([*self._turning_numbers(), *constants])
        return [value for number in numbers for value in _arguments_of_functions(number)]

    def _numbers_by_bits(self) -> tuple[list[float], list[float]]:
        """Returns numbers whose bits are whole numbers of the text that meet data on the way to a constant result:
        those near one, then all others. Beside a large number of its row a wrong answer for a small one is not seen.
        """
        constants = [constant for told in self._constant_results for constant in told.constants]
        numbers = dict.fromkeys(
            number for constant in constants for number in numbers_with_bits(int(constant))
        )
        near = [number for number in numbers if 1 / NEAR_ONE <= abs(number) <= NEAR_ONE]
        others = [number for number in numbers if number not in near]
        return near[:MAX_NUMBERS_BY_BITS], others[:MAX_NUMBERS_BY_BITS]

    def _spread(self) -> Spread | None:
        return next(
            (Spread(limit) for limit in SPREAD_LIMITS if self._expected(Spread(limit)) is not None),
            None,
        )

    def _scaled(self, in_turns: bool) -> Scaled | None:
        """The scale that should bring the operands of the first comparison together that inputs move at all."""
        for told in self._missing():
            misses = self._misses.get(told.number, [])
            if not misses or misses[-1] in misses[-3:-1]:
                continue  # other inputs give the same operands: no scale moves them
            logarithm = _missing_scale(
                misses, () if in_turns else self._scales.get(told.number, ())
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
        """What was told last."""
        return ToldOutcomes(list(self._told.values()), self._constant_results)

    def coverage(self, told: ToldOutcomes) -> Coverage:
        """Returns what was exercised. told: at the end of the verdict, all sizes counted."""
        listed = sorted(
            map(self._coverage_of, told.comparisons),
            key=lambda c: (c.outcomes is OutcomeCoverage.BOTH, c.line),
        )
        return Coverage(
            comparisons=tuple(listed[:MAX_COMPARISONS]), comparison_count=len(listed),
            constant_results=tuple(map(_constant_result, told.constant_results)),
            searched=tuple(self._draws), search_seconds=self._seconds,
        )  # fmt: skip

    def _coverage_of(self, told: ToldComparison) -> ComparisonCoverage:
        misses = self._misses.get(told.number, [])
        nearest = _nearest(misses) if misses else None
        return ComparisonCoverage(
            line=told.line, text=told.text, operator=told.operator, true=told.true, false=told.false,
            evaluations=told.evaluations, outcomes=self._outcomes(told, misses),
            nearest=nearest if told.one_sided else None,
        )  # fmt: skip

    def _outcomes(
        self, told: ToldComparison, misses: Sequence[tuple[float, float]]
    ) -> OutcomeCoverage:
        if not told.one_sided:
            return OutcomeCoverage.BOTH
        if told.operator in ADDITIVE or told.of_arguments:
            return OutcomeCoverage.UNCOVERED
        if told.number not in self._told:
            return OutcomeCoverage.NOT_SEARCHED
        if told.operator in LOGICAL:
            return OutcomeCoverage.UNDECIDED
        if not misses or _distance(misses[0]) == 0.0:
            return (
                OutcomeCoverage.BOUNDED
            )  # an infinite bound; or the operands meet, and cross nowhere
        searched = min(map(_distance, misses[1:]), default=math.inf)
        moved = 0.0 < searched < NEARER * _distance(misses[0])
        return OutcomeCoverage.UNCOVERED if moved else OutcomeCoverage.BOUNDED


def _constant_result(told: ToldResult) -> ConstantResult:
    return ConstantResult(
        line=told.line, text=told.text, operation=told.operation, value=told.value
    )


def _nearest(misses: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(misses, key=_distance)


def _distance(operands: tuple[float, float]) -> float:
    return abs(operands[0] - operands[1])


def numbers_with_bits(bits: int) -> Iterator[float]:
    """Yields floats of which a whole number is the mantissa, all bits, or the exponent, and the whole number."""
    import struct

    for whole, floating, one, mantissa in (("<I", "<f", 0x3F800000, 23), ("<H", "<e", 0x3C00, 10)):
        width = 8 * struct.calcsize(whole)
        if -(1 << (width - 1)) <= bits < 1 << width:
            pattern = bits % (1 << width)
            for number in (one | pattern % (1 << mantissa), pattern):
                value = struct.unpack(floating, struct.pack(whole, number))[0]
                if (
                    abs(value) >= SMALLEST_NORMAL
                ):  # of a subnormal number the answer may be zero anyway
                    yield value
    if 0 < bits < FP32_EXPONENTS:
        yield 2.0 ** (bits - FP32_EXPONENTS // 2)
    yield float(bits)


def _turning_numbers(
    told: ToldComparison, misses: Sequence[tuple[float, float]]
) -> Iterator[float]:
    """Yields the second operand, and what its bits are as a float where the kernel compares bits."""
    import struct

    for other in (
        [told.constant] if told.constant is not None else [other for _, other in misses[:1]]
    ):
        yield other
        if told.dtype in ("int32", "uint32") and abs(other) < 1 << 31 and other == int(other):
            yield struct.unpack("<f", struct.pack("<i", int(other)))[0]


def _arguments_of_functions(number: float) -> Iterator[float]:
    """Yields the numbers at which elementary functions have this value: square, root, logarithms, exponentials,
    reciprocal.
    """
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
    """Returns the logarithm of the scale of all inputs that should bring the operands together; None where one of them
    is zero, or they have met.

    scales: logarithms of earlier scales and of the operand: the line through the last two says how it follows.
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
