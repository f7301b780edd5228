"""Evaluates and names the integers written in a reference.

An integer assigned to a name has this name. An integer inside a tuple is named by its position,
`shape[1]`. An integer in `get_inputs` is named after the argument of `forward` which it
determines: `x.shape[1]` is the second extent of `x`; in `get_init_inputs` after the argument of
the module: `Model.width`. Text only: nothing imports torch.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from kernelwright.bindings import function_at_top

CPU_SIZES = "CPU_SIZES"
"""Module-level dict in a reference: integers used by the CPU rungs instead, such as {"batch_size": 4}."""
TENSOR_FACTORIES = frozenset({"rand", "randn", "zeros", "ones", "empty"})
"""Functions of torch whose arguments are extents, separately or in a tuple."""
SINGLE_EXTENT_FACTORIES = frozenset({"arange", "randperm"})
"""Functions of torch with a single extent as their only argument."""
ELEMENTWISE = frozenset(
    {
        "to",
        "float",
        "half",
        "double",
        "bfloat16",
        "abs",
        "exp",
        "bool",
        "clamp",
        "cuda",
        "contiguous",
    }
)
"""Methods whose result has the shape of the tensor."""
MAX_EXPRESSION_BITS = 63
"""Maximum size of an integer from arithmetic, in bits without the sign; literals are taken as they are written."""


def assigned_name(node: ast.stmt) -> str | None:
    """Returns the only name assigned by a statement, or None."""
    if (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
    ):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def integer(node: ast.AST | None) -> int | None:
    """Evaluates an expression of integers only; None for any other expression.

    Supports sums, differences, products, whole quotients and remainders, powers, shifts and
    signs. Results need at most 63 bits, as sizes of tensors do.
    """
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = integer(node.operand)
        return -value if value is not None and isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp):
        return None
    lhs = integer(node.left)
    right = integer(node.right)
    if lhs is None or right is None:
        return None
    value = _computed(node.op, lhs, right)
    return value if value is not None and value.bit_length() <= MAX_EXPRESSION_BITS else None


def _computed(operator: ast.operator, lhs: int, right: int) -> int | None:
    """Applies an operator to two integers; None for other operators, or if the result would be
    very long.
    """
    match operator:
        case ast.Add():
            return lhs + right
        case ast.Sub():
            return lhs - right
        case ast.Mult():
            return lhs * right
        case ast.FloorDiv() if right:
            return lhs // right
        case ast.Mod() if right:
            return lhs % right
        case ast.Pow() if right >= 0 and (
            abs(lhs) <= 1 or right * (lhs.bit_length() - 1) <= MAX_EXPRESSION_BITS
        ):
            return int(lhs**right)
        case ast.LShift() if 0 <= right <= MAX_EXPRESSION_BITS:
            return lhs << right
        case ast.RShift() if 0 <= right <= MAX_EXPRESSION_BITS:
            return lhs >> right
    return None


def one_name_each(tree: ast.Module) -> ast.Module:
    """Splits `a = b = 1` and `a, b = 1, 2` into an assignment per name, if the values are
    integers.
    """
    body: list[ast.stmt] = []
    for node in tree.body:
        pairs = _pairs(node) if isinstance(node, ast.Assign) else []
        if len(pairs) > 1 and all(integer(value) is not None for _, value in pairs):
            body += [
                ast.Assign(targets=[ast.Name(n, ast.Store())], value=copy.deepcopy(v))
                for n, v in pairs
            ]
        else:
            body.append(node)
    tree.body = body
    return tree


def _pairs(node: ast.Assign) -> list[tuple[str, ast.expr]]:
    pairs: list[tuple[str, ast.expr]] = []
    for target in node.targets:
        if isinstance(target, ast.Name):
            pairs.append((target.id, node.value))
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            if len(target.elts) != len(node.value.elts):
                return []
            pairs += [
                (t.id, v)
                for t, v in zip(target.elts, node.value.elts, strict=True)
                if isinstance(t, ast.Name)
            ]
    return pairs


def inner(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """Returns the integers inside tuples, lists and the two functions for inputs, in the order of
    the text, with their names.
    """
    integers: list[tuple[str, ast.expr]] = []
    functions = [function_at_top(tree, name) for name in ("get_inputs", "get_init_inputs")]
    for node in tree.body:
        name = assigned_name(node)
        value = getattr(node, "value", None)
        if name and name != CPU_SIZES and _holds_integers(value):
            integers += [
                (f"{name}[{i}]", node_within)
                for i, node_within in enumerate(_integers_within(value))
            ]
        elif isinstance(node, ast.FunctionDef) and node in functions:
            integers += _named(tree, node)
    return integers


def _holds_integers(node: ast.AST | None) -> TypeGuard[ast.expr]:
    """Returns whether a node is a tuple, a list, or a repeated list of integers: `[1024] * 16`."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node,)
    return any(isinstance(side, ast.Tuple | ast.List) for side in sides)


def _integers_within(node: ast.AST) -> Iterator[ast.expr]:
    """Returns the largest expressions of integers only, in source order; not a lone number, and not
    `int(64)`, which says that 64 is no size to change (`tools.problem.pinned` writes it).
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and _is_pinned(child):
            continue
        if integer(child) is not None and isinstance(child, ast.expr):
            yield child
        else:
            yield from _integers_within(child)


def _is_pinned(call: ast.Call) -> bool:
    """Returns whether a call is `int(64)`, of a written integer."""
    of_int = isinstance(call.func, ast.Name) and call.func.id == "int"
    return of_int and len(call.args) == 1 and integer(call.args[0]) is not None


# ---------------------------------------------------------------- the names of arguments
def _named(tree: ast.Module, function: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Returns every integer of the function with its argument's name; named by its position in
    the function, `get_inputs[0]`, if no argument depends on it, or if two would share a name.
    """
    names = _names_of_arguments(tree, function)
    often = Counter(names.values())
    nodes = enumerate(_integers_within(function))
    return [
        (
            names[id(node_within)]
            if often[names.get(id(node_within), "")] == 1
            else f"{function.name}[{i}]",
            node_within,
        )
        for i, node_within in nodes
    ]


def _names_of_arguments(tree: ast.Module, function: ast.FunctionDef) -> dict[int, str]:
    """Returns the names of integers, by the identity of their nodes."""
    builds = function.name == "get_init_inputs"
    returned = next((n.value for n in reversed(function.body) if isinstance(n, ast.Return)), None)
    local = {
        name: n.value
        for n in function.body
        if isinstance(n, ast.Assign) and (name := assigned_name(n))
    }
    if isinstance(returned, ast.Name):
        returned = local.get(returned.id)
    names_by_id: dict[int, str] = {}
    for argument, element in _returned_elements(
        tree, returned, "__init__" if builds else "forward"
    ):
        value = local.get(element.id, element) if isinstance(element, ast.Name) else element
        if argument:
            names_by_id |= _names_within(
                value, f"Model.{argument}" if builds else argument, builds, local
            )
    return names_by_id


def _returned_elements(
    tree: ast.Module, returned: ast.expr | None, method: str
) -> list[tuple[str, ast.expr]]:
    """Pairs the returned elements with the parameters of a method of Model."""
    elements = returned.elts if isinstance(returned, ast.List | ast.Tuple) else []
    return [(_parameter(tree, method, index), element) for index, element in enumerate(elements)]


def _parameter(tree: ast.Module, method: str, index: int) -> str:
    """Returns the name of a positional parameter of a method of Model; `more[1]` for `*more`;
    empty if there is none.
    """
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    function = (
        next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == method), None)
        if model
        else None
    )
    if function is None:
        return ""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][1:]
    if index < len(names):
        return names[index]
    return f"{function.args.vararg.arg}[{index - len(names)}]" if function.args.vararg else ""


def _names_within(
    value: ast.expr, argument: str, builds: bool, local: dict[str, ast.expr]
) -> dict[int, str]:
    """Returns the integers of an argument: a plain integer, integers inside a tuple, or those of
    the call that makes a tensor.

    local: assignments in the function, by name.
    """
    if integer(value) is not None:
        return {id(value): argument if builds else f"forward.{argument}"}
    if isinstance(value, ast.List | ast.Tuple | ast.Dict) and any(
        isinstance(n, ast.Call) for n in ast.walk(value)
    ):
        within = [
            _names_within(entry, f"{argument}[{key}]", builds, local)
            for key, entry in _entries(value)
        ]
        return {key: name for names in within for key, name in names.items()}
    if isinstance(value, ast.List | ast.Tuple):
        return {
            id(element): f"{argument}[{i}]" for i, element in enumerate(_integers_within(value))
        }
    numbered = {
        id(element): f"{argument}.number[{i}]" for i, element in enumerate(_integers_within(value))
    }
    call = _maker(value, local)
    return numbered | (_of_a_call(call, argument) if call is not None else {})


def _entries(value: ast.List | ast.Tuple | ast.Dict) -> list[tuple[str, ast.expr]]:
    """Returns the elements of a literal list, tuple or dictionary, by their indices or keys."""
    if isinstance(value, ast.Dict):
        keys = [str(key.value) if isinstance(key, ast.Constant) else "" for key in value.keys]
        return list(zip(keys, value.values, strict=True))
    return [(str(index), element) for index, element in enumerate(value.elts)]


def _maker(value: ast.expr, local: dict[str, ast.expr]) -> ast.Call | None:
    """Returns the call that makes a tensor and determines its shape, below arithmetic with numbers
    and elementwise methods."""
    if isinstance(value, ast.BinOp):
        return _maker(value.left, local) or _maker(value.right, local)
    if isinstance(value, ast.Name):
        return _maker(local[value.id], {}) if value.id in local else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    return _maker(value.func.value, local) if value.func.attr in ELEMENTWISE else value


def _of_a_call(call: ast.Call, argument: str) -> dict[int, str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    extents: list[ast.expr] = []
    assigned: dict[int, str] = {}
    if name in TENSOR_FACTORIES:
        extents = (
            call.args[0].elts
            if len(call.args) == 1 and isinstance(call.args[0], ast.Tuple | ast.List)
            else call.args
        )
    elif name in SINGLE_EXTENT_FACTORIES and len(call.args) == 1:
        extents = call.args
    elif name in ("randint", "full") and (
        sizes := [a for a in call.args if isinstance(a, ast.Tuple | ast.List)]
    ):
        extents = sizes[0].elts
        bounds = call.args[: call.args.index(sizes[0])] if name == "randint" else []
        assigned = {
            id(a): f"{argument}.{b}"
            for a, b in zip(reversed(bounds), ("high", "low"), strict=False)
        }
    return assigned | {id(extent): f"{argument}.shape[{i}]" for i, extent in enumerate(extents)}
