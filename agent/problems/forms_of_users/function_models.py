"""Wraps a plain function as the forward of a module without weights."""

from __future__ import annotations

import ast
import copy
import textwrap

from kernelwright.agent.problems.forms_of_users.file_parts import (
    CallSite,
    FileParts,
    statements_for,
)
from kernelwright.agent.problems.forms_of_users.text_edits import line_mark
from kernelwright.agent.problems.syntax_search import names_loaded_by_all
from kernelwright.agent.problems.tritonbench_cases import OffDevice, plain_argument


def is_operator(name: str) -> bool:
    """Returns whether a function may be an operator: not a test, not private, not `main`."""
    return not (name.startswith(("test", "_", "get_")) or name == "main")


def model_of_function(
    functions: dict[str, ast.FunctionDef], parts: FileParts, has_inputs: bool
) -> list[str] | None:
    """Returns the source of `Model`, and of `get_inputs` if the file has none; None if no
    function is called.

    has_inputs: the file names its inputs, so the last function receives them.
    """
    if has_inputs:
        name, function = list(functions.items())[-1]
        return [_model_of_signature(name, function)]
    for call in parts.calls(parts.aliases(functions)):
        if (definitions := _of_call(call, functions)) is not None:
            return definitions
    return None


def _model_of_signature(name: str, function: ast.FunctionDef) -> str:
    """Returns a module whose forward has the function's signature, including defaults."""
    parameters = copy.deepcopy(function.args)
    parameters.kwarg = None
    named = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
    for parameter in [*named, *filter(None, [parameters.vararg])]:
        parameter.annotation = None
    passed = [a.arg for a in (*parameters.posonlyargs, *parameters.args)]
    if parameters.vararg:
        passed.append(f"*{parameters.vararg.arg}")
    passed += [f"{a.arg}={a.arg}" for a in parameters.kwonlyargs]
    return _model([ast.unparse(parameters)], f"{name}({', '.join(passed)})", line_mark(function))


def _of_call(call: CallSite, functions: dict[str, ast.FunctionDef]) -> list[str] | None:
    """Returns the definitions for a call: plain arguments are written out, tensors become inputs."""
    node = OffDevice().visit(copy.deepcopy(call.node))
    name = ast.unparse(node.func)
    function = functions.get(name)
    arguments = [] if function is None else [*function.args.posonlyargs, *function.args.args]
    parameters = [a.arg for a in arguments]
    inputs: dict[str, ast.expr] = {}

    def passed(parameter: str, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Starred):
            inputs["*arguments"] = value
            return ast.Starred(ast.Name("arguments", ast.Load()), ast.Load())
        plain = plain_argument(value, tuple(call.before))
        if plain is not None:
            return plain
        input_name = f"{parameter}_" if parameter in {name, "self", "torch"} else parameter
        inputs[input_name] = value
        return ast.Name(input_name, ast.Load())

    if any(keyword.arg is None for keyword in node.keywords):
        return None
    # Positional arguments beyond the parameters (of *args) get numbered names.
    names = list(parameters)
    names += [f"input_{index + 1}" for index in range(len(parameters), len(node.args))]
    node.args = list(map(passed, names, node.args))
    node.keywords = [ast.keyword(k.arg, passed(str(k.arg), k.value)) for k in node.keywords]
    if not inputs:
        return None
    lines = statements_for(call.before, names_loaded_by_all(inputs.values()))
    lines += [line_mark(call.node), f"return [{', '.join(map(ast.unparse, inputs.values()))}]"]
    get_inputs = "def get_inputs():\n" + textwrap.indent("\n".join(lines), "    ")
    return [_model(list(inputs), ast.unparse(node), line_mark(call.node)), get_inputs]


def _model(parameters: list[str], result: str, mark: str) -> str:
    """Returns a class whose forward returns an expression; `mark` is the comment with the origin
    line.
    """
    lines = [
        "class Model(torch.nn.Module):",
        f"    def forward({', '.join(['self', *parameters])}):",
        f"        {mark}",
        f"        return {result}",
    ]
    return "\n".join(lines)
