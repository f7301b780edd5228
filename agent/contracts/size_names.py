"""Names the sizes that varied while a kernel was judged, and finds relations between them.

Each input extent is a row of numbers, a number per judged size. Equal rows form a size, named as
in the problem; a constant row is fixed:

    judged sizes          1    2    3
    x.shape[0]            5  181   15     the problem's `rows`
    x.shape[1]           64   64   64     64
    bias.shape[0]        10  362   30     bias_dim0, with bias_dim0 == 2 * rows
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence

from kernelwright.agent.contracts.contract import FREE_SIZE_VALUES, SizeRelation

Row = tuple[int, ...]


class SizeNames:
    """Names for rows of numbers."""

    def __init__(self, rows: Sequence[tuple[str, Row]], problem_sizes: Mapping[str, Row]) -> None:
        """rows: pairs of default name and row; the default applies if the problem has no name for
        the row.
        """
        self._names: dict[Row, str] = {}
        for name, row in rows:
            if len(set(row)) > 1 and row not in self._names:
                self._names[row] = _problem_name(row, problem_sizes) or name

    def name(self, row: Row) -> int | str:
        """Returns the number of a constant row, otherwise the name of its size."""
        return row[0] if len(set(row)) == 1 else self._names[row]

    def describe(self, row: Row) -> int | str:
        """Returns a name or expression for any row: an input size, an expression of input sizes,
        or "varies".
        """
        if len(set(row)) == 1 or row in self._names:
            return self.name(row)
        expression = next(_expressions(row, self.rows), None)
        if expression is not None:
            return expression
        for name, values in self.rows.items():
            factor = _factor(values, row)
            if factor:
                return f"{name} // {factor}"
        return "varies"

    @property
    def rows(self) -> dict[str, Row]:
        """Varied sizes in the order of the inputs."""
        return {name: row for row, name in self._names.items()}

    def relations(self) -> tuple[SizeRelation, ...]:
        """Returns the relations that held at all sizes: at most one for each size, in terms of
        earlier sizes.

        A size whose values had a common divisor must keep this divisor, because the reference may
        fail otherwise.
        """
        independent: dict[str, Row] = {}
        relations = []
        for name, row in self.rows.items():
            relation = next(_relations(name, row, independent), None)
            # Only independent sizes occur in relations, so that relations do not form circles.
            if relation is None:
                independent[name] = row
                divisor = math.gcd(*row)
                relation = f"{name} % {divisor} == 0" if divisor > 1 else None
            if relation is not None:
                relations.append(SizeRelation(text=relation))
        return tuple(relations)


def _problem_name(row: Row, problem_sizes: Mapping[str, Row]) -> str:
    """Returns the problem's name for a row; empty if the problem has none."""
    for size, values in problem_sizes.items():
        if values == row and size.isidentifier():
            return size
    return ""


def _relations(name: str, row: Row, known_rows: Mapping[str, Row]) -> Iterator[str]:
    """Yields relations between a size and earlier sizes, the simplest first."""
    for text in _expressions(row, known_rows):
        yield f"{name} == {text}"
    for other, values in known_rows.items():
        factor = _factor(values, row)
        if factor is not None:
            yield f"{other} == {factor} * {name}"
    for first, values in known_rows.items():
        for second, factors in known_rows.items():
            if values == tuple(map(operator.mul, row, factors)):
                yield f"{first} == {name} * {second}"


def _expressions(row: Row, known_rows: Mapping[str, Row]) -> Iterator[str]:
    """Yields expressions for a row: a multiple, product, sum, or constant offset of other sizes."""
    for other, values in known_rows.items():
        factor = _factor(row, values)
        if factor is not None:
            yield f"{factor} * {other}"
    for first, second in itertools.combinations_with_replacement(known_rows, 2):
        factors = known_rows[first], known_rows[second]
        if row == tuple(map(operator.mul, *factors)):
            yield f"{first} * {second}"
        if first != second and row == tuple(map(operator.add, *factors)):
            yield f"{first} + {second}"
    for other, values in known_rows.items():
        # A constant difference at two sizes is often a coincidence: three values are required.
        differences = set(map(operator.sub, row, values))
        if len(differences) == 1 and len(set(row)) >= FREE_SIZE_VALUES:
            constant = differences.pop()
            yield f"{other} {'+' if constant > 0 else '-'} {abs(constant)}"


def _factor(row: Row, values: Row) -> int | None:
    """Returns the constant integer ratio `row / values`; None if there is none."""
    if any(value == 0 or number % value for number, value in zip(row, values, strict=True)):
        return None
    factors = set(map(operator.floordiv, row, values))
    return factors.pop() if len(factors) == 1 else None
