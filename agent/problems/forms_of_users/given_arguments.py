"""Classifies the return value of `get_inputs` or `get_init_inputs` from its text: a list, or
arguments of a call.

return {"x": torch.rand(4), "n": 2}      named arguments
return [[torch.rand(4)], {"n": 2}]       positional and named arguments, as in KernelBook and
KernelGym
return torch.rand(4)                     a single argument
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernelwright.agent.problems.forms_of_users.signatures import Signature

CALL_ARGUMENTS = "call_arguments"
"""Placeholder function for a call in texts under completion: `return call_arguments(x, mask=m)`."""
LIST_FUNCTIONS = frozenset({"list", "sorted"})


class ArgumentForm(StrEnum):
    """Kind of an expression's value, as far as the text shows."""

    LIST = "list"
    TUPLE = "tuple"
    DICT = "dict"
    SINGLE = "single"
    """A tensor, a number or a text."""
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CallArguments:
    """Positional and named arguments of a call."""

    args: list[ast.expr]
    named: Mapping[str, ast.expr] = field(default_factory=dict)


def form_of(value: ast.expr, values: Mapping[str, ast.expr]) -> ArgumentForm:
    """Classifies an expression.

    values: expressions of names assigned once, and under `name()` the return value of a function
    in the file.
    """
    match value:
        case ast.Name():
            assigned = values.get(value.id)
            # Without the name itself, `x = x + y` ends the recursion.
            other_values = {name: v for name, v in values.items() if name != value.id}
            return ArgumentForm.UNKNOWN if assigned is None else form_of(assigned, other_values)
        case ast.List() | ast.ListComp():
            return ArgumentForm.LIST
        case ast.Tuple() | ast.GeneratorExp():
            return ArgumentForm.TUPLE
        case ast.Dict() | ast.DictComp():
            return ArgumentForm.DICT
        case ast.Constant():
            return ArgumentForm.NOTHING if value.value is None else ArgumentForm.SINGLE
        case ast.BinOp():
            return _form_of_operation(value, values)
        case ast.IfExp():
            first, second = form_of(value.body, values), form_of(value.orelse, values)
            return first if first == second else ArgumentForm.UNKNOWN
        case ast.Call():
            return _form_of_call(value, values)
    return ArgumentForm.UNKNOWN


def _form_of_operation(value: ast.BinOp, values: Mapping[str, ast.expr]) -> ArgumentForm:
    sides = [form_of(value.left, values), form_of(value.right, values)]
    for shape in (ArgumentForm.LIST, ArgumentForm.TUPLE):
        if shape in sides:
            return shape
    return ArgumentForm.SINGLE if ArgumentForm.SINGLE in sides else ArgumentForm.UNKNOWN


def _form_of_call(call: ast.Call, values: Mapping[str, ast.expr]) -> ArgumentForm:
    """Classifies a call: torch functions and methods of their results return a single tensor."""
    function = ast.unparse(call.func)
    if returned := values.get(f"{function}()"):
        # Local names of the caller mean something else in the called function. Without the
        # function itself, recursion ends.
        functions: dict[str, ast.expr] = {}
        for name, expression in values.items():
            if name.endswith("()") and expression is not returned:
                functions[name] = expression
        return form_of(returned, functions)
    if function in LIST_FUNCTIONS:
        return ArgumentForm.LIST
    if function == "tuple":
        return ArgumentForm.TUPLE
    if function == "dict":
        return ArgumentForm.DICT
    inner: ast.expr = call
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
        inner = inner.func.value
    is_torch = isinstance(inner, ast.Name) and inner.id == "torch"
    gives_several = isinstance(call.func, ast.Attribute) and call.func.attr in {
        "split",
        "chunk",
        "unbind",
        "tensor_split",
    }
    return ArgumentForm.SINGLE if is_torch and not gives_several else ArgumentForm.UNKNOWN


def read_arguments(
    value: ast.expr, values: Mapping[str, ast.expr], signature: Signature | None
) -> CallArguments | ArgumentForm:
    """Returns the arguments that an expression shows; LIST for a list in parameter order;
    otherwise UNKNOWN.

    signature: of the receiving method; None if the text does not show the signature.
    """
    if isinstance(value, ast.Call) and ast.unparse(value.func) == CALL_ARGUMENTS:
        return CallArguments(value.args, {str(k.arg): k.value for k in value.keywords})
    shape = form_of(value, values)
    if shape is ArgumentForm.SINGLE:
        return CallArguments([value])
    if shape is ArgumentForm.NOTHING:
        return CallArguments([])
    if shape is ArgumentForm.DICT:
        named = _entries(value)
        return ArgumentForm.UNKNOWN if named is None else CallArguments([], named)
    if isinstance(value, ast.List | ast.Tuple) and _is_pair(value, values):
        return _of_pair(value, signature)
    if shape is ArgumentForm.TUPLE:
        elements: list[ast.expr] = [ast.Starred(value, ast.Load())]
        if isinstance(value, ast.Tuple):
            elements = value.elts
        return CallArguments(elements)
    return ArgumentForm.LIST if shape is ArgumentForm.LIST else ArgumentForm.UNKNOWN


def _entries(value: ast.expr) -> dict[str, ast.expr] | None:
    """Returns the entries of a dictionary display or `dict(x=...)`; None if a key is not a
    literal text.
    """
    if isinstance(value, ast.Dict):
        keys = [k.value if isinstance(k, ast.Constant) else None for k in value.keys]
        entries = {k: v for k, v in zip(keys, value.values, strict=True) if isinstance(k, str)}
        return entries if len(entries) == len(keys) else None
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "dict" or value.args:
        return None
    if not all(keyword.arg for keyword in value.keywords):
        return None
    return {str(keyword.arg): keyword.value for keyword in value.keywords}


def _is_pair(value: ast.List | ast.Tuple, values: Mapping[str, ast.expr]) -> bool:
    """Returns whether a display may be `[args, kwargs]`."""
    if len(value.elts) != 2:
        return False
    first, second = (form_of(element, values) for element in value.elts)
    return first in (ArgumentForm.LIST, ArgumentForm.TUPLE) and second is ArgumentForm.DICT


def _of_pair(
    value: ast.List | ast.Tuple, signature: Signature | None
) -> CallArguments | ArgumentForm:
    """Decides by the signature between `[args, kwargs]` and two positional arguments; prefers the
    former if both match.
    """
    first, second = value.elts
    named = _entries(second)
    if named is None or not isinstance(first, ast.List | ast.Tuple):
        return ArgumentForm.UNKNOWN
    if signature is None or signature.accepts(len(first.elts), list(named)):
        return CallArguments(first.elts, named)
    return ArgumentForm.LIST if isinstance(value, ast.List) else CallArguments(value.elts)
