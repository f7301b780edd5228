"""Names for the outputs of reduction kernels, by the reduction that computes each output."""

from __future__ import annotations

import ast
import re

from kernelwright.policies.inductor.writing.helpers import HELPER_NAMES
from kernelwright.policies.inductor.writing.words.naming import RESULTS_OF_TUPLES

REDUCTION_WORDS = {
    "tl.sum": "total", "row_maximum": "largest", "row_minimum": "smallest", "row_product": "product",
    "any_of": "found",
}  # fmt: skip
"""Function -> name of its result."""
MAX_STEPS_FOLLOWED = 8
"""Maximum number of assignments followed from a stored value back to its source."""


def stored_words(function: ast.FunctionDef) -> dict[str, str]:
    """Returns names (`mean`, `largest`) of the outputs a reduction computes, for an unrewritten
    kernel.
    """
    values: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                values[target] = value
    words = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store":
            pointer = re.match(r"\w*out_ptr\d+", ast.unparse(node.args[0]))
            if pointer and (word := _word(node.args[1], values)):
                words[pointer[0]] = word
    return words


def _pairs(node: ast.Assign) -> list[tuple[str, ast.expr]]:
    """Returns the assigned names and values; several results of a call as subscripts of the call."""
    target = node.targets[0]
    if isinstance(target, ast.Name):
        return [(target.id, node.value)]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Call):
        elements = enumerate(target.elts)
        return [
            (e.id, ast.Subscript(node.value, ast.Constant(i)))
            for i, e in elements
            if isinstance(e, ast.Name)
        ]
    return []


def _word(node: ast.expr, values: dict[str, ast.expr]) -> str:
    for _ in range(MAX_STEPS_FOLLOWED):
        if isinstance(node, ast.Name) and node.id in values:
            node = values[node.id]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
            several = RESULTS_OF_TUPLES.get(_called(node.value), ())
            if several and isinstance(node.slice, ast.Constant):
                return several[int(ast.literal_eval(node.slice))]
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "to"
        ):
            node = node.func.value
        else:
            break
    return REDUCTION_WORDS.get(_called(node), "") if isinstance(node, ast.Call) else ""


def _called(call: ast.Call) -> str:
    """Returns the called function's name in drafts."""
    name = ast.unparse(call.func)
    return HELPER_NAMES.get(name.removeprefix("triton_helpers."), name)
