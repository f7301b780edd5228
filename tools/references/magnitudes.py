"""Numbers made larger or smaller than a distribution draws them: large ones in the place of a problem's own whole ones,
where none of them is an index or decides a size; smaller powers of two where products of inputs are
exponentiated.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.references.reference import Reference

MAX_ELEMENTS_TRIED_ON_CPU = 1 << 22
"""Elements of whole numbers that a reference is run on once more, on a CPU, before a GPU is given large ones."""
LARGEST_POWER = float(1 << 14)
"""The largest power of two in the draw `infinite` where products of inputs are exponentiated: scores stay under 2^31.

Above that half a unit in a score's last place is over 88, and a kernel that fuses the multiplication of a score with
the subtraction of its row's (rounded) largest, as compilers do, exponentiates what was rounded away: infinity.
"""

TINY_VARIANCE = 1e-3
"""Of a number under an eighth, what a running variance is multiplied with: an epsilon beside it shows."""
ELEMENTS_FOR_A_CHANCE_ZERO = 1 << 20
"""A tensor of so many elements may hold one zero that nobody meant."""


def holds_zeros(tensor: Any) -> bool:
    """Whether a tensor has zeros that are meant: of tens of millions of normal numbers a GPU rounds one or two to 0."""
    return int((tensor == 0).sum()) > tensor.numel() // ELEMENTS_FOR_A_CHANCE_ZERO


def says_things_twice(tensor: Any) -> bool:
    """Whether a tensor of two dimensions or more is its own transpose, or the second half of each row, or every second
    number, is as the one before: a candidate may read one of the two (tables of rotary embeddings are made so).
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
    """Where every tensor holds whole numbers of 32 or 64 bits: multiplies them up to the ends of their types, so that
    floats do not hold them, nor 32 bits those of 64. The sign stays: a domain may have none.
    """
    import torch

    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    if any(t.dtype not in (torch.int32, torch.int64) for t in tensors):
        return
    for tensor in tensors:
        most = int(tensor.abs().max()) if tensor.numel() else 0
        if most > 1:
            tensor.mul_((torch.iinfo(tensor.dtype).max - 1) // most).add_(tensor.sign())


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


def perturb_weights(
    model: Any, seed: int, buffers: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Moves every floating parameter, and the running statistics of normalisations, away from where their
    initialisation left them: a scale of ones and a bias of zeros would hide that they are ignored. Of constants one in
    eight stays and one in eight changes its sign; of variances one in eight is tiny.

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


def _unless_kept_or_turned(noise: Any, constant: float) -> Any:
    """The steps of a parameter that is one constant: of one element in eight none, of one in eight such that its sign
    changes; which, the noise itself says.
    """
    import torch

    place = (noise.abs() * 1e4).to(torch.int32) % 8
    turned = noise - 8.0 * constant  # a step is a quarter of it
    return torch.where(place == 0, 0.0, torch.where(place == 1, turned, noise))


def drawn_buffers(reference: Reference, model: Any, seed: int) -> dict[str, Any]:
    """Returns the buffers whose values another seed than the model's own draws anew, by name, with those other values:
    weights that are no parameters. seed: the model's own.
    """
    import torch

    statistics = running_statistics(model)
    tables = {n: b for n, b in model.named_buffers() if b.numel() and n not in statistics}
    if not tables:
        return {}
    other = dict(reference.model(seed + 1).named_buffers())
    same_form = {n: b for n, b in tables.items() if n in other and other[n].shape == b.shape}
    return {n: other[n] for n, b in same_form.items() if not torch.equal(b, other[n])}


def running_statistics(model: Any) -> dict[str, Any]:
    """Means and variances that the normalisations of a model keep, by their names among its buffers. Other buffers
    (tables, masks) may be constants of the problem, which a candidate works out by itself.
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
