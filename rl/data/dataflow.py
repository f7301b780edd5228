"""The dataflow graph of a reference as a hash: operations and their operands, without names,
sizes, constants, axes and layout.

The graph is built from the syntax tree by following values through `forward`, not by running the
code: corpora hold unreviewed code, and a run needs sizes, imports and a version of torch.
`F.relu(x)`, `torch.relu(x)`, `x.relu()` and `nn.ReLU()` give the same node; computations without
influence on the return value are left out. Problems that differ only in sizes, constants, axis,
stride or spelling have equal graphs, so a comparison finds too many leaks rather than too few.
Not followed: calls into other files, and formulas for operations that torch has a name for.

A term is the SHA-1 of an operation's name and the terms of its inputs; `c` stands for any
constant:

    def forward(self, x):            x -> "input0"
        y = torch.relu(x) * 2.0      y -> H("mul", H("relu", "input0"), "c")
        return y + x                 H("add", H("mul", ...), "input0"): the graph's hash
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

CONSTANT_VALUE = "c"
_DIGEST = 40
"""Number of characters of a hash. A constant or a bare input is shorter: nothing could be
followed.
"""
MAX_DATAFLOW_DEPTH = 12
"""Largest depth of followed calls of the model's own methods."""


@lru_cache(maxsize=65536)
def graph_hash(source: str) -> str:
    """Returns the SHA-1 of a text's dataflow graph, in hexadecimal; empty for a text without a
    model to follow.
    """
    try:
        return _hash(parse_module(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _hash(tree: ast.Module) -> str:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    model = classes.get("Model")
    if model is None:
        # Without a Model, the last class with a forward is the model.
        for candidate in classes.values():
            if "forward" in _methods(candidate):
                model = candidate
    if model is None or "forward" not in _methods(model):
        return ""
    term = DataflowTracer(classes, functions, model).result()
    return term if len(term) == _DIGEST else ""


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


def _node(name: str, *inputs: str) -> str:
    """Returns the term of an operation: the hash of its name and its inputs, so shared values
    cost nothing.
    """
    parts = sorted(inputs) if name in COMMUTATIVE else list(inputs)
    text = "\0".join([name, *parts]).encode("utf-8", "replace")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


class DataflowTracer:
    """Traces a model's forward, value by value. A value is a term; all constants are the term
    `c`.
    """

    def __init__(
        self,
        classes: dict[str, ast.ClassDef],
        functions: dict[str, ast.FunctionDef],
        model: ast.ClassDef,
    ) -> None:
        self._classes, self._functions, self._methods = classes, functions, _methods(model)
        # Layers and parameters are attributes assigned in `__init__`.
        self._layers: dict[str, ast.expr] = {}
        """The values that `__init__` assigns to attributes of self."""
        for node in ast.walk(self._methods["__init__"]) if "__init__" in self._methods else ():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                self._layers[node.targets[0].attr] = node.value
        self._depth = 0

    def result(self) -> str:
        """Returns the term of the return value of `forward`; inputs are numbered in the order of
        its arguments.
        """
        forward = self._methods["forward"]
        names = [a.arg for a in forward.args.args[1:]]
        return self._call(forward, {name: f"input{i}" for i, name in enumerate(names)})

    def _call(self, function: ast.FunctionDef, terms: dict[str, str]) -> str:
        # Recursive methods end in a common term.
        if self._depth >= MAX_DATAFLOW_DEPTH:
            return _node("deep")
        self._depth += 1
        try:
            return self._body(function.body, terms) or _node("none")
        finally:
            self._depth -= 1

    # -------------------------------------------------------------- statements
    def _body(self, body: list[ast.stmt], terms: dict[str, str]) -> str | None:
        """Returns the returned term, or None if the body ends without a return."""
        for node in body:
            match node:
                case ast.Return():
                    return self.value(node.value, terms) if node.value else _node("none")
                case ast.Assign():
                    for target in node.targets:
                        self._assign(target, self.value(node.value, terms), terms)
                case ast.AnnAssign() if node.value:
                    self._assign(node.target, self.value(node.value, terms), terms)
                # x += y is x = x + y.
                case ast.AugAssign() if isinstance(node.target, ast.Name):
                    current = terms.get(node.target.id, CONSTANT_VALUE)
                    terms[node.target.id] = self._operator(
                        node.op, current, self.value(node.value, terms)
                    )
                case ast.For() | ast.While() | ast.With() | ast.If():
                    if (returned := self._block(node, terms)) is not None:
                        return returned
        return None

    def _block(
        self, node: ast.For | ast.While | ast.With | ast.If, terms: dict[str, str]
    ) -> str | None:
        """Follows a loop's body once, with a marked variable, and both branches of a condition in
        turn.
        """
        # The loop variable is an element of the iterated value.
        if isinstance(node, ast.For):
            self._assign(node.target, _node("each", self.value(node.iter, terms)), terms)
        returned = self._body(node.body, terms)
        if isinstance(node, ast.If) and returned is None:
            # Both branches are followed in turn: values of the second overwrite those of the
            # first.
            returned = self._body(node.orelse, terms)
        return returned

    def _assign(self, target: ast.expr, term: str, terms: dict[str, str]) -> None:
        if isinstance(target, ast.Name):
            terms[target.id] = term
        elif isinstance(target, ast.Tuple | ast.List):
            for i, part in enumerate(target.elts):
                self._assign(
                    part,
                    CONSTANT_VALUE if term == CONSTANT_VALUE else _node(f"part{i}", term),
                    terms,
                )
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            terms[target.value.id] = _node(
                "setitem", terms.get(target.value.id, CONSTANT_VALUE), term
            )

    # -------------------------------------------------------------- expressions
    def value(self, node: ast.expr, terms: dict[str, str]) -> str:
        """Returns the term of an expression, given the terms of local names; `c` for untraceable
        values.
        """
        match node:
            case ast.Constant():
                return CONSTANT_VALUE
            case ast.Name():
                return terms.get(node.id, CONSTANT_VALUE)
            case ast.UnaryOp():
                term = self.value(node.operand, terms)
                return (
                    term
                    if term == CONSTANT_VALUE or isinstance(node.op, ast.UAdd)
                    else _node("neg", term)
                )
            case ast.BinOp():
                return self._operator(
                    node.op, self.value(node.left, terms), self.value(node.right, terms)
                )
            case ast.Attribute():
                return self._attribute(node, terms)
            case ast.Call():
                return self._called(node, terms)
            case ast.Subscript():
                return self._item(node, terms)
            case ast.Compare():
                return self._joined("compare", [node.left, *node.comparators], terms)
            case ast.Tuple() | ast.List():
                return self._joined("tuple", node.elts, terms)
            case ast.IfExp():
                return self.value(node.body, terms)
        return self._joined(
            type(node).__name__,
            [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)],
            terms,
        )

    def _joined(self, name: str, nodes: list[ast.expr], terms_by_name: dict[str, str]) -> str:
        terms = [self.value(n, terms_by_name) for n in nodes]
        return CONSTANT_VALUE if all(t == CONSTANT_VALUE for t in terms) else _node(name, *terms)

    def _operator(self, op: ast.operator, first: str, right: str) -> str:
        if first == right == CONSTANT_VALUE:
            return CONSTANT_VALUE
        name = OPERATION_NAMES.get(type(op).__name__, type(op).__name__)
        # x * sigmoid(x) is silu, in either order.
        if name == "mul" and _node("sigmoid", first) == right:
            return _node("silu", first)
        if name == "mul" and _node("sigmoid", right) == first:
            return _node("silu", right)
        return _node(name, first, right)

    def _attribute(self, node: ast.Attribute, terms: dict[str, str]) -> str:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            # Parameters of all shapes are the same term; other attributes are constants.
            layer = self._layers.get(node.attr)
            return "parameter" if layer is not None and _is_parameter(layer) else CONSTANT_VALUE
        inner = self.value(node.value, terms)
        if node.attr in ("shape", "device", "dtype", "ndim"):
            return CONSTANT_VALUE
        # Transposing is kept, since a product with a transposed operand is another problem.
        if node.attr in ("T", "mT", "H"):
            return _node("transpose", inner)
        return inner

    def _item(self, node: ast.Subscript, terms: dict[str, str]) -> str:
        inner = self.value(node.value, terms)
        if inner == CONSTANT_VALUE or isinstance(node.slice, ast.Constant):
            return inner
        # x[:, None] is layout alone; x[1:] or x[:n] selects elements.
        for part in ast.walk(node.slice):
            if isinstance(part, ast.Slice) and (part.lower or part.upper):
                return _node("slice", inner)
        return inner

    def _called(self, node: ast.Call, terms: dict[str, str]) -> str:
        function = node.func
        arguments = [self.value(a, terms) for a in (*node.args, *(k.value for k in node.keywords))]
        if isinstance(function, ast.Name):
            # A function of the file is followed; others are operations.
            if function.id in self._functions:
                return self._inner(self._functions[function.id], node, terms, first=0)
            return self._apply(function.id, node, arguments)
        if not isinstance(function, ast.Attribute):
            return _node("call", *arguments)
        if isinstance(function.value, ast.Name) and function.value.id == "self":
            return self._self_call(function.attr, node, arguments, terms)
        # torch.relu(x) and F.relu(x) are operations; x.relu() takes x as the first operand.
        if _is_module_path(function.value, terms):
            return self._apply(function.attr, node, arguments)
        return self._apply(function.attr, node, [self.value(function.value, terms), *arguments])

    def _self_call(
        self, name: str, node: ast.Call, arguments: list[str], terms: dict[str, str]
    ) -> str:
        """Returns the term of `self.name(...)`, a call of the model's method or of a layer."""
        if name in self._methods:
            return self._inner(self._methods[name], node, terms, first=1)
        layer = self._layers.get(name)
        return self._layer(layer, arguments) if layer is not None else _node(name, *arguments)

    def _inner(
        self, function: ast.FunctionDef, node: ast.Call, terms: dict[str, str], first: int
    ) -> str:
        names = [a.arg for a in function.args.args[first:]]
        arguments = dict(zip(names, (self.value(a, terms) for a in node.args), strict=False))
        arguments |= {k.arg: self.value(k.value, terms) for k in node.keywords if k.arg}
        return self._call(function, {name: arguments.get(name, CONSTANT_VALUE) for name in names})

    def _layer(self, layer: ast.expr, arguments: list[str]) -> str:
        """Returns the term of a layer's output: a torch module by its name, Sequential as a chain
        of its parts, a class of the same file by its forward.
        """
        if not isinstance(layer, ast.Call):
            return _node("layer", *arguments)
        name = ast.unparse(layer.func).split(".")[-1]
        # A chain of layers.
        if name == "Sequential":
            term = arguments[0] if arguments else CONSTANT_VALUE
            for part in layer.args:
                term = self._layer(part, [term])
            return term
        if (
            name in self._classes
            and "forward" in _methods(self._classes[name])
            and self._depth < MAX_DATAFLOW_DEPTH
        ):
            # A class of the same file is followed through its own forward.
            inner = DataflowTracer(self._classes, self._functions, self._classes[name])
            inner._depth = self._depth + 1
            forward = inner._methods["forward"]
            names = [a.arg for a in forward.args.args[1:]]
            return inner._call(forward, dict(zip(names, arguments, strict=False)))
        return self._apply(name, layer, arguments)

    def _apply(self, name: str, node: ast.Call, terms: list[str]) -> str:
        """Returns the term of a torch operation on values; constants among its arguments are left
        out.
        """
        values = [t for t in terms if t != CONSTANT_VALUE]
        name = canonical_operation(name, node)
        if name == "einsum":
            name = einsum_name(node)
        if not values:
            return CONSTANT_VALUE
        if name in LAYOUT_AND_TYPE_OPERATIONS:
            return values[0]
        # A constant operand stays: x + 1 is not x.
        if name in ("add", "sub", "mul", "div", "pow") and len(values) < len(terms[:2]):
            first_constant = terms[0] == CONSTANT_VALUE
            values = [CONSTANT_VALUE, values[0]] if first_constant else [values[0], CONSTANT_VALUE]
        # torch.mul(x, torch.sigmoid(x)) is silu, as with the operator.
        if name == "mul" and len(values) == 2:
            return self._operator(ast.Mult(), *values)
        return _node(name, *values)


def _is_parameter(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(
        re.search(r"\b(Parameter|randn|rand|zeros|ones|empty)$", ast.unparse(node.func))
    )


def _is_module_path(node: ast.expr, terms: dict[str, str]) -> bool:
    """Returns whether a node is a module's path (`torch`, `F`, `torch.nn.functional`) and no
    value has its name.
    """
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id not in terms and node.id != "self"
