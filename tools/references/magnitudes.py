"""Draws numbers of other magnitudes: large integers in place of a problem's own, if none is an
index or decides a size; smaller powers of two if products of inputs are exponentiated.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.references.reference import Reference

if TYPE_CHECKING:
    import torch

MAX_ELEMENTS_TRIED_ON_CPU = 1 << 22
"""Maximum number of integer elements for a trial run on a CPU before large ones are used on a GPU."""
LARGEST_POWER = float(1 << 14)
"""Largest power of two in the draw `infinite` if products of inputs are exponentiated: scores
stay under 2^31.

Above, half a unit in a score's last place exceeds 88, and a kernel which fuses the scaling of a
score with the subtraction of its row's (rounded) maximum, as compilers do, exponentiates a
rounding error: infinity.
"""

TINY_VARIANCE = 1e-3
"""Factor of a running variance for numbers under an eighth: makes a missing epsilon visible."""


def says_things_twice(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor of at least two dimensions is symmetric, or repeats values: the
    second half of each row equals the first, or every second number equals the one before. A
    candidate may read either copy (tables of rotary embeddings have this form).
    """
    import torch

    if tensor.shape[-1] == tensor.shape[-2] and torch.equal(tensor, tensor.mT):
        return True
    half = tensor.shape[-1] // 2
    if tensor.shape[-1] % 2 or not half:
        return False
    halves = torch.equal(tensor[..., :half], tensor[..., half:])
    return halves or torch.equal(tensor[..., ::2], tensor[..., 1::2])


def limit_powers(inputs: list[Any]) -> None:
    """Bounds all finite floating-point numbers by LARGEST_POWER, in place."""
    import torch

    for tensor in inputs:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.itemsize > 1:
            bounded = tensor.clamp(-LARGEST_POWER, LARGEST_POWER)
            tensor.copy_(torch.where(tensor.isfinite(), bounded, tensor))


def enlarge_integers(inputs: list[Any]) -> None:
    """Multiplies integers up to the ends of their types if all tensors hold integers of 32 or 64
    bits, so that float arithmetic, or 32 bits for 64, loses digits. Signs stay: a domain may have
    no negative numbers.
    """
    import torch

    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    if any(t.dtype not in (torch.int32, torch.int64) for t in tensors):
        return
    for tensor in tensors:
        most = int(tensor.abs().max()) if tensor.numel() else 0
        if most > 1:
            tensor.mul_((torch.iinfo(tensor.dtype).max - 1) // most).add_(tensor.sign())


def may_be_enlarged(reference: Reference, model: torch.nn.Module, inputs: list[Any]) -> bool:
    """Returns whether the reference accepts large numbers in place of its own integers.

    They may not determine a size: a count for each number up to the largest would take 64 GB. On
    a GPU they may not be indices either. (On a CPU the reference itself raises.)
    """
    tensors = tensors_of(inputs)
    if any(t.is_floating_point() or t.is_complex() for t in tensors):
        return False
    if not sizes_are_free_of_values(reference, model, inputs):
        return False
    return reference.device == "cpu" or runs_on_large_integers(reference, model, inputs)


def sizes_are_free_of_values(
    reference: Reference, model: torch.nn.Module, inputs: list[Any]
) -> bool:
    """Returns whether forward runs on tensors without values: no size, and no host branch,
    depends on values.
    """
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


def runs_on_large_integers(reference: Reference, model: torch.nn.Module, inputs: list[Any]) -> bool:
    """Returns whether the reference runs, on a CPU, on large integers. There an index out of
    range raises; on a GPU it would destroy the judge's context, so that the CPU is tried first.
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


def perturb_weights(
    model: torch.nn.Module, seed: int, buffers: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Moves every floating parameter, and the running statistics of normalisations, away from
    their initial values: a scale of ones and a bias of zeros would hide that they are ignored. Of
    constant parameters an eighth of the elements stays and an eighth changes sign; of variances
    an eighth is tiny.

    buffers: other values for some buffers, by name.
    """
    import torch

    generator = torch.Generator(
        device=next(iter(model.parameters())).device
        if any(True for _ in model.parameters())
        else "cpu"
    ).manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.numel():
                size = parameter.std().item() if parameter.numel() > 1 else 0.0
                noise = torch.randn(
                    parameter.shape,
                    generator=generator,
                    device=parameter.device,
                    dtype=torch.float32,
                )
                if size <= 1e-6 and parameter.numel() > 1:
                    noise = _unless_kept_or_turned(noise, parameter.float().flatten()[0].item())
                parameter.add_((noise * (size if size > 1e-6 else 0.25)).to(parameter.dtype))
        for name, statistic in running_statistics(model).items():
            noise = torch.rand(
                statistic.shape, generator=generator, device=statistic.device, dtype=torch.float32
            )
            if name.endswith("running_var"):
                noise = torch.where(noise < 0.125, noise * TINY_VARIANCE, 0.5 + noise)
                statistic.mul_(noise.to(statistic.dtype))  # it stays above zero
            else:
                statistic.add_((noise - 0.5).to(statistic.dtype))
        held = dict(model.named_buffers())
        for name, values in buffers.items():
            held[name].copy_(values)


def _unless_kept_or_turned(noise: torch.Tensor, constant: float) -> Any:
    """Returns the steps of a constant parameter: none for an eighth of the elements, a change of
    sign for another eighth, as chosen by the noise.
    """
    import torch

    digits = (noise.abs() * 1e4).to(torch.int32) % 8
    turned = noise - 8.0 * constant  # a step is a quarter of it
    return torch.where(digits == 0, 0.0, torch.where(digits == 1, turned, noise))


def drawn_buffers(reference: Reference, model: torch.nn.Module, seed: int) -> dict[str, Any]:
    """Returns the buffers whose values another seed than the model's own draws anew, by name,
    with those other values: weights that are no parameters. seed: the model's own.
    """
    import torch

    statistics = running_statistics(model)
    tables = {n: b for n, b in model.named_buffers() if b.numel() and n not in statistics}
    if not tables:
        return {}
    other = dict(reference.model(seed + 1).named_buffers())
    same_form = {n: b for n, b in tables.items() if n in other and other[n].shape == b.shape}
    return {n: other[n] for n, b in same_form.items() if not torch.equal(b, other[n])}


def running_statistics(model: torch.nn.Module) -> dict[str, Any]:
    """Means and variances in the normalisations of a model, by their names among its
    buffers. Other buffers (tables, masks) may be constants of the problem, which a candidate
    works out by itself.
    """
    import torch

    norms = [
        (n, m)
        for n, m in model.named_modules()
        if isinstance(m, torch.nn.modules.batchnorm._NormBase)
    ]
    named = {
        f"{n}.{k}".lstrip("."): getattr(m, k, None)
        for n, m in norms
        for k in ("running_mean", "running_var")
    }
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
