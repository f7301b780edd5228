"""`for` loops of a problem's text written as calls of `over_steps`, where their bodies permit it.

`for t in range(x.shape[1])` becomes a function of one step, called by `__loop__`. What the body assigns and what was
there before is carried; `outputs.append(y)` and `out[:, t] = y` give `y` to be stacked. A loop that does anything else
(break, return, a loop inside) stays as it is, and is unrolled.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from kernelwright.policies.inductor.tracing.loop_forms import count_of, over_ranges, rows_of
from kernelwright.policies.inductor.tracing.loops import Unsuited, keeps_loops, over_steps

STATEMENTS_THAT_LEAVE = (
    ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.For, ast.While, ast.Try, ast.With,
    ast.FunctionDef, ast.Global, ast.Nonlocal, ast.Delete)  # fmt: skip
STATE = "__state__"


def with_loops(tree: ast.Module) -> ast.Module:
    """The same module with its loops as calls; line numbers stay."""
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef):
            for method in cls.body:
                if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                    _rewrite(method)
    return ast.fix_missing_locations(tree)


def has_loops(source: str) -> bool:
    """Whether a problem has a loop that `with_loops` writes as a call."""
    return "__loop__" in ast.unparse(with_loops(ast.parse(source)))


def loop_names() -> dict[str, Any]:
    """What a module of `with_loops` needs."""
    return {"__loop__": loop, "__rows__": rows_of, "__count__": count_of}


def _rewrite(method: ast.FunctionDef) -> None:
    over_ranges(method)
    arguments = {a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)}
    number = 0
    for body in [n.body for n in ast.walk(method) if isinstance(n, ast.FunctionDef | ast.If | ast.With)]:
        for place in range(len(body) - 1, -1, -1):
            loop = body[place]
            if isinstance(loop, ast.For) and _fits(loop):
                before = arguments | _stored([s for s in ast.walk(method) if getattr(s, "lineno", 0) < loop.lineno])
                after = {
                    n.id for n in ast.walk(method) if isinstance(n, ast.Name) and n.lineno > (loop.end_lineno or 0)
                }
                body[place : place + 1] = _called(loop, before, after, number)
                number += 1


def _fits(loop: ast.For) -> bool:
    over_range = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"
    inside = [n for s in loop.body for n in ast.walk(s)]
    return (
        over_range
        and isinstance(loop.target, ast.Name)
        and not loop.orelse
        and not any(isinstance(n, STATEMENTS_THAT_LEAVE) for n in inside)
    )


def _stored(nodes: list[Any]) -> set[str]:
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _read_first(body: list[ast.stmt]) -> set[str]:
    """Names that a step reads before it assigns them."""
    found: set[str] = set()
    stored: set[str] = set()
    for statement in body:
        nodes = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        again = {ast.unparse(n.target) for n in ast.walk(statement) if isinstance(n, ast.AugAssign)}
        found |= ({n.id for n in nodes if isinstance(n.ctx, ast.Load)} | again) - stored
        if not isinstance(statement, ast.If):
            stored |= _stored(nodes)
    return found


class _Given(ast.NodeTransformer):
    """Appends and writes to one row, as values that the step gives."""

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self.lists: list[str] = []
        self.rows: dict[str, int] = {}
        """Tensor -> the dimension along which the steps write it."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" \
                and isinstance(call.func.value, ast.Name) and len(call.args) == 1:  # fmt: skip
            name = call.func.value.id
            self.lists += [name] * (name not in self.lists)
            return _at(f"__gives__.setdefault({name!r}, []).append({ast.unparse(call.args[0])})", node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            index = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            words = [ast.unparse(i) for i in index]
            if words.count(self.variable) == 1 and all(w in (":", self.variable) for w in words):
                name = target.value.id
                self.rows[name] = words.index(self.variable)
                return _at(f"__gives__.setdefault({name!r}, []).append({ast.unparse(node.value)})", node)
        return node


def _called(loop: ast.For, before: set[str], after_it: set[str], number: int) -> list[ast.stmt]:
    """The function of one step, the call, and what the names are afterwards."""
    assert isinstance(loop.target, ast.Name)
    assert isinstance(loop.iter, ast.Call)
    variable = loop.target.id
    given = _Given(variable)
    body = [given.visit(copy.deepcopy(s)) for s in loop.body]
    stored = _stored([n for s in body for n in ast.walk(s)]) - {variable}
    read = _read_first(body)
    if read & {*given.lists, *given.rows}:
        return [loop]
    carried = sorted(stored & before & (read | after_it))
    last = sorted((stored & after_it) - set(carried))
    name = f"__step_{number}__"
    function = _at(f"def {name}({variable}, {STATE}, __gives__):\n    pass", loop)
    assert isinstance(function, ast.FunctionDef)
    function.body = [
        *(_at(f"{n} = {STATE}[{n!r}]", loop) for n in carried), *body,
        _at(f"return {{{', '.join(f'{n!r}: {n}' for n in carried)}}}, {{{', '.join(f'{n!r}: {n}' for n in last)}}}",
            loop),
    ]  # fmt: skip
    rows = f"{{{', '.join(f'{n!r}: ({n}, {d})' for n, d in given.rows.items())}}}"
    lists = f"{{{', '.join(f'{n!r}: {n}' for n in given.lists)}}}"
    state = f"{{{', '.join(f'{n!r}: {n}' for n in carried)}}}"
    ranged = ", ".join(ast.unparse(a) for a in loop.iter.args)
    call = _at(f"{STATE} = __loop__({name}, ({ranged},), {state}, {lists}, {rows})", loop)
    names = [*carried, *given.lists, *given.rows, *last]
    after = [_at(f"{n} = {STATE}[{n!r}]", loop) for n in names]
    return [function, call, *after]


def _at(text: str, node: ast.stmt) -> Any:
    made = ast.parse(text).body[0]
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made


# ------------------------------------------------------------------------------------------------ what the text calls
class Stacked(list[Any]):
    """A list of as many tensors as a loop has steps: `torch.stack` and `torch.cat` take it."""

    def __init__(self, before: list[Any], steps: Any) -> None:
        """before: what was in the list; steps: what the loop appended, stacked along a first dimension."""
        super().__init__(before)
        self.steps = steps

    def stack(self, dim: int = 0) -> Any:
        """`torch.stack` of the list: what was in it before the loop, then one entry for each step."""
        import torch

        made = self.steps.movedim(0, dim)
        return torch.cat([torch.stack(list(self), dim), made], dim) if len(self) else made

    def cat(self, dim: int = 0) -> Any:
        """`torch.cat` of the list along `dim` of its entries."""
        import torch

        dim = dim % (self.steps.dim() - 1)
        made = self.steps.movedim(0, dim).flatten(dim, dim + 1)
        return torch.cat([*self, made], dim) if len(self) else made

    def __getitem__(self, index: Any) -> Any:
        if index == -1:
            return self.steps[-1]
        if isinstance(index, slice) and index == slice(None, None, -1) and not len(self):
            return Stacked([], self.steps.flip(0))
        raise Unsuited("an element in the middle of a list that a loop over a size fills")

    def __iter__(self) -> Any:
        raise Unsuited("a second loop over a list that a loop over a size fills")

    def reverse(self) -> None:
        """Turns the order of the steps round, as `list.reverse` does."""
        self.steps = self.steps.flip(0)


def loop(step: Callable[..., Any], ranged: tuple[Any, ...], state: dict[str, Any], lists: dict[str, list[Any]],
    rows: dict[str, tuple[Any, int]]) -> dict[str, Any]:  # fmt: skip
    """What `for` does, by `over_steps` where the count is a size; returns the values of all names afterwards."""
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    start, stop, stride = _bounds(ranged)
    count = (stop - start) if stride == 1 else (start - stop) if stride == -1 else None
    if not isinstance(count, torch.SymInt) or not keeps_loops() or any(isinstance(v, Stacked) for v in lists.values()):
        return _as_it_is(step, range(start, stop, stride), state, lists, rows)

    wide = {n: [*t.shape[:d], *t.shape[d + 1 :]] for n, (t, d) in rows.items()}

    def body(at: Any, carried: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        gives: dict[str, list[Any]] = {}
        after, last = step(start + at * stride, carried, gives)
        if any(len(v) != 1 or not isinstance(v[0], torch.Tensor) for v in gives.values()):
            raise Unsuited("a loop over a size appends several values in one step, or no tensor")
        for name, shape in wide.items():
            gives[name] = [torch.broadcast_to(gives[name][0], shape)]
        tensors = {n: v for n, v in last.items() if isinstance(v, torch.Tensor)}
        return after, {n: v[0] for n, v in gives.items()} | {f"last_{n}": v for n, v in tensors.items()}

    after, stacked = over_steps(body, count, state)
    found = dict(after)
    found |= {n: Stacked(v, stacked[n]) for n, v in lists.items()}
    for name, (tensor, dim) in rows.items():
        order = stacked[name].flip(0) if stride == -1 else stacked[name]
        first = start if stride > 0 else start + (count - 1) * stride
        whole = order.movedim(0, dim).to(tensor.dtype)
        complete = statically_known_true(first == 0) and statically_known_true(tensor.shape[dim] == count)
        found[name] = whole if complete else tensor.slice_scatter(whole, dim, first, first + count)
    found |= {n.removeprefix("last_"): v[-1] for n, v in stacked.items() if n.startswith("last_")}
    return _Values(found)


class _Values(dict[str, Any]):
    """Names after a loop; one that is no tensor has no value afterwards."""

    def __missing__(self, name: str) -> None:
        return None


def _bounds(ranged: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    if len(ranged) == 1:
        return 0, ranged[0], 1
    return ranged[0], ranged[1], ranged[2] if len(ranged) == 3 else 1


def _as_it_is(step: Callable[..., Any], steps: range, state: dict[str, Any], lists: dict[str, list[Any]],
    rows: dict[str, tuple[Any, int]]) -> dict[str, Any]:  # fmt: skip
    last: dict[str, Any] = {}
    for at in steps:
        gives: dict[str, list[Any]] = {}
        state, last = step(at, state, gives)
        for name, (tensor, dim) in rows.items():
            if name in gives:
                tensor.select(dim, at).copy_(gives[name][0])
        for name, held in lists.items():
            held.extend(gives.get(name, []))
    return _Values(state | last | lists | {n: t for n, (t, _) in rows.items()})


def stack(tensors: Any, dim: int = 0) -> Any:
    """Stacks what a loop has collected, or calls `torch.stack` on ordinary tensors."""
    import torch

    return tensors.stack(dim) if isinstance(tensors, Stacked) else torch._C._VariableFunctions.stack(tensors, dim)


def cat(tensors: Any, dim: Any = 0, **options: Any) -> Any:
    """Joins what a loop has collected, or calls `torch.cat` on ordinary tensors."""
    import torch

    return (
        tensors.cat(dim) if isinstance(tensors, Stacked) else torch._C._VariableFunctions.cat(tensors, dim, **options)
    )
