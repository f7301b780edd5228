"""Rewrites `for` loops in a problem's text as calls of `over_steps`, if their bodies permit this.

    for t in range(x.shape[1]):              def __step_0__(t, __state__, __gives__):
        h = cell(x[:, t], h)                     h = __state__['h']
        outputs.append(h)                        h = cell(x[:, t], h)
                                                 __gives__.setdefault('outputs', []).append(h)
                                                 return {'h': h}, {}
                                             __state__ = __loop__(__step_0__, (x.shape[1],), {'h': h},
                                                                  {'outputs': outputs}, {})
                                             h = __state__['h']
                                             outputs = __state__['outputs']

Carried from step to step: names that existed before the loop and that the body assigns or
modifies in place
(`h[i] = y`, `state.mul_(y)`), of which each step has a copy. Stacked: `outputs.append(y)` and
`out[..., t] = y`. A loop
inside a loop is a function inside a function. A loop with other statements (break, return) stays
unchanged, and is
unrolled.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from kernelwright.policies.inductor.syntax import names_in, nodes_in
from kernelwright.policies.inductor.tracing.loop_forms import (
    ZippedRows,
    count_of,
    over_ranges,
    rows_of,
)
from kernelwright.policies.inductor.tracing.loop_running import last_element, own_copy, run_loop

STATEMENTS_THAT_LEAVE = (
    ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.While, ast.Try, ast.With,
    ast.FunctionDef, ast.Global, ast.Nonlocal, ast.Delete)  # fmt: skip
STATE, STEP = "__state__", "__step_"


def with_loops(tree: ast.Module) -> ast.Module:
    """The same module with its loops as calls; line numbers stay."""
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef):
            for method in cls.body:
                if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                    _rewrite(method)
    return ast.fix_missing_locations(tree)


def has_loops(source: str) -> bool:
    """Whether a problem has a loop `with_loops` writes as a call."""
    return "__loop__" in ast.unparse(with_loops(ast.parse(source)))


def loop_names() -> dict[str, Any]:
    """Returns the names a module rewritten by `with_loops` needs."""
    return {
        "__loop__": run_loop,
        "__rows__": rows_of,
        "__count__": count_of,
        "__together__": ZippedRows,
        "__own__": own_copy,
        "__last__": last_element,
    }


def _rewrite(method: ast.FunctionDef) -> None:
    over_ranges(method)
    rewrite_ranges(method)


def rewrite_ranges(method: ast.FunctionDef) -> None:
    """Rewrites the loops over ranges of a function, in place."""
    _Backwards().visit(method)
    arguments = {a.arg for a in ast.walk(method.args) if isinstance(a, ast.arg)}
    _rewrite_body(method.body, _LoopContext(method, arguments, itertools.count()))


@dataclass(frozen=True)
class _LoopContext:
    """Surroundings of a loop: its method, arguments, and outermost loop."""

    method: ast.FunctionDef
    arguments: set[str]
    numbers: Iterator[int]
    around: ast.For | None = None
    """The outermost loop it is inside of."""

    def before(self, loop: ast.For) -> set[str]:
        """Names bound before the loop."""
        other = _nodes_of_other_branches(self.method, loop)
        earlier = [
            node
            for node in _nodes_outside_steps(self.method)
            if getattr(node, "lineno", 0) < loop.lineno and id(node) not in other
        ]
        return self.arguments | _stored(earlier)

    def after(self, loop: ast.For) -> set[str]:
        """Returns the names read after the loop, including reads in later steps of a surrounding
        loop.
        """
        inside = {id(n) for n in ast.walk(loop)}
        again = (
            [n for n in ast.walk(self.around) if id(n) not in inside]
            if self.around is not None
            else []
        )
        later = [
            n for n in ast.walk(self.method) if getattr(n, "lineno", 0) > (loop.end_lineno or 0)
        ]
        return {n.id for n in [*later, *again] if isinstance(n, ast.Name)}


def _nodes_of_other_branches(method: ast.FunctionDef, loop: ast.For) -> set[int]:
    """Returns identities of nodes in other branches of the loop's enclosing ifs."""
    nodes: set[int] = set()
    for condition in (node for node in ast.walk(method) if isinstance(node, ast.If)):
        branches = [
            [n for s in part for n in ast.walk(s)] for part in (condition.body, condition.orelse)
        ]
        for branch, other in (branches, branches[::-1]):
            if any(node is loop for node in branch):
                nodes |= {id(node) for node in other}
    return nodes


def _rewrite_body(body: list[ast.stmt], context: _LoopContext) -> None:
    """Loops in a list of statements as calls, those inside loops first; in place."""
    for position in range(len(body) - 1, -1, -1):
        statement = body[position]
        around = context.around or (statement if isinstance(statement, ast.For) else None)
        for inner in ("body", "orelse"):
            if isinstance(statement, ast.For | ast.If | ast.With | ast.FunctionDef):
                _rewrite_body(getattr(statement, inner, []), replace(context, around=around))
        if isinstance(statement, ast.For) and _fits(statement):
            before, after = context.before(statement), context.after(statement)
            body[position : position + 1] = _called(
                statement, before, after, context.arguments, next(context.numbers)
            )


def _nodes_outside_steps(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, but for those of functions of steps inside it, whose names are their own."""
    waiting = [node]
    while waiting:
        current = waiting.pop(0)
        yield current
        waiting += [n for n in ast.iter_child_nodes(current) if not _is_step(n)]


def _is_step(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith(STEP)


def _free(body: Sequence[ast.stmt]) -> set[str]:
    """Names read and not assigned by functions of steps."""
    free_names: set[str] = set()
    for function in (n for s in body for n in ast.walk(s) if _is_step(n)):
        names = nodes_in(function, ast.Name)
        local_names = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)} | _stored(names)
        free_names |= {n.id for n in names} - local_names
    return free_names


def _fits(loop: ast.For) -> bool:
    over_range = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range"
    inside = [n for s in loop.body if not _is_step(s) for n in _nodes_outside_steps(s)]
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
        inner = (
            node.args[0] if ast.unparse(node.func) == "reversed" and len(node.args) == 1 else None
        )
        if (
            not isinstance(inner, ast.Call)
            or ast.unparse(inner.func) != "range"
            or not 1 <= len(inner.args) <= 2
        ):
            return node
        first, end = (["0"] + [ast.unparse(a) for a in inner.args])[-2:]
        backwards_range = ast.parse(f"range(({end}) - 1, ({first}) - 1, -1)", mode="eval").body
        for part in ast.walk(backwards_range):
            ast.copy_location(part, node)
        return backwards_range


def _stored(nodes: list[Any]) -> set[str]:
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _read_first(body: list[ast.stmt]) -> set[str]:
    """Names a step reads before it assigns them."""
    read_names: set[str] = set()
    stored: set[str] = set()
    for statement in body:
        read_names |= _free([statement]) - stored
        if _is_step(statement):
            continue
        nodes = [n for n in _nodes_outside_steps(statement) if isinstance(n, ast.Name)]
        again = {
            ast.unparse(n.target)
            for n in _nodes_outside_steps(statement)
            if isinstance(n, ast.AugAssign)
        }
        read_names |= ({n.id for n in nodes if isinstance(n.ctx, ast.Load)} | again) - stored
        if not isinstance(statement, ast.If):
            stored |= _stored(nodes)
    return read_names


class _StepOutputs(ast.NodeTransformer):
    """Rewrites appends and writes to a row as outputs of the step."""

    def __init__(self, variable: str, written_in_place: Set[str], followed: Set[str]) -> None:
        """kept: names of tensors whose rows are written in place. followed: lists whose last element is read."""
        self.variable = variable
        self.lists: list[str] = []
        self.rows: dict[str, int] = {}
        """Tensor -> the dimension along which the steps write it."""
        self._written_in_place, self._followed = written_in_place, followed

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Returns the function of an inner step unchanged; its outputs are rewritten already."""
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" \
                and isinstance(call.func.value, ast.Name) and len(call.args) == 1:  # fmt: skip
            name, value = call.func.value.id, ast.unparse(call.args[0])
            self.lists += [name] * (name not in self.lists)
            keep = [_at(f"{LAST}{name} = {value}", node)] * (name in self._followed)
            value = f"{LAST}{name}" if keep else value
            return [*keep, _at(f"__gives__.setdefault({name!r}, []).append({value})", node)]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        target = node.targets[0]
        if (
            len(node.targets) == 1
            and isinstance(target, ast.Subscript)
            and isinstance(target.value, ast.Name)
        ):
            index = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            words = [ast.unparse(i) for i in index]
            other_words = [w for w in words if w != self.variable]
            name = target.value.id
            fits = (
                words.count(self.variable) == 1
                and set(other_words) <= {":", "..."}
                and words.count("...") <= 1
            )
            if fits and name not in self._written_in_place:
                position = words.index(self.variable)
                self.rows[name] = (
                    position if "..." not in words[:position] else position - len(words)
                )
                return _at(
                    f"__gives__.setdefault({name!r}, []).append({ast.unparse(node.value)})", node
                )
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Rewrites `outputs[-1]` as the output of the previous step."""
        self.generic_visit(node)
        name = _last_read(node)
        return (
            ast.copy_location(ast.Name(f"{LAST}{name}", ast.Load()), node)
            if name in self._followed
            else node
        )


LAST = "__last_of_"
"""Prefix that turns the name of a list into the name of its last element."""


def _last_read(node: ast.AST) -> str:
    """Returns the name of the list whose last element a node reads; empty for other nodes."""
    reads = (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
    )
    return node.value.id if reads and ast.unparse(node.slice) == "-1" else ""  # type: ignore[attr-defined]


def _changed(body: list[ast.stmt]) -> set[str]:
    """Returns the names a step modifies in place."""
    changed_names: set[str] = set()
    for node in (n for s in body if not _is_step(s) for n in _nodes_outside_steps(s)):
        target: ast.AST | None = None
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            in_place = node.func.attr.endswith("_") and not node.func.attr.endswith("__")
            target = node.func.value if in_place else None
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            changed_names.add(target.id)
    return changed_names


def _given_by(
    loop: ast.For, variable: str, before: set[str]
) -> tuple[list[ast.stmt], _StepOutputs] | None:
    """Returns the loop body with its outputs rewritten; None if the body reads a list that it
    fills.
    """
    calls = [
        n.value for n in ast.walk(loop) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)
    ]
    appended = {ast.unparse(c.func).removesuffix(".append") for c in calls}
    followed = {_last_read(n) for n in ast.walk(loop)} & appended & before
    written_in_place: set[str] = set()
    while True:
        outputs = _StepOutputs(variable, written_in_place, followed)
        body = []
        for statement in loop.body:
            rewritten = outputs.visit(copy.deepcopy(statement))
            body += rewritten if isinstance(rewritten, list) else [rewritten]
        used = names_in(*body)
        if used & set(outputs.lists):
            return None
        if not used & set(outputs.rows):
            return body, outputs
        written_in_place |= used & set(outputs.rows)


def _called(
    loop: ast.For, before: set[str], after_it: set[str], arguments: set[str], number: int
) -> list[ast.stmt]:
    """Returns the statements that replace a loop: the step's function, the call, and the
    assignments afterwards.
    """
    assert isinstance(loop.target, ast.Name)
    assert isinstance(loop.iter, ast.Call)
    variable = loop.target.id
    if (rewritten := _given_by(loop, variable, before)) is None:
        return [loop]
    body, outputs = rewritten
    body_names = names_in(*body)
    followed = [n for n in outputs.lists if f"{LAST}{n}" in body_names]
    before = before | {f"{LAST}{n}" for n in followed}
    # Carried: names from before the loop that a step reads before it assigns them, or that are
    # read later.
    stored = _stored([n for s in body if not _is_step(s) for n in _nodes_outside_steps(s)]) - {
        variable,
        STATE,
    }
    changed = _changed(body) & before
    if changed & arguments:  # the caller sees what is written into its own
        return [loop]
    carried = sorted((stored & before & (_read_first(body) | after_it)) | changed)
    last = sorted((stored & after_it) - set(carried))
    # The function of a step: unpack the state, run the body, return the state.
    name = f"{STEP}{number}__"
    function = _at(f"def {name}({variable}, {STATE}, __gives__):\n    pass", loop)
    assert isinstance(function, ast.FunctionDef)
    function.body = [
        *(_at(f"{n} = {STATE}[{n!r}]", loop) for n in carried),
        *(_at(f"{n} = __own__({n})", loop) for n in sorted(changed)), *body,
        _at(f"return {_dictionary_text(carried)}, {_dictionary_text(last)}", loop),
    ]  # fmt: skip
    rows = f"{{{', '.join(f'{n!r}: ({n}, {d})' for n, d in outputs.rows.items())}}}"
    # Arguments of the call: carried names, lists that the loop fills, and tensors written row by
    # row.
    lists = _dictionary_text(outputs.lists)
    state = _dictionary_text(carried)
    ranged = ", ".join(ast.unparse(a) for a in loop.iter.args)
    call = _at(f"{STATE} = __loop__({name}, ({ranged},), {state}, {lists}, {rows})", loop)
    ends = [_at(f"{LAST}{n} = __last__({n})", loop) for n in followed]
    names = [*carried, *outputs.lists, *outputs.rows, *last]
    after = [_at(f"{n} = {STATE}[{n!r}]", loop) for n in names if not n.startswith(LAST)]
    return [function, *ends, call, *after]


def _dictionary_text(names: Sequence[str]) -> str:
    """Returns the text of a dictionary of variables by name: {'h': h, 'c': c}."""
    entries = [f"{name!r}: {name}" for name in names]
    return f"{{{', '.join(entries)}}}"


def _at(text: str, node: ast.stmt) -> Any:
    statement = ast.parse(text).body[0]
    for part in ast.walk(statement):
        ast.copy_location(part, node)
    return statement
