"""What the tracer asks of a recorded call and of a model: which steps launch, which tensors they name, what may
change memory.
"""

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
    """Counts the launches of a recorded call."""
    return sum("kernel" in step or "alternatives" in step for step in call["steps"])


def needs_values(error: BaseException) -> bool:
    """Says whether an error comes from host code that reads what a tensor holds."""
    return type(error).__name__ in _VALUE_ERRORS or any(
        words in str(error) for words in _VALUE_WORDS
    )


def canonical(call: dict[str, Any]) -> Any:
    """Returns the steps that lead to the outputs, in a form that is equal for equal calls."""
    return slicing.canonical(
        call["steps"], call["outputs"], [n for v in call["inputs"] for n in slicing.tensors_in(v)]
    )


def call_difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Returns in a few words where two recorded calls part: the number of the step and its argument that differs, or
    the outputs.
    """
    first, second = one["steps"], other["steps"]
    if len(first) != len(second):
        return f"{len(second)} steps where there were {len(first)}"
    for number in range(len(first)):
        forms = [
            canonical({**call, "steps": call["steps"][: number + 1], "outputs": ()})
            for call in (one, other)
        ]
        if forms[0] != forms[1]:
            return (
                f"step {number + 1}, {_step_difference(forms[0][0][number], forms[1][0][number])}"
            )
    return "the outputs, or which inputs are read"


def _step_difference(one: Step, other: Step) -> str:
    """Returns what differs between two steps, and that it is an address where it is one."""
    if "op" in one and one["op"] == other.get("op"):
        both = zip(one["args"], other["args"], strict=False)
        pairs = [(f"argument {number} of {one['op']}", a, b) for number, (a, b) in enumerate(both)]
        pairs += [
            (f"{name} of {one['op']}", value, other["kwargs"].get(name))
            for name, value in one["kwargs"].items()
        ]
    elif "kernel" in one and one["kernel"] == other.get("kernel"):
        pairs = [("the grid of a launch", one["grid"], other["grid"])]
        pairs += [
            (f"`{n}` of a launch", value, other["args"].get(n)) for n, value in one["args"].items()
        ]
    elif "data" in one and "data" in other:
        return "the values of a tensor that the host makes"
    else:
        return f"{one.get('op') or 'a launch'} where there was another"
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


def tensors(value: Any) -> set[int]:
    """Returns the numbers of the tensors inside a recorded value."""
    return set(slicing.tensors_in(value))


def tensors_of_steps(call: dict[str, Any]) -> set[int]:
    """Returns the numbers of the tensors that a recorded call's steps give."""
    return {number for step in call["steps"] for number in slicing.read_and_written(step)[1]}


def needed_from_outside(call: dict[str, Any]) -> set[int]:
    """Returns the numbers of the tensors that have to be there before a recorded call.

    A step that writes in place gives the tensor that it was given: that one is needed although a step gives it.
    """
    return slicing.used_from_outside(call["steps"]) | (
        tensors(call["outputs"]) - tensors_of_steps(call)
    )


def memory_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns where a tensor lies, so that two of one place are equal."""
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
    namespace, _, rest = str(step["op"]).partition(".")
    name, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def mutates(step: Step) -> bool:
    """Whether a step changes memory that was there before it."""
    return "op" not in step or _traits(str(step["op"]))[0]


def is_random(step: Step) -> bool:
    """Says whether a step draws random numbers."""
    return "op" in step and _traits(str(step["op"]))[1]


@functools.lru_cache(maxsize=4096)
def _traits(name: str) -> tuple[bool, bool]:
    """Whether an operator changes memory, and whether it draws random numbers."""
    found = operator({"op": name})
    return bool(found._schema.is_mutable), torch.Tag.nondeterministic_seeded in found.tags


def state_tensors(model: Any) -> dict[str, torch.Tensor]:
    """Parameters, then buffers, by dotted name: read from the modules' own tables."""
    if not isinstance(model, torch.nn.Module):
        return {}
    found: dict[str, dict[str, torch.Tensor]] = {"_parameters": {}, "_buffers": {}}
    waiting, seen = [("", model)], set()
    while waiting:
        prefix, module = waiting.pop(0)
        if id(module) in seen:
            continue
        seen.add(id(module))
        for table, into in found.items():
            into.update({prefix + n: t for n, t in module.__dict__[table].items() if t is not None})
        waiting += [
            (f"{prefix}{n}.", m) for n, m in module.__dict__["_modules"].items() if m is not None
        ]
    return found["_parameters"] | found["_buffers"]


def write_back_buffers(model: Any, before: dict[str, torch.Tensor]) -> None:
    """A buffer that forward replaced by another tensor of its form is that tensor's copy from now on.

    The judge reads what a call leaves in the memory that it gave for the buffer.
    """
    for name, now in state_tensors(model).items():
        held = before.get(name)
        if held is None or held is now or isinstance(held, torch.nn.Parameter):
            continue
        if (
            held.shape == now.shape
            and held.dtype == now.dtype
            and memory_key(held) != memory_key(now)
        ):
            owner, _, last = name.rpartition(".")
            held.copy_(now)
            model.get_submodule(owner).__dict__["_buffers"][last] = held


def fake(spec: dict[str, Any], changes: Collection[Change] = ()) -> torch.Tensor:
    """Makes a tensor without data from its recorded shape, strides, storage offset and dtype, as forward is given it in
    changed surroundings. Whole numbers require no gradients.
    """
    dtype = getattr(torch, spec["dtype"])
    tensor = pretend_gpu.fake_tensor(spec["shape"], spec["stride"], dtype, spec.get("offset", 0))
    differentiable = dtype.is_floating_point or dtype.is_complex
    if Change.PARAMETERS in changes:
        return torch.nn.Parameter(tensor, requires_grad=differentiable)
    if Change.VIEWS in changes:
        return tensor.requires_grad_(differentiable).view_as(tensor)
    return tensor
