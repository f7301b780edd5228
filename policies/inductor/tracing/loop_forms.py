"""Rewrites `for row in x` over the rows of a tensor as a loop over numbers, which `loop_syntax`
understands.

    for row in x:                        __rows_0__ = __rows__(x)
        h = cell(row, h)                 for __at_0__ in range(__count__(__rows_0__)):
                                             row = __rows_0__[__at_0__]
                                             h = cell(row, h)

`x.unbind(dim)`, `x.split(1, dim)`, `x.transpose(0, 1)`, `zip` and `enumerate` of these are
supported too. Iterables
other than tensors are iterated as in Python.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def over_ranges(method: ast.FunctionDef) -> None:
    """Rewrites the loops of a method, in place; line numbers stay."""
    number = 0
    kinds = ast.FunctionDef | ast.If | ast.With | ast.For
    for body in reversed(
        [n.body for n in ast.walk(method) if isinstance(n, kinds)]
    ):  # those inside others first
        for position in range(len(body) - 1, -1, -1):
            loop = body[position]
            if (
                isinstance(loop, ast.For)
                and (parts := _parts(loop)) is not None
                and not loop.orelse
            ):
                body[position : position + 1] = _over_range(loop, *parts, number)
                number += 1


SPLITTING_METHODS = (
    "unbind",
    "split",
    "chunk",
    "transpose",
    "permute",
    "movedim",
    "swapaxes",
    "flip",
)
"""Functions of tensors whose answer is walked through."""


def _parts(loop: ast.For) -> tuple[str, str, str] | None:
    """Returns the iterable, the name of a row, and the name of its number ("" if there is none)."""
    target, walked, at = loop.target, loop.iter, ""
    if (
        isinstance(walked, ast.Call)
        and ast.unparse(walked.func) == "enumerate"
        and len(walked.args) == 1
    ):
        names = target.elts if isinstance(target, ast.Tuple) else []
        if len(names) != 2 or not isinstance(names[0], ast.Name) or walked.keywords:
            return None
        at, target, walked = names[0].id, names[1], walked.args[0]
    if isinstance(target, ast.Tuple):
        several = (
            isinstance(walked, ast.Call)
            and ast.unparse(walked.func) == "zip"
            and not walked.keywords
        )
        sources = (
            [_walked(a) for a in walked.args] if isinstance(walked, ast.Call) and several else []
        )
        named = all(isinstance(e, ast.Name) for e in target.elts)
        fits = named and all(sources) and len(sources) == len(target.elts)
        return (f"__together__({', '.join(sources)})", ast.unparse(target), at) if fits else None
    source = _walked(walked)
    return (source, target.id, at) if source and isinstance(target, ast.Name) else None


def _walked(walked: ast.expr) -> str:
    """Returns the text of a name, or of a call of a splitting method; empty for other
    expressions.
    """
    if isinstance(walked, ast.Name):
        return walked.id
    called = (
        isinstance(walked, ast.Call)
        and isinstance(walked.func, ast.Attribute)
        and walked.func.attr in SPLITTING_METHODS
    )
    return ast.unparse(walked) if called else ""


def _over_range(loop: ast.For, walked: str, row: str, at: str, number: int) -> list[ast.stmt]:
    rows, step = f"__rows_{number}__", f"__at_{number}__"
    loop.target = ast.Name(step, ast.Store())
    loop.iter = ast.parse(f"range(__count__({rows}))", mode="eval").body
    heads = [f"{row} = {rows}[{step}]"] + [f"{at} = {step}"] * bool(at)
    loop.body = [*(_placed(head, loop) for head in heads), *loop.body]
    for part in (*ast.walk(loop.target), *ast.walk(loop.iter)):
        ast.copy_location(part, loop)
    return [_placed(f"{rows} = __rows__({walked})", loop), loop]


def _placed(text: str, node: ast.stmt) -> ast.stmt:
    statement = ast.parse(text).body[0]
    for part in ast.walk(statement):
        ast.copy_location(part, node)
    return statement


# ------------------------------------------------------------------------------------------------ what the text calls
class TensorPieces:
    """Lazy pieces of `x.split(1, dim)` or `x.unbind(dim)`, for a symbolic number of pieces."""

    def __init__(self, tensor: torch.Tensor, dim: int, keep: bool) -> None:
        """keep: whether a piece has the axis still."""
        self._tensor, self._dim, self._keep = tensor, dim % tensor.dim(), keep

    @property
    def count(self) -> Any:
        """How many there are: a symbol."""
        return self._tensor.shape[self._dim]

    def __getitem__(self, index: int | torch.SymInt | slice) -> Any:
        import torch

        if not isinstance(index, int | torch.SymInt):
            return list(self)[index]
        position = index + self.count if isinstance(index, int) and index < 0 else index
        return (
            self._tensor.narrow(self._dim, position, 1)
            if self._keep
            else self._tensor.select(self._dim, position)
        )

    def __len__(self) -> int:
        return int(self.count)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


class ZippedRows:
    """Rows of several tensors at once, as `zip` gives them."""

    def __init__(self, *walked: Any) -> None:
        """Stores the iterables, of the kinds `rows_of` accepts."""
        self._rows = [rows_of(w) for w in walked]
        counts = [count_of(r) for r in self._rows]
        self.count = counts[0] if all(c is counts[0] for c in counts) else zipped_count(counts)

    def __getitem__(self, index: int | torch.SymInt | slice) -> Any:
        return tuple(rows[index] for rows in self._rows)


def zipped_count(counts: list[Any]) -> Any:
    """Returns the length of a `zip`; symbolic sizes that are equal in the problem are taken to be
    equal.
    """
    import torch

    if not any(isinstance(c, torch.SymInt) for c in counts):
        return min(counts)
    least = min(counts, key=lambda c: c.node.hint if isinstance(c, torch.SymInt) else c)
    return next((c for c in counts if isinstance(c, torch.SymInt) and c == least), least)


def rows_of(walked: Iterable[Any] | ZippedRows) -> Any:
    """A tensor or its pieces as they are; of everything else a list."""
    import torch

    return walked if isinstance(walked, torch.Tensor | TensorPieces | ZippedRows) else list(walked)


def count_of(rows: Sized | ZippedRows) -> Any:
    """Returns the number of rows; a symbol for a tensor of symbolic length."""
    import torch

    if isinstance(rows, TensorPieces | ZippedRows):
        return rows.count
    return rows.shape[0] if isinstance(rows, torch.Tensor) else len(rows)
