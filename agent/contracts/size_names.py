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
from collections.abc import Iterator, Mapping, Sequence

from kernelwright.agent.contracts.contract import FREE_SIZE_VALUES, Relation

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
                named = (
                    size
                    for size, values in problem_sizes.items()
                    if values == row and size.isidentifier()
                )
                self._names[row] = next(named, name)

    def name(self, row: Row) -> int | str:
        """Returns the number of a constant row, otherwise the name of its size."""
        return row[0] if len(set(row)) == 1 else self._names[row]

    def describe(self, row: Row) -> int | str:
        """Returns a name or expression for any row: an input size, an expression of input sizes,
        or "varies".
        """
        if len(set(row)) == 1 or row in self._names:
            return self.name(row)
        parts = (
            f"{name} // {factor}"
            for name, values in self.rows.items()
            if (factor := _factor(values, row))
        )
        return next(itertools.chain(_expressions(row, self.rows), parts), "varies")

    @property
    def rows(self) -> dict[str, Row]:
        """Varied sizes in the order of the inputs."""
        return {name: row for row, name in self._names.items()}

    def relations(self) -> tuple[Relation, ...]:
        """Returns the relations that held at all sizes: at most one for each size, in terms of
        earlier sizes.

        A size whose values had a common divisor must keep this divisor, because the reference may
        fail otherwise.
        """
        independent: dict[str, Row] = {}
        relations = []
        for name, row in self.rows.items():
            relation = next(_relations(name, row, independent), None)
            if relation is None:
                independent[name] = row
                divisor = math.gcd(*row)
                relation = f"{name} % {divisor} == 0" if divisor > 1 else None
            if relation is not None:
                relations.append(Relation(text=relation))
        return tuple(relations)


def _relations(name: str, row: Row, known_rows: Mapping[str, Row]) -> Iterator[str]:
    for text in _expressions(row, known_rows):
        yield f"{name} == {text}"
    for other, values in known_rows.items():
        factor = _factor(values, row)
        if factor is not None:
            yield f"{other} == {factor} * {name}"
    for first, values in known_rows.items():
        for second, factors in known_rows.items():
            if values == tuple(a * b for a, b in zip(row, factors, strict=True)):
                yield f"{first} == {name} * {second}"


def _expressions(row: Row, known_rows: Mapping[str, Row]) -> Iterator[str]:
    """Yields expressions for a row: a multiple, product, sum, or constant offset of other sizes."""
    for other, values in known_rows.items():
        factor = _factor(row, values)
        if factor is not None:
            yield f"{factor} * {other}"
    pairs = [(a, b) for index, a in enumerate(known_rows) for b in list(known_rows)[index:]]
    for first, second in pairs:
        both = list(zip(known_rows[first], known_rows[second], strict=True))
        if row == tuple(a * b for a, b in both):
            yield f"{first} * {second}"
        if first != second and row == tuple(a + b for a, b in both):
            yield f"{first} + {second}"
    for other, values in known_rows.items():
        differences = {a - b for a, b in zip(row, values, strict=True)}
        if len(differences) == 1 and len(set(row)) >= FREE_SIZE_VALUES:
            constant = differences.pop()
            yield f"{other} {'+' if constant > 0 else '-'} {abs(constant)}"


def _factor(row: Row, values: Row) -> int | None:
    """Returns the constant integer ratio `row / values`; None if there is none."""
    if any(value == 0 or number % value for number, value in zip(row, values, strict=True)):
        return None
    factors = {number // value for number, value in zip(row, values, strict=True)}
    return factors.pop() if len(factors) == 1 else None
