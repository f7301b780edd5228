"""`for` loops of a problem's text written as calls of `over_steps`, where their bodies permit it.

`for t in range(x.shape[1])` becomes a function of one step, called by `__loop__`. What the body assigns and what was
there before is carried, as is what it writes into (`h[i] = y`, `state[:, t + 1] = y`, `state.mul_(y)`), of which each
step has a copy; `outputs.append(y)` and `out[..., t] = y` give `y` to be stacked. A loop inside is run as it is. A loop
that does anything else (break, return) stays as it is, and is unrolled.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Set
from typing import Any

from kernelwright.policies.inductor.tracing.loop_forms import Together, count_of, over_ranges, rows_of
from kernelwright.policies.inductor.tracing.loops import Unsuited, in_a_step, keeps_loops, over_steps

STATEMENTS_THAT_LEAVE = (
    ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.While, ast.Try, ast.With,
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
    return {
        "__loop__": loop,
        "__rows__": rows_of,
        "__count__": count_of,
        "__together__": Together,
        "__own__": own_copy,
        "__last__": last_of,
    }


def _rewrite(method: ast.FunctionDef) -> None:
    over_ranges(method)
    _Backwards().visit(method)
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
                body[place : place + 1] = _called(loop, before, after, arguments, number)
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


class _Backwards(ast.NodeTransformer):
    """`reversed(range(n))` as `range(n - 1, -1, -1)`."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        inner = node.args[0] if ast.unparse(node.func) == "reversed" and len(node.args) == 1 else None
        if not isinstance(inner, ast.Call) or ast.unparse(inner.func) != "range" or not 1 <= len(inner.args) <= 2:
            return node
        first, end = (["0"] + [ast.unparse(a) for a in inner.args])[-2:]
        made = ast.parse(f"range(({end}) - 1, ({first}) - 1, -1)", mode="eval").body
        for part in ast.walk(made):
            ast.copy_location(part, node)
        return made


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

    def __init__(self, variable: str, kept: Set[str], followed: Set[str]) -> None:
        """kept: names of tensors whose rows are written in place. followed: lists whose last element is read."""
        self.variable = variable
        self.lists: list[str] = []
        self.rows: dict[str, int] = {}
        """Tensor -> the dimension along which the steps write it."""
        self._kept, self._followed = kept, followed

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" \
                and isinstance(call.func.value, ast.Name) and len(call.args) == 1:  # fmt: skip
            name, given = call.func.value.id, ast.unparse(call.args[0])
            self.lists += [name] * (name not in self.lists)
            keep = [_at(f"{LAST}{name} = {given}", node)] * (name in self._followed)
            given = f"{LAST}{name}" if keep else given
            return [*keep, _at(f"__gives__.setdefault({name!r}, []).append({given})", node)]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            index = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            words = [ast.unparse(i) for i in index]
            others = [w for w in words if w != self.variable]
            name = target.value.id
            fits = words.count(self.variable) == 1 and set(others) <= {":", "..."} and words.count("...") <= 1
            if fits and name not in self._kept:
                place = words.index(self.variable)
                self.rows[name] = place if "..." not in words[:place] else place - len(words)
                return _at(f"__gives__.setdefault({name!r}, []).append({ast.unparse(node.value)})", node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`outputs[-1]` is what the step before gave."""
        self.generic_visit(node)
        name = _last_read(node)
        return ast.copy_location(ast.Name(f"{LAST}{name}", ast.Load()), node) if name in self._followed else node


LAST = "__last_of_"
"""Before the name of a list: the name of its last element."""


def _last_read(node: ast.AST) -> str:
    """The name of a list of which a node reads the last element; empty where it does not."""
    reads = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)
    return node.value.id if reads and ast.unparse(node.slice) == "-1" else ""  # type: ignore[attr-defined]


def _changed(body: list[ast.stmt]) -> set[str]:
    """Names of what a step changes in place."""
    found: set[str] = set()
    for node in (n for s in body for n in ast.walk(s)):
        target: ast.AST | None = None
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            in_place = node.func.attr.endswith("_") and not node.func.attr.endswith("__")
            target = node.func.value if in_place else None
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            found.add(target.id)
    return found


def _given_by(loop: ast.For, variable: str, before: set[str]) -> tuple[list[ast.stmt], _Given] | None:
    """The body of a loop with what its steps give; None where it reads a list that it fills."""
    calls = [n.value for n in ast.walk(loop) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    appended = {ast.unparse(c.func).removesuffix(".append") for c in calls}
    followed = {_last_read(n) for n in ast.walk(loop)} & appended & before
    kept: set[str] = set()
    while True:
        given = _Given(variable, kept, followed)
        body = []
        for statement in loop.body:
            made = given.visit(copy.deepcopy(statement))
            body += made if isinstance(made, list) else [made]
        used = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
        if used & set(given.lists):
            return None
        if not used & set(given.rows):
            return body, given
        kept |= used & set(given.rows)


def _called(loop: ast.For, before: set[str], after_it: set[str], arguments: set[str], number: int) -> list[ast.stmt]:
    """The function of one step, the call, and what the names are afterwards."""
    assert isinstance(loop.target, ast.Name)
    assert isinstance(loop.iter, ast.Call)
    variable = loop.target.id
    if (made := _given_by(loop, variable, before)) is None:
        return [loop]
    body, given = made
    followed = [n for n in given.lists if any(x.id == f"{LAST}{n}" for s in body for x in ast.walk(s)
                                              if isinstance(x, ast.Name))]  # fmt: skip
    before = before | {f"{LAST}{n}" for n in followed}
    stored = _stored([n for s in body for n in ast.walk(s)]) - {variable}
    changed = _changed(body) & before
    if changed & arguments:  # the caller sees what is written into its own
        return [loop]
    carried = sorted((stored & before & (_read_first(body) | after_it)) | changed)
    last = sorted((stored & after_it) - set(carried))
    name = f"__step_{number}__"
    function = _at(f"def {name}({variable}, {STATE}, __gives__):\n    pass", loop)
    assert isinstance(function, ast.FunctionDef)
    function.body = [
        *(_at(f"{n} = {STATE}[{n!r}]", loop) for n in carried),
        *(_at(f"{n} = __own__({n})", loop) for n in sorted(changed)), *body,
        _at(f"return {{{', '.join(f'{n!r}: {n}' for n in carried)}}}, {{{', '.join(f'{n!r}: {n}' for n in last)}}}",
            loop),
    ]  # fmt: skip
    rows = f"{{{', '.join(f'{n!r}: ({n}, {d})' for n, d in given.rows.items())}}}"
    lists = f"{{{', '.join(f'{n!r}: {n}' for n in given.lists)}}}"
    state = f"{{{', '.join(f'{n!r}: {n}' for n in carried)}}}"
    ranged = ", ".join(ast.unparse(a) for a in loop.iter.args)
    call = _at(f"{STATE} = __loop__({name}, ({ranged},), {state}, {lists}, {rows})", loop)
    ends = [_at(f"{LAST}{n} = __last__({n})", loop) for n in followed]
    names = [*carried, *given.lists, *given.rows, *last]
    after = [_at(f"{n} = {STATE}[{n!r}]", loop) for n in names if not n.startswith(LAST)]
    return [function, *ends, call, *after]


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

    @property
    def before(self) -> list[Any]:
        """What was in the list before the loop."""
        return list(list.__iter__(self))

    def stack(self, dim: int = 0) -> Any:
        """`torch.stack` of the list: what was in it before the loop, then one entry for each step."""
        import torch

        made = self.steps.movedim(0, dim)
        return torch.cat([torch.stack(self.before, dim), made], dim) if len(self) else made

    def cat(self, dim: int = 0) -> Any:
        """`torch.cat` of the list along `dim` of its entries."""
        import torch

        dim = dim % (self.steps.dim() - 1)
        made = self.steps.movedim(0, dim).flatten(dim, dim + 1)
        return torch.cat([*self.before, made], dim) if len(self) else made

    def __getitem__(self, index: Any) -> Any:
        if index == -1:
            return self.steps[-1]
        if isinstance(index, slice) and index == slice(None, None, -1) and not len(self):
            return Stacked([], self.steps.flip(0))
        raise Unsuited("an element in the middle of a list that a loop over a size fills")

    def __iter__(self) -> Any:
        raise Unsuited("a second loop over a list that a loop over a size fills")

    def insert(self, index: Any, value: Any) -> None:
        """Nothing is put between what a loop has collected."""
        raise Unsuited("an element is put into a list that a loop over a size fills")

    def reverse(self) -> None:
        """Turns the order of the steps round, as `list.reverse` does."""
        self.steps = self.steps.flip(0)


def own_copy(changed: Any) -> Any:
    """What a step may write into. Raises Unsuited for a view, whose tensor would not see it."""
    import torch

    if not in_a_step():
        return changed
    if isinstance(changed, list | dict):
        return changed.copy()
    if isinstance(changed, torch.Tensor) and changed._is_view():
        raise Unsuited("a loop over a size writes into a part of a tensor")
    return changed.clone() if isinstance(changed, torch.Tensor) else changed


def last_of(listed: list[Any]) -> Any:
    """The last element of a list; None where it is empty."""
    return listed[-1] if isinstance(listed, Stacked) or listed else None


def loop(step: Callable[..., Any], ranged: tuple[Any, ...], state: dict[str, Any], lists: dict[str, list[Any]],
    rows: dict[str, tuple[Any, int]]) -> dict[str, Any]:  # fmt: skip
    """What `for` does, by `over_steps` where the count is a size; returns the values of all names afterwards."""
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    start, stop, stride = _bounds(ranged)
    count = (stop - start) if stride == 1 else (start - stop) if stride == -1 else None
    if not isinstance(count, torch.SymInt) or not keeps_loops() or any(isinstance(v, Stacked) for v in lists.values()):
        return _as_it_is(step, range(start, stop, stride), state, lists, rows)

    rows = {n: (t, d % t.dim()) for n, (t, d) in rows.items()}
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

    if isinstance(tensors, Stacked):
        return tensors.stack(dim)
    return torch._C._VariableFunctions.stack(list(tensors), dim)


def cat(tensors: Any, dim: Any = 0, **options: Any) -> Any:
    """Joins what a loop has collected, or calls `torch.cat` on ordinary tensors."""
    import torch

    if isinstance(tensors, Stacked):
        return tensors.cat(dim)
    return torch._C._VariableFunctions.cat(list(tensors), dim, **options)
