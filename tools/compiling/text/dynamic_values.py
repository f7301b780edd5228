"""Rewrites interpreted kernels so that values which are tensors in a compiled kernel are tensors
in Python, too.

Under Triton's interpreter a kernel is Python: the variable of a loop is an int, `x += 1` of an
int stays an int, `min(x, 3)` may be 3. Compiled, all of them are tensors. A correct kernel which
calls `.to(tl.int64)` on a loop variable would fail, and a kernel could detect the interpreter by
type. The syntax tree of a kernel is therefore rewritten before Triton's own rewriting, in the
cases of Triton's code generator (visit_For, visit_AugAssign, visit_Assign, visit_NamedExpr,
visit_IfExp, visit_BoolOp, visit_UnaryOp, visit_Attribute), by calls of functions of this module
under names which no kernel can spell.

Example: `for i in range(n): k = i if m else 0` becomes `for i in __kernelwright_loop(n): k =
__kernelwright_assigned(__kernelwright_chosen(m, lambda: i, lambda: 0))`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernelwright.tools.trace.trace import Json

_PREFIX = "__kernelwright_"


class Rewriter(ast.NodeTransformer):
    """Rewrites the checked definition of a kernel."""

    def __init__(self, names: Mapping[str, Json], bound: frozenset[str]) -> None:
        """Stores the context. names: meaning of the kernel's global names. bound: names which the
        kernel binds itself.
        """
        self._names = names
        self._bound = bound

    def visit_For(self, node: ast.For) -> ast.AST:
        """Makes `for i in range(...)` count in tensors: replaces `range` by `loop` of this
        module.
        """
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and self._is_range(node.iter.func):
            node.iter.func = ast.copy_location(
                ast.Name(_PREFIX + "loop", ast.Load()), node.iter.func
            )
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`x += 1` becomes `x = x + 1`, which Triton's own rewriting makes a tensor."""
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Wraps assigned values which Triton's own rewriting would leave as numbers."""
        self.generic_visit(node)
        if not isinstance(
            node.value, ast.BinOp | ast.Compare | ast.Constant
        ):  # Triton's own rewriting makes those tensors
            node.value = _call("assigned", node.value, node.value)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        """Wraps the value bound by `:=`."""
        self.generic_visit(node)
        node.value = _call("assigned", node.value, node.value)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Replaces `a if c else b` by a call which evaluates the chosen branch and returns a
        tensor.
        """
        self.generic_visit(node)
        if _binds(node):
            return node
        return _call("chosen", node, node.test, _delayed(node.body), _delayed(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """`a and b`, `a or b` become calls whose operands are evaluated as late as Python does."""
        self.generic_visit(node)
        if _binds(node):
            return node
        return _call(
            "both" if isinstance(node.op, ast.And) else "either", node, *map(_delayed, node.values)
        )

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Replaces `not a` by a call; keeps other unary operators."""
        self.generic_visit(node)
        return _call("negated", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces a read of `c.value` by a call, which returns a constexpr's number."""
        self.generic_visit(node)
        if node.attr == "value" and isinstance(node.ctx, ast.Load):
            return _call("value_of", node, node.value)
        return node

    def _is_range(self, function: ast.expr) -> bool:
        """Returns whether a function is Python's or Triton's `range`, with a tensor as loop
        variable; `static_range` has a constant.
        """
        if isinstance(function, ast.Attribute):
            return function.attr == "range"
        if not isinstance(function, ast.Name) or function.id in self._bound:
            return False
        form = self._names.get(function.id)
        if form is None:
            return function.id == "range"
        return isinstance(form, dict) and str(form.get("triton", "")).replace(":", ".").endswith(
            ".range"
        )


def _call(name: str, at: ast.expr, *arguments: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(_PREFIX + name, ast.Load()), at)
    return ast.copy_location(ast.Call(function, list(arguments), []), at)


def _delayed(value: ast.expr) -> ast.expr:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.copy_location(ast.Lambda(nothing, value), value)


def _binds(node: ast.AST) -> bool:
    """Whether an expression binds a name, which a function of its own would keep to itself."""
    return any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))


def world() -> dict[str, Any]:
    """Returns the functions called by rewritten kernels, by name."""
    functions = (loop, assigned, chosen, both, either, negated, value_of)
    return {_PREFIX + function.__name__: function for function in functions}


def python_builtins() -> dict[str, Callable[..., Any]]:
    """Returns versions of Python's builtins which unwrap constexprs and accept tensors."""
    return {
        "isinstance": _unwrapping(builtins.isinstance), "hasattr": _unwrapping(builtins.hasattr),
        "getattr": _unwrapping(builtins.getattr),
        "min": _extreme("minimum", builtins.min), "max": _extreme("maximum", builtins.max),
    }  # fmt: skip


def _semantic() -> Any:
    from triton.runtime import interpreter

    return interpreter.interpreter_semantic


def _is_tensor(value: object) -> bool:
    import triton.language as tl

    return isinstance(value, tl.tensor)


def _unwrapped(value: object) -> Any:
    import triton.language as tl

    return value.value if isinstance(value, tl.constexpr) else value


def value_of(holder: Any) -> Any:
    """Returns `holder.value`. A constant parameter is a constexpr when compiled, and a plain
    value when interpreted.
    """
    import triton.language as tl

    return holder if isinstance(holder, bool | int | float | str | tl.dtype) else holder.value


def loop(start: object, end: object = None, step: object = None, **_: Any) -> Iterator[Any]:
    """Yields the values of `range` in a compiled loop: scalars of the common type of bounds and
    step.

    Options of `tl.range` (stages, unrolling) have no effect. With computed bounds Python learns
    only the number of iterations: programs with different start rows take the same steps.
    """
    semantic = _semantic()
    begin, stop = (0, start) if end is None else (start, end)
    by = 1 if step is None else step
    bounds = [semantic.to_tensor(_unwrapped(b)) for b in (begin, stop, by)]
    if not all(bound.dtype.is_int() for bound in bounds):
        kinds = ", ".join(str(bound.dtype) for bound in bounds)
        raise TypeError(f"For loop bounds and step must all be ints, are ({kinds})")
    kind = semantic.integer_promote_impl(bounds[0].dtype, bounds[1].dtype)
    kind = semantic.integer_promote_impl(kind, bounds[2].dtype)
    if not (_is_tensor(begin) or _is_tensor(by)):
        times = times_of_loop(*bounds) if _is_tensor(stop) else _times(*bounds)
        first = int(_unwrapped(begin))
        stride = int(_unwrapped(by))
        for number in range(int(times.handle.data.item())):
            yield semantic.scalar_constant(first + number * stride, kind)
        return
    value, by = (semantic.cast(bound, kind) for bound in (bounds[0], bounds[2]))
    for number in range(int(times_of_loop(*bounds).handle.data.item())):
        value = semantic.add(value, by, False) if number else value
        yield value


def _times(begin: Any, stop: Any, step: Any) -> Any:
    """How often a loop runs, as a scalar of 64 bits. Raises ValueError for a step of zero."""
    import triton.language as tl

    times = len(range(*(int(bound.handle.data.item()) for bound in (begin, stop, step))))
    return _semantic().scalar_constant(times, tl.int64)


times_of_loop: Callable[..., Any] = _times
"""Number of iterations of a loop; while programs are recorded, a single recorded operation."""


def assigned(value: object) -> Any:
    """Returns the value after `name = value`: numbers become tensors, within tuples too; a list
    becomes a tuple.
    """
    if isinstance(value, list | tuple):
        return _tuple_like(value, [assigned(inner) for inner in value])
    return _as_tensor(value)


def _tuple_like(value: object, inner: list[Any]) -> Any:
    return type(value)(*inner) if hasattr(value, "_fields") else tuple(inner)


def _as_tensor(value: object) -> Any:
    return (
        _semantic().to_tensor(value, False)
        if isinstance(_unwrapped(value), bool | int | float)
        else value
    )


def chosen(condition: object, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    """Returns `yes() if condition else no()`: a tensor if the condition is a tensor."""
    value = yes() if condition else no()
    return _as_tensor(value) if _is_tensor(condition) else value


def both(*values: Callable[[], Any]) -> Any:
    """Computes `and` over values or tensors, each evaluated on demand."""
    return _combined(values, "logical_and", False)


def either(*values: Callable[[], Any]) -> Any:
    """Computes `or` over values or tensors, each evaluated on demand."""
    return _combined(values, "logical_or", True)


def _combined(values: tuple[Callable[[], Any], ...], method: str, ends: bool) -> Any:
    """Constants decide at once, as in Python; tensors are all evaluated and combined, from the last to the first."""
    tensors: list[Any] = []
    value: object = None
    for delayed in values:
        value = delayed()
        if _is_tensor(value):
            tensors.append(value)
        elif bool(_unwrapped(value)) is ends:
            return value
    if not tensors:
        return value
    result = tensors.pop()
    while tensors:
        result = getattr(tensors.pop(), method)(result)
    return result


def negated(value: Any) -> Any:
    """Computes `not` of a value or a tensor."""
    return value.__not__() if _is_tensor(value) else not _unwrapped(value)


def _unwrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return function(*map(_unwrapped, arguments))

    return call


def _extreme(name: str, of_python: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any, **options: Any) -> Any:
        import triton.language as tl

        if not any(map(_is_tensor, values)):
            return of_python(*map(_unwrapped, values))
        extreme, *remaining = values
        for other in remaining:
            extreme = getattr(tl, name)(extreme, other, **options)
        return extreme

    return call
