"""Wraps a function that launches Triton kernels as a candidate: `my_kernel.py:relu`.

    def relu(x): ...                    def relu(x): ...

                                        class ModelNew(torch.nn.Module):
                                            def forward(self, x):
                                                return relu(x)

Parameters with the names of weights of the problem's `Model` or of its constructor arguments
receive these; the others receive the inputs of forward in order. Text to text: the kernel's file
is not run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from kernelwright.agent.contracts.reference_facts import SignatureParameter, facts_of
from kernelwright.agent.problems.syntax_search import definitions, first_definition
from kernelwright.bindings import bound_names
from kernelwright.errors import InputError
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.report import Value
from kernelwright.tools.source import ENTRY_POINT, kernels

WEIGHTS_FUNCTION = "model_of_the_problem"
"""Function in a wrapped file; returns the class whose constructor creates the weights."""


class ProblemInterface(Value):
    """Names and counts of the values passed by a problem to a function."""

    input_count: int
    weights: tuple[str, ...] = ()
    """Names of parameters and buffers of `Model`."""
    forward: tuple[SignatureParameter, ...] = ()
    constructor: tuple[SignatureParameter, ...] = ()


def interface_of(problem: Problem) -> ProblemInterface:
    """Returns the interface of a problem, determined in a separate process.

    Raises ProblemError.
    """
    return ProblemInterface.model_validate(
        reference_trials().run(f"{__name__}:describe_here", problem, {})
    )


def describe_here(problem: Problem) -> JsonValue:
    """Entry point in the reference process: returns the `ProblemInterface` as JSON."""
    from kernelwright.tools.references.input_spec import input_spec
    from kernelwright.tools.references.small_sizes import shrink

    spec = input_spec(problem)
    facts = facts_of(problem, shrink(problem).sizes)
    interface = ProblemInterface(
        input_count=len(spec.inputs),
        weights=tuple(weight.name for weight in spec.weights),
        forward=facts.forward,
        constructor=facts.constructor,
    )
    return interface.model_dump(mode="json")


def split_name(argument: Path) -> tuple[Path, str]:
    """Splits `my_kernel.py:relu` into path and function; the function is empty if absent."""
    path, colon, name = str(argument).rpartition(":")
    if argument.exists() or not colon or not name.isidentifier():
        return argument, ""
    return Path(path), name


def as_candidate(source: str, path: Path, name: str, problem: Problem) -> str:
    """Returns the text with a ModelNew calling the function.

    name: the function; empty selects the only function launching kernels. A text with a ModelNew,
    or without such a function, is returned unchanged.

    Raises InputError if the function is missing, is a kernel, or does not accept the problem's
    values.
    """
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    if not name and ENTRY_POINT in bound_names(tree):
        return source
    jitted = set(kernels(source))
    launching = launching_functions(tree, jitted)
    if not name and not launching:
        return source
    if not name and len(launching) > 1:
        raise InputError(
            f"{path} has no class {ENTRY_POINT}, and several functions: name one, such as {_named(path, launching)}"
        )
    function = _function(tree, path, name or launching[0], jitted, launching)
    return _wrapped(source, function, problem)


def launching_functions(tree: ast.Module, jitted: set[str]) -> list[str]:
    """Returns the public functions launching a kernel, directly or through other functions, in
    order.
    """
    functions = definitions(tree.body, ast.FunctionDef)
    launching = set(jitted)
    # A function that mentions a launching function launches, too: repeat until none is added.
    is_complete = False
    while not is_complete:
        is_complete = True
        for name, function in functions.items():
            if name not in launching and _mentions(function, launching):
                launching.add(name)
                is_complete = False
    public = [name for name in functions if not name.startswith(("_", "test")) and name != "main"]
    return [name for name in public if name in launching - jitted]


def _mentions(node: ast.FunctionDef, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _named(path: Path, names: Sequence[str]) -> str:
    return ", ".join(f"{path}:{name}" for name in names)


def _function(
    tree: ast.Module, path: Path, name: str, jitted: set[str], launching: Sequence[str]
) -> ast.FunctionDef:  # fmt: skip
    """Returns the named function.

    Raises InputError if missing, or if the function is a kernel.
    """
    choice = (
        f": name {_named(path, launching)}"
        if launching
        else ": it has none that launches a Triton kernel"
    )
    function = first_definition(tree.body, ast.FunctionDef, name)
    if function is None:
        raise InputError(f"{path} has no function {name} at its top level{choice}")
    if name in jitted:
        raise InputError(
            f"{name} of {path} is a Triton kernel, and what launches it is judged{choice}"
        )
    return function


def _wrapped(source: str, function: ast.FunctionDef, problem: Problem) -> str:
    interface = interface_of(problem)
    weights = _weight_names(interface.weights)
    settings = [parameter.name for parameter in interface.constructor]
    forward_names = [parameter.name for parameter in interface.forward[: interface.input_count]]
    inputs = [name for name in forward_names if name.isidentifier()]
    if len(inputs) != interface.input_count:
        inputs = [f"input_{index}" for index in range(interface.input_count)]
    values = _values(function, inputs, weights, settings, problem)
    base = f"{WEIGHTS_FUNCTION}()" if interface.weights else "torch.nn.Module"
    model = _model_text(problem) if interface.weights else ""
    constructor = _constructor(interface.constructor, values, bool(interface.weights))
    return (
        f"{source.rstrip()}\n\n\nimport torch\n\n\n{model}class {ENTRY_POINT}({base}):\n{constructor}"
        f"    def forward(self, {', '.join(inputs)}):\n        return {function.name}({', '.join(values)})\n"
    )


def _weight_names(names: Sequence[str]) -> dict[str, str]:
    """Returns the weight for each parameter name: `fc_weight`, and `weight` if only one weight
    has this name.
    """
    last = [name.rpartition(".")[2] for name in names]
    by_parameter: dict[str, str] = {}
    for short, full in zip(last, names, strict=True):
        if last.count(short) == 1:
            by_parameter[short] = full
    for name in names:
        by_parameter[name.replace(".", "_")] = name
    return by_parameter


def _values(
    function: ast.FunctionDef, inputs: Sequence[str], weights: Mapping[str, str], settings: Sequence[str],
    problem: Problem,
) -> list[str]:  # fmt: skip
    """Returns the argument for each parameter of the function.

    Raises InputError if they do not match.
    """
    arguments = function.args
    parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    required = len(parameters) - len(arguments.defaults)
    remaining_inputs = list(inputs)
    values: list[str] = []
    for index, parameter in enumerate(parameters):
        is_input = parameter in inputs
        if parameter in weights and not is_input:
            values.append(f"{parameter}=self.{weights[parameter]}")
        elif parameter in settings and not is_input:
            values.append(f"{parameter}=self.{parameter}_argument")
        elif remaining_inputs:
            value = remaining_inputs.pop(0)
            # After a keyword argument, Python allows keyword arguments only.
            by_name = any("=" in earlier for earlier in values)
            values.append(f"{parameter}={value}" if by_name else value)
        elif index < required:
            raise InputError(_misfit(function, parameters, inputs, weights, problem))
    if remaining_inputs and arguments.vararg is not None:
        return [*values, *remaining_inputs]
    if remaining_inputs:
        raise InputError(_misfit(function, parameters, inputs, weights, problem))
    return values


def _misfit(
    function: ast.FunctionDef, parameters: Sequence[str], inputs: Sequence[str], weights: Mapping[str, str],
    problem: Problem,
) -> str:  # fmt: skip
    weights_note = (
        f", and has the weights {', '.join(sorted(set(weights.values())))}" if weights else ""
    )
    return (
        f"{function.name}({', '.join(parameters)}) does not fit: {problem.name} gives {', '.join(inputs) or 'no input'}"
        f"{weights_note}; parameters take weights by name and inputs in order"
    )


def _constructor(
    parameters: Sequence[SignatureParameter], values: Sequence[str], has_weights: bool
) -> str:
    """Returns a constructor with the problem's parameters, which stores the arguments used by the
    function.
    """
    stored_settings: list[str] = []
    signature: list[str] = []
    for parameter in parameters:
        name = parameter.name
        if any(value.endswith(f"=self.{name}_argument") for value in values):
            stored_settings.append(name)
        is_required = parameter.default is None and parameter.written_out
        signature.append(name if is_required else f"{name}={parameter.default}")
    if not stored_settings:
        passed = "*arguments, **named" if has_weights else ""
        return (
            f"    def __init__(self, *arguments, **named):\n        super().__init__({passed})\n\n"
        )
    passed = ", ".join(p.name for p in parameters) if has_weights else ""
    lines = [f"def __init__(self, {', '.join(signature)}):", f"    super().__init__({passed})"]
    lines += [f"    self.{name}_argument = {name}" for name in stored_settings]
    return "".join(f"    {line}\n" for line in lines) + "\n"


def _model_text(problem: Problem) -> str:
    """Returns the source of a function with the problem's definitions; the function returns its
    Model.
    """
    tree = parse_module(problem.source)
    definition = parse_module(f"def {WEIGHTS_FUNCTION}():\n    return Model").body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.body = [
        *(node for node in tree.body if not _is_future_import(node)),
        *definition.body,
    ]
    return ast.unparse(ast.fix_missing_locations(definition)) + "\n\n\n"


def _is_future_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
