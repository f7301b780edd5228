"""The integers that are written in a reference: what an expression of integers comes to, and what each one is called.

An integer with a name of its own is called by it. One inside a tuple is called by its place, `shape[1]`. One in
`get_inputs` is called after the argument of `forward` that it makes: `x.shape[1]` is the second extent of `x`; one in
`get_init_inputs` after the argument of the module: `Model.width`. Text only: nothing here imports torch.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from kernelwright.bindings import function_at_top

CPU_SIZES = "CPU_SIZES"
"""Module-level dict in a reference: the integers that the CPU rungs use instead, such as {"batch_size": 4}."""
TENSOR_FACTORIES = frozenset({"rand", "randn", "zeros", "ones", "empty"})
"""Functions of torch whose arguments are extents, one each or all in a tuple."""
SINGLE_EXTENT_FACTORIES = frozenset({"arange", "randperm"})
"""Functions of torch whose only argument is the one extent."""
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
"""Methods after which a tensor has the shape that it had."""
MAX_INTEGER_BITS = 63
"""Longest integer that arithmetic may come to, in bits without the sign; literals are taken as they are written."""


def assigned_name(node: ast.stmt) -> str | None:
    """The one name that a statement assigns, or None."""
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
    """What an expression of integers only comes to; None where it is anything else.

    Sums, differences, products, whole quotients and remainders, powers, shifts and signs are read. What is computed may
    need at most 63 bits, as no size of a tensor has more.
    """
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = integer(node.operand)
        return -value if value is not None and isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp):
        return None
    left, right = integer(node.left), integer(node.right)
    if left is None or right is None:
        return None
    value = _computed(node.op, left, right)
    return value if value is not None and value.bit_length() <= MAX_INTEGER_BITS else None


def _computed(operator: ast.operator, left: int, right: int) -> int | None:
    """One operator on two integers; None where it is not one of integers, or its result would be very long."""
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right:
            return left // right
        case ast.Mod() if right:
            return left % right
        case ast.Pow() if right >= 0 and (
            abs(left) <= 1 or right * (left.bit_length() - 1) <= MAX_INTEGER_BITS
        ):
            return int(left**right)
        case ast.LShift() if 0 <= right <= MAX_INTEGER_BITS:
            return left << right
        case ast.RShift() if 0 <= right <= MAX_INTEGER_BITS:
            return left >> right
    return None


def one_name_each(tree: ast.Module) -> ast.Module:
    """`a = b = 1` and `a, b = 1, 2` as one assignment a name, where the values are integers."""
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
    """The integers inside tuples, lists and the two functions that give inputs, in the order of the text, each with
    what it is called.
    """
    found: list[tuple[str, ast.expr]] = []
    functions = [function_at_top(tree, name) for name in ("get_inputs", "get_init_inputs")]
    for node in tree.body:
        name = assigned_name(node)
        value = getattr(node, "value", None)
        if name and name != CPU_SIZES and _holds_integers(value):
            found += [(f"{name}[{i}]", one) for i, one in enumerate(_integers_within(value))]
        elif isinstance(node, ast.FunctionDef) and node in functions:
            found += _named(tree, node)
    return found


def _holds_integers(node: ast.AST | None) -> TypeGuard[ast.expr]:
    """A tuple, a list, or one repeated: `[1024] * 16`."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node,)
    return any(isinstance(side, ast.Tuple | ast.List) for side in sides)


def _integers_within(node: ast.AST) -> Iterator[ast.expr]:
    """The largest expressions of integers only, in the order of the text. A lone number is not inside anything."""
    for child in ast.iter_child_nodes(node):
        if integer(child) is not None and isinstance(child, ast.expr):
            yield child
        else:
            yield from _integers_within(child)


# ---------------------------------------------------------------- the names of arguments
def _named(tree: ast.Module, function: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Every integer of the function with its argument's name; by its place in the function, `get_inputs[0]`, where
    it belongs to no argument, or where two would have one name.
    """
    names = _names_of_arguments(tree, function)
    often = Counter(names.values())
    places = enumerate(_integers_within(function))
    return [
        (names[id(one)] if often[names.get(id(one), "")] == 1 else f"{function.name}[{i}]", one)
        for i, one in places
    ]


def _names_of_arguments(tree: ast.Module, function: ast.FunctionDef) -> dict[int, str]:
    """What an integer is called, by the identity of its node."""
    builds = function.name == "get_init_inputs"
    returned = next((n.value for n in reversed(function.body) if isinstance(n, ast.Return)), None)
    local = {
        name: n.value
        for n in function.body
        if isinstance(n, ast.Assign) and (name := assigned_name(n))
    }
    if isinstance(returned, ast.Name):
        returned = local.get(returned.id)
    found: dict[int, str] = {}
    for argument, element in _given(tree, returned, "__init__" if builds else "forward"):
        value = local.get(element.id, element) if isinstance(element, ast.Name) else element
        if argument:
            found |= _names_within(
                value, f"Model.{argument}" if builds else argument, builds, local
            )
    return found


def _given(tree: ast.Module, returned: ast.expr | None, method: str) -> list[tuple[str, ast.expr]]:
    """What a list gives to which parameter of a method of Model."""
    elements = returned.elts if isinstance(returned, ast.List | ast.Tuple) else []
    return [(_parameter(tree, method, place), element) for place, element in enumerate(elements)]


def _parameter(tree: ast.Module, method: str, place: int) -> str:
    """The name of a positional parameter of a method of Model; `more[1]` of `*more`; empty where there is none."""
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    found = (
        next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == method), None)
        if model
        else None
    )
    if found is None:
        return ""
    names = [a.arg for a in (*found.args.posonlyargs, *found.args.args)][1:]
    if place < len(names):
        return names[place]
    return f"{found.args.vararg.arg}[{place - len(names)}]" if found.args.vararg else ""


def _names_within(
    value: ast.expr, argument: str, builds: bool, local: dict[str, ast.expr]
) -> dict[int, str]:
    """Of one argument: a plain integer, an integer inside a tuple, or the integers of the call that makes a tensor.

    `local`: what the function assigns, by name.
    """
    if integer(value) is not None:
        return {id(value): argument if builds else f"forward.{argument}"}
    if isinstance(value, ast.List | ast.Tuple | ast.Dict) and any(
        isinstance(n, ast.Call) for n in ast.walk(value)
    ):
        within = [
            _names_within(one, f"{argument}[{place}]", builds, local)
            for place, one in _entries(value)
        ]
        return {key: name for names in within for key, name in names.items()}
    if isinstance(value, ast.List | ast.Tuple):
        return {id(one): f"{argument}[{i}]" for i, one in enumerate(_integers_within(value))}
    found = {id(one): f"{argument}.number[{i}]" for i, one in enumerate(_integers_within(value))}
    call = _maker(value, local)
    return found | (_of_a_call(call, argument) if call is not None else {})


def _entries(value: ast.List | ast.Tuple | ast.Dict) -> list[tuple[str, ast.expr]]:
    """The elements of what is written as a list, a tuple or a dictionary, by their places or keys."""
    if isinstance(value, ast.Dict):
        keys = [str(key.value) if isinstance(key, ast.Constant) else "" for key in value.keys]
        return list(zip(keys, value.values, strict=True))
    return [(str(place), one) for place, one in enumerate(value.elts)]


def _maker(value: ast.expr, local: dict[str, ast.expr]) -> ast.Call | None:
    """The call that makes a tensor and gives it its shape: behind arithmetic with numbers and elementwise methods."""
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
    found: dict[int, str] = {}
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
        found = {
            id(a): f"{argument}.{b}"
            for a, b in zip(reversed(bounds), ("high", "low"), strict=False)
        }
    return found | {id(extent): f"{argument}.shape[{i}]" for i, extent in enumerate(extents)}
