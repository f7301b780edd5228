"""Numbers made larger or smaller than a distribution draws them: large ones in the place of a problem's own whole ones,
where none of them is an index or decides a size; smaller powers of two where products of inputs are exponentiated.
"""

from __future__ import annotations

import copy
from typing import Any

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.references.reference import Reference

MAX_ELEMENTS_TRIED_ON_CPU = 1 << 22
"""Elements of whole numbers that a reference is run on once more, on a CPU, before a GPU is given large ones."""
LARGE_INTEGERS = ((1 << 24) + 1, 1 << 33)
"""About the largest of whole numbers of 32 and of 64 bits in the draw `large`."""

LARGEST_POWER = float(1 << 14)
"""The largest power of two in the draw `infinite` where products of inputs are exponentiated: scores stay under 2^31.

Above that half a unit in a score's last place is over 88, and a kernel that fuses the multiplication of a score with
the subtraction of its row's (rounded) largest, as compilers do, exponentiates what was rounded away: infinity.
"""


def limit_powers(inputs: list[Any]) -> None:
    """Bounds all finite floating-point numbers by LARGEST_POWER, in place."""
    import torch

    for tensor in inputs:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.itemsize > 1:
            bounded = tensor.clamp(-LARGEST_POWER, LARGEST_POWER)
            tensor.copy_(torch.where(tensor.isfinite(), bounded, tensor))


def enlarge_integers(inputs: list[Any]) -> None:
    """Where every tensor holds whole numbers of 32 or 64 bits: multiplies them, so that floats do not hold their sums,
    nor 32 bits those of 64. The sign stays: a domain may have none.
    """
    import torch

    largest = {torch.int32: LARGE_INTEGERS[0], torch.int64: LARGE_INTEGERS[1]}
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    if any(t.dtype not in largest for t in tensors):
        return
    for tensor in tensors:
        most = int(tensor.abs().max()) if tensor.numel() else 0
        if most > 1:
            tensor.mul_(max(largest[tensor.dtype] // most, 1)).add_(tensor.sign())


def may_be_enlarged(reference: Reference, model: Any, inputs: list[Any]) -> bool:
    """Whether the reference can be given large numbers in the place of its own whole ones.

    They may decide no size: one count for each number up to the largest would take 64 GB. On a GPU they may be no
    indices either. (On a CPU the reference says so itself.)
    """
    tensors = tensors_of(inputs)
    if any(t.is_floating_point() or t.is_complex() for t in tensors):
        return False
    if not sizes_are_free_of_values(reference, model, inputs):
        return False
    return reference.device == "cpu" or runs_on_large_integers(reference, model, inputs)


def sizes_are_free_of_values(reference: Reference, model: Any, inputs: list[Any]) -> bool:
    """Whether forward runs on tensors without values: no size, and no branch of the host, depends on one."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    without_values = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in inputs]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), mode:
            copy.deepcopy(model)(*reference.arguments(without_values))
    except Exception:
        return False
    return True


def runs_on_large_integers(reference: Reference, model: Any, inputs: list[Any]) -> bool:
    """Whether the reference runs, on a CPU, on large numbers in the place of its own whole ones. There it raises where
    it takes one for an index; on a GPU such an index ends the judge's context, so that a CPU is asked first.
    """
    import torch

    if sum(t.numel() for t in tensors_of(inputs)) > MAX_ELEMENTS_TRIED_ON_CPU:
        return False
    on_cpu = [v.to("cpu", copy=True) if isinstance(v, torch.Tensor) else v for v in inputs]
    enlarge_integers(on_cpu)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy.deepcopy(model).cpu()(*reference.arguments(on_cpu))
    except Exception:
        return False
    return True
