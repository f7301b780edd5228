"""What a reference computes, as a hash: which operations on which others' results, without names, sizes, constants,
axes and layout.

The graph is read off the syntax tree by following the values through forward, not by running it: corpora hold code that
nobody has looked at, and a run needs its sizes, its imports and a version of torch. `F.relu(x)`, `torch.relu(x)`,
`x.relu()` and `nn.ReLU()` give the same node; what the return value does not depend on is no part of it. Two problems
that differ only in sizes, constants, axis, stride or spelling are the same graph, so that what is dropped as leaked is
rather too much than too little. What it does not see through: calls into other files, and formulas written out that
torch has a name for.
"""

from __future__ import annotations

import ast
import hashlib
import re
from functools import lru_cache

from kernelwright.rl.data.operation_names import (
    COMMUTATIVE,
    LAYOUT_AND_TYPE_OPERATIONS,
    OPERATION_NAMES,
    canonical_operation,
    einsum_name,
)
from kernelwright.tools.parsing import parse_module

CONSTANT = "c"
_DIGEST = 40
"""A constant or a bare input is shorter: it says that nothing could be followed."""
MAX_CALL_DEPTH = 12
"""Calls of own methods that are followed into each other."""


@lru_cache(maxsize=65536)
def graph_hash(source: str) -> str:
    """Returns the SHA-1 of a text's dataflow graph, in hexadecimal; empty for a text without a model that can be
    followed.
    """
    try:
        return _hash(parse_module(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _hash(tree: ast.Module) -> str:
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    model = classes.get("Model") or next(
        (c for c in reversed(classes.values()) if "forward" in _methods(c)), None
    )
    if model is None or "forward" not in _methods(model):
        return ""
    term = DataflowTracer(classes, functions, model).result()
    return term if len(term) == _DIGEST else ""


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


def _node(name: str, *inputs: str) -> str:
    """A term is the hash of its operation and its inputs: shared values cost nothing."""
    parts = sorted(inputs) if name in COMMUTATIVE else list(inputs)
    return hashlib.sha1(
        "\0".join([name, *parts]).encode("utf-8", "replace"), usedforsecurity=False
    ).hexdigest()


class DataflowTracer:
    """Traces one model's forward, value by value. A value is a term; all constants are the term `c`."""

    def __init__(
        self,
        classes: dict[str, ast.ClassDef],
        functions: dict[str, ast.FunctionDef],
        model: ast.ClassDef,
    ) -> None:
        self._classes, self._functions, self._methods = classes, functions, _methods(model)
        self._layers: dict[str, ast.expr] = {}
        """The values that `__init__` assigns to attributes of self."""
        for node in ast.walk(self._methods["__init__"]) if "__init__" in self._methods else ():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                self._layers[node.targets[0].attr] = node.value
        self._depth = 0

    def result(self) -> str:
        """The term of what `forward` returns, its inputs numbered in the order of its arguments."""
        forward = self._methods["forward"]
        names = [a.arg for a in forward.args.args[1:]]
        return self._call(forward, {name: f"input{i}" for i, name in enumerate(names)})

    def _call(self, function: ast.FunctionDef, known: dict[str, str]) -> str:
        if self._depth >= MAX_CALL_DEPTH:
            return _node("deep")
        self._depth += 1
        try:
            return self._body(function.body, known) or _node("none")
        finally:
            self._depth -= 1

    # -------------------------------------------------------------- statements
    def _body(self, body: list[ast.stmt], known: dict[str, str]) -> str | None:
        """The term that is returned, None where the body goes through."""
        for node in body:
            match node:
                case ast.Return():
                    return self.value(node.value, known) if node.value else _node("none")
                case ast.Assign():
                    for target in node.targets:
                        self._assign(target, self.value(node.value, known), known)
                case ast.AnnAssign() if node.value:
                    self._assign(node.target, self.value(node.value, known), known)
                case ast.AugAssign() if isinstance(node.target, ast.Name):
                    left = known.get(node.target.id, CONSTANT)
                    known[node.target.id] = self._operator(
                        node.op, left, self.value(node.value, known)
                    )
                case ast.For() | ast.While() | ast.With() | ast.If():
                    if (returned := self._block(node, known)) is not None:
                        return returned
        return None

    def _block(
        self, node: ast.For | ast.While | ast.With | ast.If, known: dict[str, str]
    ) -> str | None:
        """A loop's body once, marked; both sides of a condition one after the other."""
        if isinstance(node, ast.For):
            self._assign(node.target, _node("each", self.value(node.iter, known)), known)
        returned = self._body(node.body, known)
        if isinstance(node, ast.If) and returned is None:
            returned = self._body(node.orelse, known)
        return returned

    def _assign(self, target: ast.expr, term: str, known: dict[str, str]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = term
        elif isinstance(target, ast.Tuple | ast.List):
            for i, part in enumerate(target.elts):
                self._assign(part, CONSTANT if term == CONSTANT else _node(f"part{i}", term), known)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            known[target.value.id] = _node("setitem", known.get(target.value.id, CONSTANT), term)

    # -------------------------------------------------------------- expressions
    def value(self, node: ast.expr, known: dict[str, str]) -> str:
        """The term of an expression, given those of local names; `c` where nothing can be followed."""
        match node:
            case ast.Constant():
                return CONSTANT
            case ast.Name():
                return known.get(node.id, CONSTANT)
            case ast.UnaryOp():
                term = self.value(node.operand, known)
                return (
                    term
                    if term == CONSTANT or isinstance(node.op, ast.UAdd)
                    else _node("neg", term)
                )
            case ast.BinOp():
                return self._operator(
                    node.op, self.value(node.left, known), self.value(node.right, known)
                )
            case ast.Attribute():
                return self._attribute(node, known)
            case ast.Call():
                return self._called(node, known)
            case ast.Subscript():
                return self._item(node, known)
            case ast.Compare():
                return self._joined("compare", [node.left, *node.comparators], known)
            case ast.Tuple() | ast.List():
                return self._joined("tuple", node.elts, known)
            case ast.IfExp():
                return self.value(node.body, known)
        return self._joined(
            type(node).__name__,
            [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)],
            known,
        )

    def _joined(self, name: str, nodes: list[ast.expr], known: dict[str, str]) -> str:
        terms = [self.value(n, known) for n in nodes]
        return CONSTANT if all(t == CONSTANT for t in terms) else _node(name, *terms)

    def _operator(self, op: ast.operator, left: str, right: str) -> str:
        if left == right == CONSTANT:
            return CONSTANT
        name = OPERATION_NAMES.get(type(op).__name__, type(op).__name__)
        if name == "mul" and _node("sigmoid", left) == right:
            return _node("silu", left)
        if name == "mul" and _node("sigmoid", right) == left:
            return _node("silu", right)
        return _node(name, left, right)

    def _attribute(self, node: ast.Attribute, known: dict[str, str]) -> str:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            layer = self._layers.get(node.attr)
            return "parameter" if layer is not None and _is_parameter(layer) else CONSTANT
        inner = self.value(node.value, known)
        if node.attr in ("shape", "device", "dtype", "ndim"):
            return CONSTANT
        if node.attr in ("T", "mT", "H"):
            return _node("transpose", inner)
        return inner

    def _item(self, node: ast.Subscript, known: dict[str, str]) -> str:
        inner = self.value(node.value, known)
        if inner == CONSTANT or isinstance(node.slice, ast.Constant):
            return inner
        return (
            _node("slice", inner)
            if any(isinstance(n, ast.Slice) and (n.lower or n.upper) for n in ast.walk(node.slice))
            else inner
        )

    def _called(self, node: ast.Call, known: dict[str, str]) -> str:
        function = node.func
        arguments = [self.value(a, known) for a in (*node.args, *(k.value for k in node.keywords))]
        if isinstance(function, ast.Name):
            if function.id in self._functions:
                return self._inner(self._functions[function.id], node, known, first=0)
            return self._apply(function.id, node, arguments)
        if not isinstance(function, ast.Attribute):
            return _node("call", *arguments)
        if isinstance(function.value, ast.Name) and function.value.id == "self":
            return self._own(function.attr, node, arguments, known)
        if _is_module_path(function.value, known):
            return self._apply(function.attr, node, arguments)
        return self._apply(function.attr, node, [self.value(function.value, known), *arguments])

    def _own(self, name: str, node: ast.Call, arguments: list[str], known: dict[str, str]) -> str:
        """Returns the term of `self.name(...)`, which calls a method of the model or a layer."""
        if name in self._methods:
            return self._inner(self._methods[name], node, known, first=1)
        layer = self._layers.get(name)
        return self._layer(layer, arguments) if layer is not None else _node(name, *arguments)

    def _inner(
        self, function: ast.FunctionDef, node: ast.Call, known: dict[str, str], first: int
    ) -> str:
        names = [a.arg for a in function.args.args[first:]]
        given = dict(zip(names, (self.value(a, known) for a in node.args), strict=False))
        given |= {k.arg: self.value(k.value, known) for k in node.keywords if k.arg}
        return self._call(function, {name: given.get(name, CONSTANT) for name in names})

    def _layer(self, layer: ast.expr, arguments: list[str]) -> str:
        """A module of torch by its name, Sequential as its parts one after the other, a class of the same file
        through its forward.
        """
        if not isinstance(layer, ast.Call):
            return _node("layer", *arguments)
        name = ast.unparse(layer.func).split(".")[-1]
        if name == "Sequential":
            term = arguments[0] if arguments else CONSTANT
            for part in layer.args:
                term = self._layer(part, [term])
            return term
        if (
            name in self._classes
            and "forward" in _methods(self._classes[name])
            and self._depth < MAX_CALL_DEPTH
        ):
            inner = DataflowTracer(self._classes, self._functions, self._classes[name])
            inner._depth = self._depth + 1
            forward = inner._methods["forward"]
            names = [a.arg for a in forward.args.args[1:]]
            return inner._call(forward, dict(zip(names, arguments, strict=False)))
        return self._apply(name, layer, arguments)

    def _apply(self, name: str, node: ast.Call, terms: list[str]) -> str:
        """An operation of torch on values; constants among its arguments are left out."""
        values = [t for t in terms if t != CONSTANT]
        name = canonical_operation(name, node)
        if name == "einsum":
            name = einsum_name(node)
        if not values:
            return CONSTANT
        if name in LAYOUT_AND_TYPE_OPERATIONS:
            return values[0]
        if name in ("add", "sub", "mul", "div", "pow") and len(values) < len(terms[:2]):
            first_constant = terms[0] == CONSTANT
            values = [CONSTANT, values[0]] if first_constant else [values[0], CONSTANT]
        if name == "mul" and len(values) == 2:
            return self._operator(ast.Mult(), *values)
        return _node(name, *values)


def _is_parameter(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(
        re.search(r"\b(Parameter|randn|rand|zeros|ones|empty)$", ast.unparse(node.func))
    )


def _is_module_path(node: ast.expr, known: dict[str, str]) -> bool:
    """Whether a node is a path of a module (`torch`, `F`, `torch.nn.functional`) and no value has its name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id not in known and node.id != "self"
