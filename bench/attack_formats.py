"""One candidate in the formats of four public judges: what each of them can express, and the files that it takes.

A problem is described once (`described`): its inputs and outputs by shape and dtype, read on tensors without values.
What a format cannot hold is said in words (`not_expressible`), and nothing is bent to fit. The text of an exploit is
never changed: the entry that a format wants is written below it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

LARGEST = 4 * 2**30
"""Bytes of a problem's inputs that other judges are given: processes side by side, with copies of their own, share the
GPU.
"""
SEED = 42
ENTRY = "kernelwright_entry"
FLOATS = ("float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "float64", "int64", "int32", "int16", "int8", "bool")
"""What SOL-ExecBench and flashinfer-bench can name, of what the problems use."""


class Spec(NamedTuple):
    """A tensor by shape and dtype; None for a number, with its value."""

    shape: tuple[int, ...] | None
    dtype: str
    contiguous: bool = True
    value: float | int | bool | None = None


class Case(NamedTuple):
    """A problem as the formats see it."""

    source: str
    """The reference, at the sizes that are used."""
    init: str
    """The text of the arguments that `Model` takes."""
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    nested: bool
    """An output that is neither a tensor nor a flat sequence of tensors."""
    state: bool
    """`Model` has parameters or buffers."""


@lru_cache(maxsize=512)
def described(source: str) -> Case:
    """The problem at its own sizes. Raises whatever the reference raises."""
    import torch

    module: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "<problem>", "exec"), module)  # the repository's own references
    try:
        with torch.device("meta"), torch.no_grad():
            init, inputs = module["get_init_inputs"](), module["get_inputs"]()
            model = module["Model"](*init)
            output = model(*inputs)
    except (RuntimeError, NotImplementedError):  # An operator that needs values.
        with torch.no_grad():
            init, inputs = module["get_init_inputs"](), module["get_inputs"]()
            model = module["Model"](*init)
            output = model(*inputs)
    flat = list(output) if isinstance(output, list | tuple) else [output]
    nested = not all(isinstance(value, torch.Tensor) for value in flat)
    return Case(
        source, repr(init), tuple(map(_spec, inputs)), () if nested else tuple(map(_spec, flat)), nested,
        bool(model.state_dict()),
    )  # fmt: skip


def _spec(value: Any) -> Spec:
    import torch

    if isinstance(value, torch.Tensor):
        return Spec(
            tuple(value.shape), str(value.dtype).removeprefix("torch."), value.is_contiguous()
        )
    return Spec(None, "int64" if isinstance(value, int) else "float32", True, value)


def _bytes(specs: tuple[Spec, ...]) -> int:
    return sum(
        math.prod(s.shape) * (8 if "64" in s.dtype else 4) for s in specs if s.shape is not None
    )


def not_expressible(judge: str, case: Case) -> str:
    """Why a judge's format cannot hold the problem; empty where it can."""
    if judge == "kernelwright":
        return ""
    if _bytes(case.inputs) > LARGEST:
        return (
            f"inputs of more than {LARGEST >> 30} GiB, of which many processes share the GPU here"
        )
    if case.nested:
        return "the output is neither a tensor nor a flat sequence of tensors"
    if judge == "kernelbench":
        return _not_in_kernelbench(case)
    if case.state:
        return "the module has state, and a kernel is a function of its inputs"
    if unknown := {s.dtype for s in (*case.inputs, *case.outputs)} - set(DTYPES):
        return f"dtype {', '.join(sorted(unknown))}"
    if "[" in case.init.replace("[]", "") and "tensor" in case.init:
        return "the module is made of tensors"
    return _not_in_pygpubench(case) if judge == "pygpubench" else ""


def _not_in_kernelbench(case: Case) -> str:
    tensors = [s for s in case.inputs if s.shape is not None]
    if len(case.outputs) != 1:
        return "several outputs"
    if len({s.dtype for s in tensors}) > 1 or any(s.dtype not in FLOATS for s in tensors):
        return "inputs that are not all of one floating-point dtype: its harness casts every input"
    return ""


def _not_in_pygpubench(case: Case) -> str:
    if len(case.outputs) != 1:
        return "several outputs"
    if case.outputs[0].dtype not in FLOATS:
        return f"an output of {case.outputs[0].dtype}"
    if not all(s.contiguous for s in (*case.inputs, *case.outputs)):
        return "a tensor that is not contiguous"
    return ""


def function_of(case: Case, class_name: str, entry: str, destination: bool = False) -> str:
    """The text of a function that calls a module, made at its first call with the seed that every judge uses."""
    names = ", ".join(f"x{i}" for i in range(len(case.inputs)))
    call = f"_kernelwright_made[0]({names})"
    last = f"        y0.copy_({call})" if destination else f"        return {call}"
    return "\n".join([
        "", "", "import torch as _kernelwright_torch", "", "_kernelwright_made = []", "", "",
        f"def {entry}({'y0, ' if destination else ''}{names}):",
        "    if not _kernelwright_made:",
        f"        _kernelwright_torch.manual_seed({SEED})",
        f"        _kernelwright_made.append({class_name}(*{case.init}).to(x0.device))",
        "    with _kernelwright_torch.no_grad():",
        last, "",
    ])  # fmt: skip


DRAW = f'''

def kernelwright_inputs(axes_and_scalars, device):
    """The problem's own inputs, by name."""
    with _kernelwright_torch.device(device):
        return {{f"x{{i}}": value for i, value in enumerate(get_inputs())}}


def {ENTRY}_case(**kwargs):
    """pygpubench: (output, *inputs), (expected, relative and absolute tolerance)."""
    _kernelwright_torch.manual_seed(kwargs["seed"] % 2**63)
    inputs = list(kernelwright_inputs({{}}, "cuda").values())
    expected = run(*inputs).contiguous()
    return (_kernelwright_torch.empty_like(expected), *inputs), (expected, 1e-2, 1e-2)
'''


def reference_text(case: Case) -> str:
    """The reference as a function `run` of its inputs, and how they are drawn."""
    return case.source + function_of(case, "Model", "run") + DRAW


def candidate_text(case: Case, candidate: str, destination: bool = False) -> str:
    return candidate + function_of(case, "ModelNew", ENTRY, destination)


def _axis(size: int) -> str:
    return f"a{size}"


def _tensors(specs: tuple[Spec, ...], letter: str) -> dict[str, Any]:
    return {
        f"{letter}{i}": {
            "shape": None if s.shape is None else [_axis(d) for d in s.shape],
            "dtype": s.dtype,
        }
        for i, s in enumerate(specs)
    }


def definition(case: Case, custom_inputs: bool) -> dict[str, Any]:
    """The definition of SOL-ExecBench, which took its schema from flashinfer-bench."""
    sizes = {d for s in (*case.inputs, *case.outputs) for d in s.shape or ()}
    axes = {_axis(d): {"type": "const", "value": d} for d in sorted(sizes)}
    told = {
        "name": "problem", "op_type": "exploit", "axes": axes,
        "inputs": _tensors(case.inputs, "x"), "outputs": _tensors(case.outputs, "y"), "reference": reference_text(case),
    }  # fmt: skip
    return {**told, "custom_inputs_entrypoint": "kernelwright_inputs"} if custom_inputs else told


def solution(
    case: Case, candidate: str, languages: dict[str, Any], hardware: str
) -> dict[str, Any]:
    """One file, called with the inputs; it returns the outputs."""
    spec = {
        **languages, "target_hardware": [hardware], "entry_point": f"kernel.py::{ENTRY}",
        "destination_passing_style": False, "dependencies": [],
    }  # fmt: skip
    return {
        "name": "candidate", "definition": "problem", "author": "kernelwright", "spec": spec,
        "sources": [{"path": "kernel.py", "content": candidate_text(case, candidate)}],
    }  # fmt: skip
