"""Writes constructor defaults into `get_init_inputs`, so that the judge can vary the sizes among
them.
"""

from __future__ import annotations

import ast

from kernelwright.agent.problems.forms_of_users.signatures import method_of
from kernelwright.agent.problems.syntax_search import first_definition
from kernelwright.bindings import function_at_top
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import parse


def with_defaults(source: str) -> str:
    """Appends the constructor's remaining defaults to the list returned by `get_init_inputs`.

    Unchanged unless all defaults are plain values and at least one is an integer.
    """
    tree = parse(source)
    function = function_at_top(tree, "get_init_inputs")
    model = first_definition(tree.body, ast.ClassDef, "Model")
    init = method_of(model, "__init__") if model is not None else None
    last = function.body[-1] if function is not None else None
    if init is None or not isinstance(last, ast.Return) or not isinstance(last.value, ast.List):
        return source
    parameters, elements = init.args, last.value.elts
    required = len(parameters.args) - 1 - len(parameters.defaults)
    defaults = parameters.defaults[max(len(elements) - required, 0) :]
    is_plain = all(isinstance(d, ast.Constant | ast.UnaryOp) for d in defaults)
    has_size = any(isinstance(d, ast.Constant) and type(d.value) is int for d in defaults)
    is_complete = len(elements) + len(defaults) == len(parameters.args) - 1
    has_star = any(isinstance(e, ast.Starred) for e in elements)
    if (
        parameters.vararg
        or parameters.posonlyargs
        or has_star
        or not (is_plain and has_size and is_complete)
    ):
        return source
    if last.value.end_lineno != last.value.lineno:
        return source
    return with_replacements(
        source, [(last.value, ast.unparse(ast.List([*elements, *defaults], ast.Load())))]
    )
