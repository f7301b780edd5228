"""Problems whose answers are constant, or nothing, at extents of 1 and 2, with answers by other honest arithmetic.

Kernels fuse multiplications and additions, multiply by approximate reciprocal square roots, and work a loss out of a
row's logarithm of its sum. Cases of DEVELOPED are those that the tolerance was developed on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kernelwright.tools.problem import Problem

EPS = 1e-5
REFERENCE = """
import torch
import torch.nn.functional as F
rows, columns = ROWS, COLUMNS
class Model(torch.nn.Module):
    def forward(self, ARGUMENTS):
        BODY
def get_inputs():
    return [INPUTS]
def get_init_inputs():
    return []
"""
Answer = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Case:
    """One problem. Its inputs have `rows` and `columns`."""

    name: str
    arguments: str
    body: Sequence[str]
    inputs: str
    honest: Answer
    wrong: Sequence[Answer]
    """Answers that are wrong by what shows, at the extents that are tried."""

    def problem(self, rows: int, columns: int) -> Problem:
        """Returns the problem at a size."""
        source = (
            REFERENCE.replace("ROWS", str(rows))
            .replace("COLUMNS", str(columns))
            .replace("INPUTS", self.inputs)
        )
        source = source.replace("ARGUMENTS", self.arguments).replace(
            "BODY", "\n        ".join(self.body)
        )
        return Problem(name=self.name, source=source)


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Returns a * b + c, rounded once."""
    return (a.double() * b.double() + c.double()).float()


def approximate_rsqrt(x: torch.Tensor) -> torch.Tensor:
    """Returns 1 / sqrt(x), one unit in the last place too small, as PTX's rsqrt.approx may be."""
    return torch.nextafter(x.double().rsqrt().float(), torch.zeros_like(x))


def _sum(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1).cumsum(-1)[..., -1:]


def _mean(x: torch.Tensor) -> torch.Tensor:
    return _sum(x) * (1 / x.shape[-1])


def _log_sum(x: torch.Tensor) -> torch.Tensor:
    largest = x.amax(-1, keepdim=True)
    return largest + torch.log(_sum(torch.exp2((x - largest) * 1.4426950408889634)))


def _l2(x):
    return x * approximate_rsqrt(_sum(x * x))


def _smoothed(x, t, smoothing=0.1):
    log_sum = _log_sum(x)
    loss = (log_sum - x.gather(-1, t[:, None])) * (1 - smoothing)
    smooth = smoothing * log_sum + _sum(-(smoothing / x.shape[-1]) * x)
    return (loss + smooth).mean()


def _layer_norm_gradient(x, g, w):
    mean = _mean(x)
    centred = x - mean
    rstd = approximate_rsqrt(_mean(centred * centred) + EPS)
    h = centred * rstd
    second = _mean(w * g)
    return fma(g, w, -fma(h, _mean(h * (w * g)).expand_as(h), second.expand_as(h))) * rstd


def _temperature(x):
    k = torch.tensor(1 / 0.7)
    largest = (x * k).amax(-1, keepdim=True)
    raised = torch.exp(fma(x, k, -largest))
    return raised / _sum(raised)


def _variance(x):
    centred = fma(_sum(x).expand_as(x), torch.tensor(-1 / x.shape[-1]), x)
    return _mean(centred * centred)[..., 0]


def _tanh(x):
    return 2 / (1 + torch.exp2(-2 * 1.4426950408889634 * x)) - 1


def _log_softmax(x):
    return x - _log_sum(x)


def _rms_norm_gradient(x, g, w):
    rstd = approximate_rsqrt(_mean(x * x) + EPS)
    wg = w * g
    return rstd * fma(-x * rstd * rstd, _mean(wg * x).expand_as(x), wg)


def _cosine(x, y):
    return (
        _sum(x * y)[..., 0]
        * (approximate_rsqrt(_sum(x * x)) * approximate_rsqrt(_sum(y * y)))[..., 0]
    )


def _group_norm(x):
    rstd = approximate_rsqrt(_mean((x - _mean(x)).square()) + EPS)
    return fma(x, rstd.expand_as(x), -(_mean(x) * rstd).expand_as(x))


def _attention(q, k, v):
    scores = q @ k[:1].T * q.shape[-1] ** -0.5
    return torch.exp2((scores - scores) * 1.4426950408889634) @ v[:1]


def _softmax_gradient(x, g):
    y = torch.exp(x - _log_sum(x))
    return fma(y, g, -(y * _sum(y * g)))


def _divergence(x, y):
    p, q = _log_softmax(x), _log_softmax(y)
    return _sum(torch.exp2(p * 1.4426950408889634) * (p - q))[..., 0]


def _l2_gradient(x, g):
    r = approximate_rsqrt(_sum(x * x))
    return r * fma(-x, (_sum(x * g) * r * r).expand_as(x), g)


def _binary_loss(x, y):
    return fma(-x, y, x.clamp(min=0) + torch.log(1 + torch.exp(-x.abs())))


LAYER_NORM_GRADIENT = (
    "mean = x.mean(-1, keepdim=True)",
    "rstd = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)",
    "h, wg = (x - mean) * rstd, g * w",
    "return (wg - wg.mean(-1, keepdim=True) - h * (wg * h).mean(-1, keepdim=True)) * rstd",
)
X = "torch.randn(rows, columns)"
TARGETS = "torch.randint(0, columns, (rows,))"
DEVELOPED = (
    Case("l2_norm", "x", ("return x / x.norm(dim=-1, keepdim=True)",), X, _l2,
         (lambda x: -_l2(x), lambda x: _l2(x) + 1e-3, lambda x: x * torch.rsqrt(_sum(x * x) + 1e-2))),
    Case("smoothed_loss", "x, t", ("return F.cross_entropy(x, t, label_smoothing=0.1)",), f"{X}, {TARGETS}", _smoothed,
         (lambda x, t: _smoothed(x, t) + 1e-3, lambda x, t: (_log_sum(x) - 0.9 * x.gather(-1, t[:, None])).mean(),
          lambda x, t: (0.1 * _log_sum(x) - 0.1 * _mean(x)).mean() - 0.1)),
    Case("layer_norm_gradient", "x, g, w", LAYER_NORM_GRADIENT, f"{X}, {X}, torch.rand(columns) + 0.5",
         _layer_norm_gradient,
         (lambda x, g, w: _layer_norm_gradient(x, g, w) + 1e-2, lambda x, g, w: g * w,
          lambda x, g, w: _layer_norm_gradient(x, g, w) + g * w)),
    Case("softmax_temperature", "x", ("return torch.softmax(x / 0.7, -1)",), X, _temperature,
         (lambda x: _temperature(x) + 1e-3, lambda x: _temperature(x) * 1.001, lambda x: -_temperature(x))),
    Case("variance", "x", ("return x.var(-1, unbiased=False)",), X, _variance,
         (lambda x: _variance(x) + 1e-3, lambda x: (x * x).mean(-1), lambda x: _variance(x) - 1e-2)),
    Case("tanh_and_one", "x", ("return 1 + torch.tanh(x)",), X, lambda x: 1 + _tanh(x),
         (lambda x: 1.001 + _tanh(x), lambda x: 1 - _tanh(x), lambda x: 1 + _tanh(x * 1.01))),
)  # fmt: skip
REPORTED = (
    Case("log_softmax", "x", ("return F.log_softmax(x, -1)",), X, _log_softmax,
         (lambda x: _log_softmax(x) + 1e-3, lambda x: _log_softmax(x) - x, lambda x: 0.001 * x + _log_softmax(x))),
    Case("rms_norm_gradient", "x, g, w", (
         "r, wg = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5), w * g",
         "return r * (wg - x * r * r * (wg * x).mean(-1, keepdim=True))"), f"{X}, {X}, torch.rand(columns) + 0.5",
         _rms_norm_gradient,
         (lambda x, g, w: _rms_norm_gradient(x, g, w) + 1e-1, lambda x, g, w: w * g,
          lambda x, g, w: _rms_norm_gradient(x, g, w) + 0.01 * w * g)),
    Case("cosine", "x, y", ("return F.cosine_similarity(x, y, -1)",), f"{X}, {X}", _cosine,
         (lambda x, y: _cosine(x, y) * 1.001, lambda x, y: -_cosine(x, y), lambda x, y: _cosine(x, y) + 1e-3)),
    Case("group_norm", "x", (
         "return torch.native_group_norm(x[:, None], None, None, len(x), 1, x.shape[1], 1, 1e-5)[0][:, 0]",), X,
         _group_norm,
         (lambda x: _group_norm(x) + 1e-2, lambda x: x, lambda x: _group_norm(x) + 0.01 * x)),
    Case("attention_with_one_key", "q, k, v", (
         "return F.scaled_dot_product_attention(q[None], k[None, :1], v[None, :1])[0]",), f"{X}, {X}, {X}", _attention,
         (lambda q, k, v: _attention(q, k, v) * 1.001, lambda q, k, v: -_attention(q, k, v),
          lambda q, k, v: _attention(q, k, v) + 1e-3)),
    Case("softmax_gradient", "x, g", ("y = torch.softmax(x, -1)", "return y * (g - (y * g).sum(-1, keepdim=True))"),
         f"{X}, {X}", _softmax_gradient,
         (lambda x, g: _softmax_gradient(x, g) + 1e-3, lambda x, g: torch.softmax(x, -1) * g,
          lambda x, g: _softmax_gradient(x, g) + 1e-2 * g)),
    Case("divergence", "x, y", (
         "p, q = F.log_softmax(x, -1), F.log_softmax(y, -1)", "return (p.exp() * (p - q)).sum(-1)"),
         f"{X}, {X}", _divergence,
         (lambda x, y: _divergence(x, y) + 1e-3, lambda x, y: _divergence(x, y) + 1e-3 * x[..., 0],
          lambda x, y: _sum(torch.softmax(x, -1))[..., 0])),
    Case("l2_norm_gradient", "x, g", ("n = x.norm(dim=-1, keepdim=True)",
         "return g / n - x * (x * g).sum(-1, keepdim=True) / n**3"), f"{X}, {X}", _l2_gradient,
         (lambda x, g: _l2_gradient(x, g) + 1e-2 * g, lambda x, g: g * torch.rsqrt(_sum(x * x)),
          lambda x, g: _l2_gradient(x, g) + 1e-1)),
    Case("binary_loss", "x, y", ("return F.binary_cross_entropy_with_logits(x, y, reduction='none')",),
         f"{X}, torch.rand(rows, columns)", _binary_loss,
         (lambda x, y: _binary_loss(x, y) + 1e-3, lambda x, y: _binary_loss(x, 1 - y),
          lambda x, y: _binary_loss(x, y) * 1.001)),
)  # fmt: skip
