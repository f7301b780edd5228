"""Sizes that are multiples: torch writes a width known to be even as twice a new symbol.

No argument of the graph has the new symbol as a size; each such symbol becomes an argument of its
own.

Example: with sizes {"x.shape[1]": 2*u0}, u0 becomes an argument with the expression `x.shape[1]
// 2`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sympy
    import torch

    from kernelwright.policies.inductor.tracing.graph import TracedModel


def bind_derived(traced: TracedModel, sizes: Iterable[tuple[str, Any]]) -> None:
    """Adds an argument to the graph for each symbol that occurs only inside other sizes.

    sizes: paths and values of sizes, preferred sources first.
    """
    pairs = [(path, value.node) for path, value in sizes]
    known_symbols = {node.expr for _, node in pairs if node.expr.is_symbol}
    for path, node in pairs:
        unknown = node.expr.free_symbols - known_symbols
        if len(unknown) != 1:
            continue
        (symbol,) = unknown
        factor, offset = node.expr.coeff(symbol, 1), node.expr.coeff(symbol, 0)
        if not (
            factor.is_Integer
            and offset.is_Integer
            and factor > 0
            and node.expr.equals(factor * symbol + offset)
        ):
            continue
        known_symbols.add(symbol)
        less = f"({path} - {offset})" if offset else path
        text = f"{less} // {factor}"
        _add_argument(traced, symbol, (node.hint - int(offset)) // int(factor), text)
        traced.symbols[str(symbol)] = text
        traced.names[str(symbol)] = (
            f"half_{traced.sizes.names.get(path, 'size')}" if factor == 2 and not offset else "part"
        )


def _add_argument(traced: TracedModel, symbol: sympy.Symbol, hint: int, text: str) -> None:
    value = traced.sizes.env.create_symintnode(symbol, hint=hint)
    graph = traced.graph.graph
    last = [n for n in graph.nodes if n.op == "placeholder"][-1]
    with graph.inserting_after(last):
        added = graph.placeholder(f"derived_{symbol}")
    added.meta["val"] = value
    traced.graph.recompile()
    traced.flat.append(value)
    traced.arguments.append(text)


def recompute_floats(model: torch.nn.Module, sizes: dict[str, Any], traced: TracedModel) -> None:
    """Recomputes floats the constructor derived from sizes (`(width // heads) ** -0.5`) inside
    the graph.
    """
    import torch
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    values = {traced.sizes.by_path[path].node._expr: value for path, value in sizes.items()}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if not isinstance(value, torch.SymFloat):
                continue
            for expression in (
                value.node.expr,
                value.node._expr,
            ):  # a size equal to another has its name
                if expression.free_symbols <= set(values):
                    setattr(module, name, sympy_interp(PythonReferenceAnalysis, values, expression))
                    break
