"""Writes how a module calls its operator: the operator's schema, and which calls go to it.

For a contract with inputs x: float32 (rows, 64), scale: 1.0 only, pair: list of two tensors:

    parameters   x, scale=1.0, pair
    conditions   not isinstance(scale, torch.Tensor) and scale == 1.0
                 isinstance(pair, (list, tuple)) and len(pair) == 2
    schema       Tensor x, Tensor pair_0, Tensor pair_1
    values       x, pair[0], pair[1]
    arguments    (x, 1.0, [pair_0, pair_1])
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from kernelwright.agent.contracts.contract import (
    AnyContract,
    Argument,
    Contract,
    FixedContract,
    ItemsContract,
    Mode,
    SizeContract,
    TensorContract,
)
from kernelwright.agent.contracts.guard_text import with_lookups
from kernelwright.errors import InputError

RESERVED_ARGUMENTS = frozenset(
    {"self", "torch", "reference", "OPERATOR", "o", "others", "judged", "weights"}
)
"""Names of the operator's module and of the schema, which arguments must not hide."""
HALF_DTYPES = frozenset({"float16", "bfloat16"})


@dataclass
class CallText:
    """Parts of the text of an operator's module."""

    parameters: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """Arguments of `forward`, by name."""
    conditions: list[str] = field(default_factory=list)
    """Expressions true for every call of the operator."""
    schema: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Inputs of the operator, in the order of the schema."""
    values: list[str] = field(default_factory=list)
    """Expressions of the inputs in `forward`."""
    tensors: list[str] = field(default_factory=list)
    """Expressions of the tensors in `forward`."""
    shapes: list[str] = field(default_factory=list)
    """Dtype and shape of each tensor: `(torch.float32, ("rows", 64))`."""
    arguments: list[str] = field(default_factory=list)
    """Expressions of the arguments of `forward` in terms of the inputs."""


def call_text(contract: Contract, optional: Collection[str] = ()) -> CallText:
    """Returns the parts of the text for a contract.

    optional: parameters of `forward` that the kernel was judged without. Raises InputError if an argument has no type
    in schemas of torch.
    """
    text = CallText()
    if contract.mode in (Mode.EVAL, Mode.TRAINING):
        text.conditions.append("self.training" if is_training(contract) else "not self.training")
    passed = [argument for argument in contract.inputs if argument.passed]
    required = [index for index, argument in enumerate(passed) if argument.default is None]
    for index, argument in enumerate(passed):
        name = _parameter_name(argument, index)
        has_default = index > max(required, default=-1)
        text.parameters.append(f"{name}={argument.default}" if has_default else name)
        text.passed.append(name)
        text.arguments.append(_add(text, name, name, argument.contract))
    for argument in contract.inputs:
        # The kernel was judged with the default: other values go to the reference.
        if not argument.passed and argument.name in optional and argument.default is not None:
            text.parameters.append(f"{argument.name}={argument.default}")
            text.passed.append(f"{argument.name}={argument.name}")
            text.conditions.append(_equals(argument.name, argument.default))
    return text


def sizes_condition(contract: Contract) -> str:
    """Returns an expression true for the judged values of `sizes`."""
    # Sizes of the constructor alone are checked by the kernel itself.
    known = {size for argument in contract.inputs for size in _sizes(argument.contract)}
    conditions: list[str] = []
    for relation in contract.relations:
        if set(re.findall(r"[A-Za-z_]\w*", relation.text)) <= known:
            conditions.append(with_lookups(relation.text))
    for name, values in contract.few_values.items():
        if name in known:
            conditions.append(f"sizes[{name!r}] in {values!r}")
    return " and ".join(conditions) or "True"


def is_training(contract: Contract) -> bool:
    """Returns the mode in which the operator's modules run; eval if the mode does not matter."""
    return contract.mode is Mode.TRAINING


def only_half_dtype(contract: Contract) -> str:
    """Returns float16 or bfloat16 if all floating tensors have this dtype; otherwise empty."""
    dtypes: set[str] = set()
    for each in (contract, *contract.others):
        dtypes |= {weight.dtype for weight in each.weights}
        for argument in each.inputs:
            dtypes |= _dtypes(argument.contract)
    floating = {dtype for dtype in dtypes if "float" in dtype or "complex" in dtype}
    return floating.pop() if len(floating) == 1 and floating <= HALF_DTYPES else ""


def writes_inputs(contract: Contract) -> bool:
    """Returns whether forward writes to an input."""
    return any(_is_written(argument.contract) for argument in contract.inputs)


def _add(text: CallText, expression: str, label: str, contract: AnyContract) -> str:
    """Adds a value to the text; returns its expression in terms of the operator's inputs."""
    if isinstance(contract, ItemsContract):
        return _add_items(text, expression, label, contract)
    if isinstance(contract, FixedContract):
        text.conditions.append(_equals(expression, contract.literal))
        return contract.literal
    if isinstance(contract, TensorContract):
        text.tensors.append(expression)
        text.shapes.append(f"(torch.{contract.dtype}, {contract.shape!r})")
        return _add_input(text, expression, label, "Tensor")
    if isinstance(contract, SizeContract) or contract.shown == "any int":
        text.conditions.append(f"isinstance({expression}, int)")
        return _add_input(text, expression, label, "SymInt")
    if contract.shown == "any float":
        text.conditions.append(f"isinstance({expression}, float)")
        return _add_input(text, expression, label, "float")
    raise InputError(f"{label} is {contract.shown}, which an operator of torch cannot take")


def _add_input(text: CallText, expression: str, label: str, kind: str) -> str:
    name = re.sub(r"\W+", "_", label).strip("_")
    if keyword.iskeyword(name) or name in RESERVED_ARGUMENTS or name in text.names:
        name = f"input_{len(text.names)}"
    text.names.append(name)
    text.schema.append(f"{kind} {name}")
    text.values.append(expression)
    return name


def _add_items(text: CallText, expression: str, label: str, contract: ItemsContract) -> str:
    count = len(contract.items)
    if contract.kind == "dict":
        keys = [repr(key) for key in contract.keys]
        fits = f"isinstance({expression}, dict) and {expression}.keys() == set({contract.keys!r})"
    else:
        keys = [str(index) for index in range(count)]
        fits = f"isinstance({expression}, (list, tuple)) and len({expression}) == {count}"
    text.conditions.append(fits)
    items: list[str] = []
    for key, item in zip(keys, contract.items, strict=True):
        items.append(_add(text, f"{expression}[{key}]", f"{label}_{key.strip(chr(39))}", item))
    match contract.kind:
        case "dict":
            pairs = [f"{key}: {item}" for key, item in zip(keys, items, strict=True)]
            return "{" + ", ".join(pairs) + "}"
        case "list":
            return f"[{', '.join(items)}]"
    return f"({', '.join(items)}{',' if count == 1 else ''})"


def _equals(expression: str, literal: str) -> str:
    if literal in ("None", "True", "False") or literal.startswith("torch."):
        return f"{expression} is {literal}"
    return f"not isinstance({expression}, torch.Tensor) and {expression} == {literal}"


def _parameter_name(argument: Argument, index: int) -> str:
    is_name = argument.name.isidentifier() and not keyword.iskeyword(argument.name)
    is_usable = is_name and argument.name not in RESERVED_ARGUMENTS
    return argument.name if is_usable else f"argument_{index}"


def _sizes(contract: AnyContract) -> set[str]:
    if isinstance(contract, ItemsContract):
        return set().union(*map(_sizes, contract.items))
    extents = contract.shape if isinstance(contract, TensorContract) else ()
    return {extent for extent in extents if isinstance(extent, str)}


def _dtypes(contract: AnyContract) -> set[str]:
    if isinstance(contract, ItemsContract):
        return set().union(*map(_dtypes, contract.items))
    return {contract.dtype} if isinstance(contract, TensorContract) else set()


def _is_written(contract: AnyContract) -> bool:
    if isinstance(contract, ItemsContract):
        return any(map(_is_written, contract.items))
    return isinstance(contract, TensorContract) and contract.written
