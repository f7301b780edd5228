"""Sizes and strides as expressions: which tensor is contiguous, and which view a pair of sizes and strides is."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

ATOM = re.compile(r"[A-Za-z_][\w.]*(\[\d+\])*")
"""A size by its name: `width`, `self.down.weight.shape[0]`."""
Layout = tuple[tuple[str, ...], tuple[str, ...]]
"""Sizes and strides, as text."""


@lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    """Returns the text as a polynomial, equal for equivalent expressions."""
    import sympy

    names: dict[str, Any] = {}

    def symbol(match: re.Match[str]) -> str:
        # sympy cannot parse `x.shape[0]`: each such size becomes a plain symbol.
        names.setdefault(
            match[0], sympy.Symbol(f"n{len(names)}_{re.sub(r'[^A-Za-z0-9]', '_', match[0])}")
        )
        return str(names[match[0]])

    plain = ATOM.sub(symbol, text)
    by_name = {
        str(s): sympy.Symbol(original, positive=True, integer=True) for original, s in names.items()
    }
    try:
        return sympy.expand(sympy.sympify(plain, locals=by_name))
    except (
        TypeError,
        SyntaxError,
        sympy.SympifyError,
    ):  # a call, such as sym_max: equal to itself only
        return sympy.Symbol(text)


def are_equal_sizes(left: str, right: str) -> bool:
    """Returns whether two size expressions are equal as polynomials."""
    return left == right or bool(_expression(left) == _expression(right))


def product_text(sizes: Sequence[str]) -> str:
    """Returns the product of size expressions; `1` for an empty product."""
    return " * ".join(f"({s})" for s in sizes) or "1"


def tuple_elements(text: str) -> tuple[str, ...]:
    """The elements of a tuple's text."""
    return tuple(ast.unparse(e) for e in getattr(ast.parse(text, mode="eval").body, "elts", []))


def is_contiguous(layout: Layout) -> bool:
    """Whether the strides are those of a contiguous tensor of these sizes."""
    sizes, strides = layout
    return all(
        sizes[i] == "1" or are_equal_sizes(strides[i], product_text(sizes[i + 1 :]))
        for i in range(len(sizes))
    )  # the stride of an axis of one does not matter


def view_of(name: str, base: Layout | None, target: Layout) -> str:
    """Returns the simplest expression for a view of a tensor; as_strided if no simpler one is
    certain.
    """
    if base is not None:
        if len(base[0]) == len(target[0]) and all(
            map(are_equal_sizes, [*base[0], *base[1]], [*target[0], *target[1]])
        ):
            return name
        if order := _permutation(base, target):
            return f"{name}.permute({', '.join(map(str, order))})"
        if (
            is_contiguous(base)
            and is_contiguous(target)
            and are_equal_sizes(product_text(base[0]), product_text(target[0]))
        ):
            return f"{name}.view({', '.join(target[0]) or '()'})"
    sizes, strides = (f"({', '.join(t)}{',' * (len(t) == 1)})" for t in target)
    return f"torch.as_strided({name}, {sizes}, {strides})"


def _permutation(base: Layout, target: Layout) -> list[int]:
    """Returns the base axis of each target axis; empty if this is no permutation, or uncertain."""
    if len(base[0]) != len(target[0]):
        return []
    # Each target axis takes the first unused base axis of equal size and stride.
    order: list[int] = []
    for size, stride in zip(*target, strict=True):
        fits = [i for i, (s, t) in enumerate(zip(*base, strict=True))
                if i not in order and are_equal_sizes(s, size)
                and (size == "1" or are_equal_sizes(t, stride))]  # fmt: skip
        if not fits:
            return []
        order.append(fits[0])
    return order
