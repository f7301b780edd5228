"""Kernels sum in other orders, exponentiate by ex2.approx and build sigmoids from it. On every draw of the judge, over the whole catalogue, that must pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from bench.tolerance import exp2_approx, tf32
from tools.compare import measure
from tools.draws import Draw, apply, shake_weights
from tools.problem import Problem
from tools.reference import Reference, double, doubled
from tools.tolerance import shake

CATALOGUE = sorted((Path(__file__).parent.parent / "agent" / "catalogue").glob("[!_]*.py"))


def _product(a, b, cast=lambda x: x, **_):
    if a.dim() < 2 or b.dim() < 2:
        return torch.matmul(a, b)
    a, b = cast(a), cast(b)
    out = torch.zeros(*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    for i in range(0, a.shape[-1], 16):
        out = out + a[..., i : i + 16].float() @ b[..., i : i + 16, :].float()
    return out.to(a.dtype)


def _linear(x, weight, bias=None):
    out = _product(x if x.dim() > 1 else x[None], weight.T)
    return out if bias is None else out + bias


def _exponentials(x, dim):
    return exp2_approx(x - x.amax(dim, keepdim=True))


def _softmax(x, dim=-1, **_):
    e = _exponentials(x, dim)
    return e / e.flip(dim).sum(dim, keepdim=True)


def _log_softmax(x, dim=-1, **_):
    return x - x.amax(dim, keepdim=True) - torch.log(_exponentials(x, dim).sum(dim, keepdim=True))


def _logsumexp(x, dim=-1, keepdim=False):
    out = torch.log(_exponentials(x, dim).sum(dim, keepdim=True)) + x.amax(dim, keepdim=True)
    return out if keepdim else out.squeeze(dim)


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_):
    scores = _product(q, k.mT) * (scale or q.shape[-1] ** -0.5)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return _product(_softmax(scores), v)


def _sigmoid(x):
    return 1 / (1 + exp2_approx(-x))


def _tanh(x):
    return 2 * _sigmoid(2 * x) - 1


def _gelu(x, approximate="none"):
    if approximate == "none":
        return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
    return x * _sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))


def _moments(x, dims):
    mean = (
        x.flip(dims).sum(dims, keepdim=True) / x[0].numel()
        if dims == list(range(1, x.dim()))
        else x.mean(dims, keepdim=True)
    )
    return mean, ((x - mean) ** 2).flip(dims).mean(dims, keepdim=True)


def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    mean, variance = _moments(x, list(range(x.dim() - len(shape), x.dim())))
    y = (x - mean) * torch.rsqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    split = x.reshape(x.shape[0], groups, -1)
    mean, variance = _moments(split, [2])
    y = ((split - mean) / torch.sqrt(variance + eps)).reshape(x.shape)
    shape = (1, -1, *[1] * (x.dim() - 2))
    return y * weight.view(shape) + bias.view(shape)


def _sum(x, dim=None, keepdim=False, **_):
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return x.flip(dims).sum(dims, keepdim=keepdim)


def _mean(x, dim=None, keepdim=False, **_):
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return _sum(x, dims, keepdim) * (1 / torch.Size([x.shape[d] for d in dims]).numel())


def _cumsum(x, dim=-1):
    moved, total, out = x.movedim(dim, -1), 0.0, []
    for part in moved.unbind(-1):
        total = total + part
        out.append(total)
    return torch.stack(out, -1).movedim(-1, dim)


OTHER_WAYS = {
    "exp": exp2_approx,
    "scaled_dot_product_attention": _attention,
    "matmul": _product,
    "__matmul__": _product,
    "bmm": _product,
    "mm": _product,
    "linear": _linear,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "sigmoid": _sigmoid,
    "silu": lambda x, inplace=False: x * _sigmoid(x),
    "tanh": _tanh,
    "gelu": _gelu,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "sum": _sum,
    "mean": _mean,
    "cumsum": _cumsum,
    "div": lambda a, b: a * (1 / b),
    "__truediv__": lambda a, b: a * (1 / b),
}


class _OtherWays(TorchFunctionMode):
    """The same forward pass by other, honest arithmetic."""

    def __init__(self, ways):
        self.ways, self.used = ways, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        way = self.ways.get(getattr(func, "__name__", ""))
        floating = args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point()
        if way is None or not floating:
            return func(*args, **(kwargs or {}))
        self.used += 1
        return way(*args, **(kwargs or {}))


def _headrooms(problem, ways):
    """By draw: the worst output's error over what is allowed. And how many calls went another way."""
    reference, found, used = Reference(problem, "cpu"), {}, 0
    model = reference.model(1)
    shake_weights(model, 2)
    for seed, draw in enumerate(Draw):
        inputs = reference.inputs(10 + seed)
        apply(draw, inputs)
        copies = [[v.clone() if isinstance(v, torch.Tensor) else v for v in inputs] for _ in range(3)]
        eager, exact = reference.run(model, copies[0], 3), reference.run(double(model), doubled(copies[1]), 3)
        if not all(bool(o.isfinite().all()) for o in eager):
            continue
        shaken = reference.run(model, shake(copies[2], 4), 3)
        with _OtherWays(ways) as mode:
            other = reference.run(model, inputs, 3)
        used += mode.used
        found[str(draw)] = max(
            measure(*four[:3], shaken=four[3]).headroom for four in zip(other, eager, exact, shaken, strict=True)
        )
    return found, used


@pytest.mark.parametrize("path", CATALOGUE, ids=lambda p: p.stem)
def test_another_honest_way_passes_on_every_draw(path):
    problem = Problem(name=path.stem, source=path.read_text())
    found, _ = _headrooms(problem.with_sizes(problem.cpu_sizes), OTHER_WAYS)
    assert max(found.values()) <= 1.0, found


@pytest.mark.parametrize("name", ["matmul", "matmul_bias_relu", "linear_gelu", "batched_matmul"])
def test_tf32_products_fail_on_some_draw(name):
    path = next(p for p in CATALOGUE if p.stem == name)
    problem = Problem(name=name, source=path.read_text())
    found, used = _headrooms(
        problem.with_sizes(problem.cpu_sizes),
        {n: lambda a, b, **_: _product(a, b, tf32) for n in ("matmul", "__matmul__", "bmm", "mm")}
        | {"linear": lambda x, w, b=None: _product(x, w.T, tf32) + (0 if b is None else b)},
    )
    assert used
    assert max(found.values()) > 1.0, found
