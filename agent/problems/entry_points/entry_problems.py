"""Writes the text of a problem for an entry point and its arguments, and completes the text to
KernelBench form.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.agent.problems.entry_points.installed_objects import (
    InstalledObject,
    find_home,
    find_object,
    signature_of_object,
)
from kernelwright.agent.problems.entry_points.option_values import (
    NamedSizes,
    RebuiltArguments,
    read_init,
    read_inputs,
)
from kernelwright.agent.problems.forms_of_users.forms import complete_reference
from kernelwright.agent.problems.forms_of_users.normal_form import normal_form
from kernelwright.agent.problems.forms_of_users.signatures import signature_of_method
from kernelwright.bindings import bound_names
from kernelwright.source_lines import NO_FILE
from kernelwright.tools.problem import ProblemError, parse

EXAMPLE = "--input x=2x128x512:bf16"


def reference_of_object(dotted: str, init: Sequence[str], inputs: Sequence[str]) -> str:
    """Returns the reference for a class or function of an installed package.

    Raises ProblemError.
    """
    entry = find_object(dotted)
    sizes = NamedSizes(reserved_names={entry.name, "torch"})
    init_arguments = read_init(list(init), sizes)
    input_arguments = read_inputs(list(inputs), sizes)
    return text_of_object(entry, dotted, init_arguments, input_arguments, sizes)


def text_of_object(
    entry: InstalledObject,
    dotted: str,
    init: RebuiltArguments,
    inputs: RebuiltArguments,
    sizes: NamedSizes,
    definitions: str = "",
) -> str:
    """Returns the completed text for an installed object.

    Raises ProblemError if the arguments do not match its signature.

    `definitions` is source text for names used in the arguments; without it, imports are added.
    """
    _check_arguments(entry, dotted, init, inputs)
    imports = [entry.import_line]
    if not definitions:
        imports += ["import torch", *_imports_of(init, entry, dotted, sizes.values)]
    lines = [
        f'"""{dotted}."""',
        "",
        NO_FILE.directive,
        *dict.fromkeys(imports),
        definitions,
        *sizes.lines,
        "",
    ]
    head = "\n".join(lines)
    if not entry.is_class:
        return _function_text(head, entry, init, inputs)
    names = _names_of_inputs(inputs, signature_of_object(entry.value.forward), skip=1)
    run = [f"{name} = {value}" for name, value in zip(names, inputs.args, strict=False)]
    call = ", ".join(
        [*names[: len(inputs.args)], *(f"{name}={text}" for name, text in inputs.named.items())]
    )
    run += [
        f"model = {entry.name}({init.text}){init.preparation or _conversion(inputs)}",
        f"model({call})",
    ]
    return complete_reference(head, entry.name, "\n".join(run))


def reference_of_text(source: str, entry: str, init: Sequence[str], inputs: Sequence[str]) -> str:
    """Returns the reference for a class, function or value in a file's text.

    Raises ProblemError.
    """
    tree = parse(source)
    defined = [n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    names = set(bound_names(tree))
    if entry and entry not in names:
        raise ProblemError(
            f"it defines no {entry}: it has {', '.join(defined) or 'no class and no function'}"
        )
    if not init and not inputs:
        return complete_reference(source, entry)
    sizes = NamedSizes(reserved_names=names)
    init_arguments, input_arguments = read_init(list(init), sizes), read_inputs(list(inputs), sizes)
    return completed_text(
        source, entry or _last_entry(tree), init_arguments, input_arguments, sizes
    )


def completed_text(
    source: str, name: str, init: RebuiltArguments, inputs: RebuiltArguments, sizes: NamedSizes
) -> str:
    """Returns the reference for a class or function defined in a text.

    Raises ProblemError.
    """
    tree = parse(source)
    text = "\n".join([source.rstrip(), "", "", NO_FILE.directive, *sizes.lines]) + "\n"
    definition = next((n for n in tree.body if getattr(n, "name", "") == name), None)
    if isinstance(definition, ast.FunctionDef):
        call = ", ".join(part for part in (inputs.text, init.text) if part)
        return complete_reference(text, name, f"{name}({call})")
    if isinstance(definition, ast.ClassDef):
        _check_class(tree, definition, init, inputs)
    run = [f"model = {name}({init.text}){init.preparation or _conversion(inputs)}"]
    if inputs.args or inputs.named:
        run.append(f"model({inputs.text})")
    return complete_reference(text, name, "\n".join(run))


def _check_class(
    tree: ast.Module, cls: ast.ClassDef, init: RebuiltArguments, inputs: RebuiltArguments
) -> None:
    """Raises ProblemError if the constructor or forward of a class in the file does not accept
    the arguments.
    """
    for method, option, arguments in (("__init__", "--init", init), ("forward", "--input", inputs)):
        signature = signature_of_method(tree, cls, method)
        if signature is None or signature.accepts(len(arguments.args), list(arguments.named)):
            continue
        if not arguments.args and not arguments.named and method == "forward":
            continue  # the file says them
        parameters = ", ".join([*signature.positional, *signature.keyword_only]) or "nothing"
        raise ProblemError(
            f"{method} of {cls.name} takes {parameters}: name each argument with {option}"
        )


def _conversion(inputs: RebuiltArguments) -> str:
    """Returns a `.to(dtype)` call that converts the weights to the inputs' dtype; empty for
    float32 or mixed dtypes.
    """
    dtypes = sorted(inputs.dtypes)
    return f".to({dtypes[0]})" if len(dtypes) == 1 and dtypes != ["torch.float32"] else ""


def _last_entry(tree: ast.Module) -> str:
    """Returns the last class with a forward, otherwise the last function.

    Raises ProblemError if there is neither.
    """
    classes: list[str] = []
    functions: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and "def forward" in ast.unparse(node):
            classes.append(node.name)
        elif isinstance(node, ast.FunctionDef):
            functions.append(node.name)
    if not classes and not functions:
        raise ProblemError(
            "it defines no module and no function: name a class of it with FILE:CLASS"
        )
    return (classes or functions)[-1]


def _names_of_inputs(
    inputs: RebuiltArguments, signature: inspect.Signature | None, skip: int
) -> list[str]:
    """Returns parameter names for positional inputs."""
    parameters = [] if signature is None else list(signature.parameters.values())
    positional = [p.name for p in parameters if p.kind < p.VAR_POSITIONAL]
    names = positional[skip:][: len(inputs.args)]
    if not names and len(inputs.args) == 1:
        return ["x"]
    names += [f"input_{index + 1}" for index in range(len(names), len(inputs.args))]
    return names


def _function_text(
    head: str, entry: InstalledObject, plain: RebuiltArguments, inputs: RebuiltArguments
) -> str:
    """Returns the text of a problem for a function: `--init` gives its non-tensor arguments."""
    names = _names_of_inputs(inputs, signature_of_object(entry.value), skip=0)
    names = [
        name if name not in (entry.name, "torch", *inputs.named) else f"{name}_" for name in names
    ]
    passed = [*names, *plain.args, *(f"{name}={name}" for name in inputs.named)]
    passed += [f"{name}={text}" for name, text in plain.named.items()]
    parameters = ", ".join(["self", *names, *inputs.named])
    values = ", ".join([*inputs.args, *inputs.named.values()])
    return normal_form(
        f"{head}\n\nclass Model(torch.nn.Module):\n    def forward({parameters}):\n"
        f"        return {entry.name}({', '.join(passed)})\n\n\n"
        f"def get_inputs():\n    return [{values}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def _imports_of(
    arguments: RebuiltArguments, entry: InstalledObject, dotted: str, sizes: Mapping[str, int]
) -> list[str]:
    """Returns import statements for names in the constructor's arguments.

    Raises ProblemError for unknown names.
    """
    module = sys.modules[getattr(entry.value, "__module__", "") or entry.module]
    imports: list[str] = []
    for text in [*arguments.args, *arguments.named.values()]:
        for name in _names_in(text, sizes):
            home = find_home(name, module)
            if not home:
                raise ProblemError(
                    f"--init {text}: {dotted} knows no {name}: quote it where it is a text"
                )
            imports.append(f"from {home} import {name}")
    return imports


def _names_in(text: str, sizes: Mapping[str, int]) -> list[str]:
    """Returns the names that an expression reads, without sizes."""
    tree = ast.parse(text, mode="eval")
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in ("torch", *sizes)]
    return [n.id for n in names]


def _check_arguments(
    entry: InstalledObject, dotted: str, init: RebuiltArguments, inputs: RebuiltArguments
) -> None:
    """Raises ProblemError with the expected parameters if the object does not accept the
    arguments.
    """
    if not inputs.args and not inputs.named:
        takes = signature_of_object(entry.value.forward if entry.is_class else entry.value)
        shown = "" if takes is None else f", it takes {_shown(takes, skip=int(entry.is_class))}"
        raise ProblemError(f"{dotted} needs inputs{shown}: name each, such as {EXAMPLE}")
    if not entry.is_class:
        return
    constructor = signature_of_object(entry.value)
    if constructor is not None and not _binds(constructor, init):
        parameters = _shown(constructor, skip=0) or "no arguments"
        raise ProblemError(
            f"{dotted} is built with {parameters}: name them with --init{_hint(constructor)}"
        )
    forward = signature_of_object(entry.value.forward)
    if forward is not None and not _binds(
        forward, RebuiltArguments(["self", *inputs.args], inputs.named)
    ):
        raise ProblemError(
            f"{dotted} takes {_shown(forward, skip=1)}: name each input, such as {EXAMPLE}"
        )


def _binds(signature: inspect.Signature, arguments: RebuiltArguments) -> bool:
    try:
        signature.bind(*arguments.args, **arguments.named)
    except TypeError:
        return False
    return True


def _shown(signature: inspect.Signature, skip: int) -> str:
    """Returns the parameters of a signature without annotations, for messages."""
    parameters = list(signature.parameters.values())[skip:]
    return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)


def _hint(signature: inspect.Signature) -> str:
    """Returns an example for the first required parameter."""
    for parameter in signature.parameters.values():
        if parameter.default is parameter.empty and parameter.kind < parameter.VAR_POSITIONAL:
            kind: Any = parameter.annotation
            name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
            is_config = name.isidentifier() and name.endswith("Config")
            return (
                f", such as --init '{parameter.name}={name}(hidden_size=512)'"
                if is_config
                else (f", such as --init {parameter.name}=64")
            )
    return ""
