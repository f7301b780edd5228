"""Writes the guard: the end of a kernel file, which checks every call against the contract.

The judged text stays as it is. The guard replaces the constructor and forward of its class, so that
`super(ModelNew, self)` and the names of the weights stay what they were. The guard's names stand inside of one
function, whose own name does not occur in the text.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.agent.contracts.contract import (
    INT32_ELEMENTS,
    AnyContract,
    Argument,
    Contract,
    FixedContract,
    ItemsContract,
    Mode,
    SizeContract,
    TensorContract,
)

GUARD_MARK = "# ---- The contract, checked at every call. The kernel above is as judged. ----"
CHECKS_FILE = Path(__file__).with_name("enforcing.py")
FUNCTION_NAME = "_enforce_contract"


def with_guard(source: str, contract: Contract) -> str:
    """Returns the text with its guard at the end."""
    name = FUNCTION_NAME
    while name in source:
        name += "_"
    return f"{source.rstrip()}\n\n\n{GUARD_MARK}\n{guard_text(contract, name)}\n\n{name}(ModelNew)\n"


def without_guard(source: str) -> str:
    """Removes the guard from the end of a text."""
    before, mark, _ = source.partition(f"\n{GUARD_MARK}\n")
    return before.rstrip() + "\n" if mark else source


def guard_text(contract: Contract, name: str) -> str:
    """Returns the function that makes a class check its calls."""
    methods = "\n\n".join([_constructor(contract), _forward(contract), _installed(contract)])
    head = f'def {name}(model):\n    """Makes a module check its arguments on the host, without device work."""\n'
    checks = _needed_checks(methods, contract.max_elements)
    return head + textwrap.indent(f"import torch\n\n{checks}\n\n{methods}", "    ") + "\n"


def _needed_checks(methods: str, max_elements: int) -> str:
    """Returns those functions of enforcing.py that the methods call, and what these call, in the order of the file."""
    definitions = _definitions()
    needed: set[str] = set()
    waiting = {name for name in definitions if re.search(rf"\b{name}\b", methods)}
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= {other for other in definitions if re.search(rf"\b{other}\b", definitions[name])} - needed
    if max_elements != INT32_ELEMENTS:
        definitions = definitions | {"MAX_ELEMENTS": f"MAX_ELEMENTS = {max_elements}"}
    return "\n\n".join(definitions[name] for name in definitions if name in needed)


@functools.cache
def _definitions() -> dict[str, str]:
    """The functions, classes and constants of enforcing.py with their texts."""
    text = CHECKS_FILE.read_text(encoding="utf-8")
    definitions: dict[str, str] = {}
    for node in ast.parse(text).body:
        segment = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = segment
        elif isinstance(node, ast.Assign):
            definitions[ast.unparse(node.targets[0])] = segment
    return definitions


def _constructor(contract: Contract) -> str:
    names = _parameter_names(contract.constructor)
    body = ["known_sizes = {}"]
    if contract.weights:
        body.append("check_default_type(torch.float32)")
    body += _checks(contract.constructor, names)
    if any(isinstance(argument.contract, TensorContract | ItemsContract) for argument in contract.constructor):
        body.append('known_sizes.pop("the device", None)')
    body.append(f"judged_init({', '.join(['self', *_passed(contract.constructor, names)])})")
    if contract.mode in (Mode.TRAINING, Mode.EVAL):
        body.append(f"self.train({contract.mode is Mode.TRAINING})")
    body.append("refuse_replaced_forward(self)")
    body.append(f"self.judged_contract = known_sizes, {'list_weights(self)' if contract.weights else '[]'}")
    return _method("__init__", contract.constructor, names, body)


def _forward(contract: Contract) -> str:
    names = _parameter_names(contract.inputs)
    body = ["known_sizes = dict(self.judged_contract[0])"]
    body += _checks(contract.inputs, names)
    for relation in contract.relations:
        body.append(f"check_relation({relation.text!r}, {_with_lookups(relation.text)})")
    for name, values in contract.few_values.items():
        body.append(f"check_values({name!r}, known_sizes, {values!r})")
    if contract.mode in (Mode.TRAINING, Mode.EVAL):
        body.append(f"check_mode(self, {contract.mode is Mode.TRAINING})")
    if contract.weights:
        body.append("check_weights(self.judged_contract[1])")
    body.append(f"output = judged_forward({', '.join(['self', *_passed(contract.inputs, names)])})")
    checked = "check_output(output)"
    if contract.weights:
        depend = tuple(output.depends_on_weights for output in contract.outputs)
        checked = f"mark_without_backward({checked}, self.judged_contract[1], {depend!r})"
    body.append(f"return {checked}")
    return _method("forward", contract.inputs, names, body)


def _installed(contract: Contract) -> str:
    """Returns the statements that put the new methods in the places of the old ones."""
    lines = ['entry = "forward" if model.__call__ is torch.nn.Module.__call__ else "__call__"']
    lines.append("judged_init, judged_forward = model.__init__, getattr(model, entry)")
    lines.append("model.__init__ = __init__")
    if contract.mode is Mode.MIXED:
        lines.append("model.train = refuse_modes")
    lines.append("setattr(model, entry, forward)")
    return "\n".join(lines)


def _method(name: str, arguments: Sequence[Argument], names: Sequence[str], body: Sequence[str]) -> str:
    return f"def {name}({', '.join(['self', *_signature(arguments, names)])}):\n" + textwrap.indent(
        "\n".join(body), "    "
    )


def _signature(arguments: Sequence[Argument], names: Sequence[str]) -> Iterator[str]:
    """Yields the parameters. One without a default after one with a default loses nothing: the earlier has none."""
    last_required = max((k for k, a in enumerate(arguments) if a.default is None), default=-1)
    for index, (argument, name) in enumerate(zip(arguments, names, strict=True)):
        yield name if index < last_required or argument.default is None else f"{name}={argument.default}"


def _parameter_names(arguments: Sequence[Argument]) -> list[str]:
    """The arguments' own names, or numbered ones where one of them is a name of the guard."""
    names = [argument.name for argument in arguments]
    reserved = {*_definitions(), "known_sizes", "judged_init", "judged_forward", "torch", "self", "output", "model"}
    usable = all(name.isidentifier() for name in names) and not reserved & set(names) and len(set(names)) == len(names)
    return names if usable else [f"argument_{index}" for index in range(len(names))]


def _passed(arguments: Sequence[Argument], names: Sequence[str]) -> Iterator[str]:
    """Yields what the judged method is given, in the way in which the judge gave it."""
    for argument, name in zip(arguments, names, strict=True):
        if argument.passed:
            yield name


def _checks(arguments: Sequence[Argument], names: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for argument, name in zip(arguments, names, strict=True):
        expression = _expression(name, argument.name, argument.contract, lines)
        if expression.startswith("check_fixed("):
            lines.append(expression)
        elif expression != name:
            lines.append(f"{name} = {expression}")
    return lines


def _expression(variable: str, label: str, contract: AnyContract, before: list[str]) -> str:
    """Returns the checked value as Python; adds to `before` what must be checked earlier."""
    match contract:
        case TensorContract():
            return _tensor_expression(variable, label, contract)
        case SizeContract():
            return f"check_size({label!r}, {variable}, {contract.size!r}, known_sizes)"
        case FixedContract():
            return f"check_fixed({label!r}, {variable}, {contract.literal})"
        case ItemsContract():
            return _items_expression(variable, label, contract, before)
    return variable


def _tensor_expression(variable: str, label: str, contract: TensorContract) -> str:
    checked = f"check_tensor({label!r}, {variable}, torch.{contract.dtype}, {contract.shape!r}, known_sizes)"
    if contract.layouts:
        return f"check_layouts({label!r}, {checked}, {contract.layouts!r})"
    if contract.written:
        return f"refuse_copies({label!r}, {checked}, {contract.order!r})"
    return f"make_contiguous({checked})" if contract.is_contiguous else f"make_dense({checked}, {contract.order!r})"


def _items_expression(variable: str, label: str, contract: ItemsContract, before: list[str]) -> str:
    if contract.kind == "dict":
        before.append(f"check_keys({label!r}, {variable}, {contract.keys!r})")
        keys = [repr(key) for key in contract.keys]
    else:
        before.append(f"check_items({label!r}, {variable}, {len(contract.items)})")
        keys = [str(index) for index in range(len(contract.items))]
    items = [
        _expression(f"{variable}[{key}]", f"{label}[{key}]", item, before)
        for key, item in zip(keys, contract.items, strict=True)
    ]
    if contract.kind == "dict":
        return "{" + ", ".join(f"{key}: {item}" for key, item in zip(keys, items, strict=True)) + "}"
    listed = ", ".join(items)
    return f"[{listed}]" if contract.kind == "list" else f"({listed},)" if items else "()"


def _with_lookups(relation: str) -> str:
    """`width == 2 * hidden` with what the guard knows of these sizes."""
    return re.sub(r"[A-Za-z_]\w*", lambda name: f'known_sizes["{name[0]}"]', relation)
