"""Queries on recorded calls and models: launching steps, tensor numbers, memory effects."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import torch

from kernelwright.tools.trace.trace import Change
from kernelwright.tools.tracing import slicing
from kernelwright.tools.tracing.pretended_gpu import fake_gpu as pretend_gpu
from kernelwright.tools.tracing.tape import Step

_VALUE_ERRORS = frozenset(
    {"DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"}
)
_VALUE_WORDS = (
    ".numpy() is not supported for tensor subclasses",
    "Cannot access data pointer of",
    "is not allocated yet",
    ".tolist() is not supported for tensor subclasses",
)


def launches(call: dict[str, Any]) -> int:
    """Returns the number of launches in a recorded call."""
    return sum("kernel" in step or "alternatives" in step for step in call["steps"])


def needs_values(error: BaseException) -> bool:
    """Returns True for an error of host code that reads a tensor's values."""
    return type(error).__name__ in _VALUE_ERRORS or any(
        words in str(error) for words in _VALUE_WORDS
    )


def canonical(call: dict[str, Any]) -> Any:
    """Returns the steps that lead to the outputs, in a form that is equal for equal calls."""
    return slicing.canonical(
        call["steps"], call["outputs"], [n for v in call["inputs"] for n in slicing.tensors_in(v)]
    )


def call_difference(first_call: dict[str, Any], second_call: dict[str, Any]) -> str:
    """Describes the first difference of two recorded calls: step number and argument, or the
    outputs."""
    first, second = first_call["steps"], second_call["steps"]
    if len(first) != len(second):
        return f"{len(second)} steps where there were {len(first)}"
    for number in range(len(first)):
        forms = [
            canonical({**call, "steps": call["steps"][: number + 1], "outputs": ()})
            for call in (first_call, second_call)
        ]
        if forms[0] != forms[1]:
            return (
                f"step {number + 1}, {_step_difference(forms[0][0][number], forms[1][0][number])}"
            )
    return "the outputs, or which inputs are read"


def _step_difference(first_step: Step, second_step: Step) -> str:
    """Describes the difference of two steps, with a hint if an address differs."""
    if "op" in first_step and first_step["op"] == second_step.get("op"):
        both = zip(first_step["args"], second_step["args"], strict=False)
        pairs = [
            (f"argument {number} of {first_step['op']}", a, b) for number, (a, b) in enumerate(both)
        ]
        pairs += [
            (f"{name} of {first_step['op']}", value, second_step["kwargs"].get(name))
            for name, value in first_step["kwargs"].items()
        ]
    elif "kernel" in first_step and first_step["kernel"] == second_step.get("kernel"):
        pairs = [("the grid of a launch", first_step["grid"], second_step["grid"])]
        pairs += [
            (f"`{n}` of a launch", value, second_step["args"].get(n))
            for n, value in first_step["args"].items()
        ]
    elif "data" in first_step and "data" in second_step:
        return "the values of a tensor that the host makes"
    else:
        return f"{first_step.get('op') or 'a launch'} where there was another"
    name, before, now = next((p for p in pairs if p[1] != p[2]), ("its result", None, None))
    if type(before) is int and type(now) is int:
        return f"{name}: {now} where it was {before}" + (
            _FROM_DATA_PTR if _is_address(before, now) else ""
        )
    return name


_FROM_DATA_PTR = ", an address by data_ptr(): hand the tensor itself to the kernel"


def _is_address(*numbers: int) -> bool:
    return all(pretend_gpu.is_address(number) for number in numbers)


def input_tensors(call: dict[str, Any]) -> set[int]:
    """Returns the numbers of the tensors that a call was given."""
    return tensors(call["inputs"])


def tensors(value: object) -> set[int]:
    """Returns the numbers of the tensors inside a recorded value."""
    return set(slicing.tensors_in(value))


def tensors_of_steps(call: dict[str, Any]) -> set[int]:
    """Returns the numbers of the tensors made by a recorded call's steps."""
    return {number for step in call["steps"] for number in slicing.read_and_written(step)[1]}


def needed_from_outside(call: dict[str, Any]) -> set[int]:
    """Returns the numbers of the tensors that must exist before a recorded call.

    An in-place step returns its argument: that tensor is needed although a step returns it.
    """
    return slicing.used_from_outside(call["steps"]) | (
        tensors(call["outputs"]) - tensors_of_steps(call)
    )


def memory_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns a key of a tensor's memory and layout."""
    if tensor.layout is not torch.strided:
        return (id(tensor),)
    return (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.dtype,
    )


def operator(step: Step) -> Any:
    """Returns torch's operator of a recorded step."""
    namespace, _, qualified_name = str(step["op"]).partition(".")
    name, _, overload = qualified_name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def mutates(step: Step) -> bool:
    """Returns True if a step changes existing memory."""
    return "op" not in step or _traits(str(step["op"]))[0]


def is_random(step: Step) -> bool:
    """Returns True if a step draws random numbers."""
    return "op" in step and _traits(str(step["op"]))[1]


@functools.lru_cache(maxsize=4096)
def _traits(name: str) -> tuple[bool, bool]:
    """Returns whether an operator changes memory, and whether it draws random numbers."""
    overload = operator({"op": name})
    return bool(overload._schema.is_mutable), torch.Tag.nondeterministic_seeded in overload.tags


def state_tensors(model: Any) -> dict[str, torch.Tensor]:
    """Returns parameters, then buffers, by dotted name, read from the modules' own tables."""
    if not isinstance(model, torch.nn.Module):
        return {}
    tables: dict[str, dict[str, torch.Tensor]] = {"_parameters": {}, "_buffers": {}}
    waiting, visited = [("", model)], set()
    while waiting:
        prefix, module = waiting.pop(0)
        if id(module) in visited:
            continue
        visited.add(id(module))
        for table, into in tables.items():
            into.update({prefix + n: t for n, t in module.__dict__[table].items() if t is not None})
        waiting += [
            (f"{prefix}{n}.", m) for n, m in module.__dict__["_modules"].items() if m is not None
        ]
    return tables["_parameters"] | tables["_buffers"]


def write_back_buffers(model: Any, before: dict[str, torch.Tensor]) -> None:
    """Copies buffers that forward replaced by a tensor of equal form back into the original tensor.

    The judge reads a call's effect from the memory that it provided for the buffer.
    """
    for name, now in state_tensors(model).items():
        original = before.get(name)
        if original is None or original is now or isinstance(original, torch.nn.Parameter):
            continue
        if (
            original.shape == now.shape
            and original.dtype == now.dtype
            and memory_key(original) != memory_key(now)
        ):
            owner, _, last = name.rpartition(".")
            original.copy_(now)
            model.get_submodule(owner).__dict__["_buffers"][last] = original


def fake(spec: dict[str, Any], changes: Collection[Change] = ()) -> torch.Tensor:
    """Returns a tensor without data from its recorded shape, strides, offset and dtype, as
    forward's argument in changed surroundings.

    Integers require no gradients.
    """
    dtype = getattr(torch, spec["dtype"])
    tensor = pretend_gpu.fake_tensor(spec["shape"], spec["stride"], dtype, spec.get("offset", 0))
    differentiable = dtype.is_floating_point or dtype.is_complex
    if Change.PARAMETERS in changes:
        return torch.nn.Parameter(tensor, requires_grad=differentiable)
    if Change.VIEWS in changes:
        return tensor.requires_grad_(differentiable).view_as(tensor)
    return tensor
