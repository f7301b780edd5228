"""Kernels sum in other orders, exponentiate by ex2.approx and build sigmoids from it.

On every draw of the judge, over the whole catalogue, that must pass.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from bench.tolerance import bf16, constant_rows, exp2_approx, fp16, headrooms, tf32, within
from kernelwright.tools.comparing.comparison import measure
from kernelwright.tools.expected.perturbed_outputs import outputs_of_perturbed_inputs
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.expected.weights import perturbed_model
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw, apply_draw

CATALOGUE = sorted(
    (Path(__file__).parents[3] / "agent" / "problems" / "catalogue").glob("[!_]*.py")
)


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
        scores = scores.masked_fill(
            torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf")
        )
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
    prepared, found, used = prepare_problem(problem, "cpu", 1), {}, 0
    model = perturbed_model(prepared, 2)
    for seed, draw in enumerate(Draw):
        if draw is Draw.SUBNORMAL:  # asked where no operator rounds, or of float16, alone
            continue
        expected = expected_outputs(prepared, draw, 10 + seed, model=model)
        if not expected.finite():
            continue
        with _OtherWays(ways) as mode:
            other = prepared.reference.run(
                model, [v.clone() for v in expected.inputs], expected.rng
            )
        used += mode.used
        moved = outputs_of_perturbed_inputs(prepared, expected)
        four = zip(other, expected.eager, expected.exact, moved, strict=False)
        found[str(draw)] = max(
            measure(c, e, r, draw=str(draw), perturbed=s).headroom for c, e, r, s in four
        )
    return found, used


@pytest.mark.slow
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


def _tanh_by_exp(x):
    """Right to an ulp of 1 everywhere; the tail of a GELU is that ulp."""
    e = torch.exp(-2 * x.abs())
    t = (1 - e) / (1 + e)
    return torch.where(x >= 0, t, -t)


def _gelu_by_exp(x):
    return 0.5 * x * (1 + _tanh_by_exp(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def test_a_row_of_one_number_on_which_eager_is_right_by_luck_is_no_fault_and_no_pass_for_lower_precision():
    path = next(p for p in CATALOGUE if p.stem == "fused_gelu")
    problem = Problem(name=path.stem, source=path.read_text())
    prepared = prepare_problem(problem.with_sizes(problem.cpu_sizes), "cpu", 1)
    lucky = 0
    for seed in range(400):
        expected = expected_outputs(prepared, Draw.CONSTANT_ROWS, seed)
        [x], [eager], [exact] = expected.inputs, expected.eager, expected.exact
        honest = _gelu_by_exp(x)
        if measure(honest, eager, exact).check.passed:
            continue
        lucky += 1
        [perturbed] = outputs_of_perturbed_inputs(prepared, expected)
        assert measure(honest, eager, exact, perturbed=perturbed).headroom < 0.75, seed
        for cast in (tf32, bf16, fp16):
            cheat = within(cast, _gelu_by_exp)(x)
            assert measure(cheat, eager, exact, perturbed=perturbed).headroom > 2, (
                seed,
                cast.__name__,
            )
    assert lucky


def test_thousands_of_rows_of_one_number_some_next_to_a_zero_of_the_function_pass_and_in_lower_precision_they_do_not():
    torch.manual_seed(0)
    for case in [*constant_rows(8), *constant_rows(4096)]:
        assert max(headrooms(case, case.honest).values()) < 0.5, case.name
        assert min(headrooms(case, case.cheats).values()) > 10, case.name
        assert max(headrooms(replace(case, draw="own"), case.honest).values()) < 1, case.name


MARKS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        if (x - x.round()).abs().max() > 0.001:
            raise ValueError("marks are whole numbers")
        return x / 3
def get_inputs():
    return [torch.randint(1, 7, (5, 67)).float()]
def get_init_inputs():
    return []
"""


def test_a_reference_that_refuses_inputs_nearby_is_moved_by_ulps_alone():
    prepared = prepare_problem(Problem(name="marks", source=MARKS), "cpu", 1)
    expected = expected_outputs(prepared, Draw.CONSTANT_ROWS, 1)
    [moved] = outputs_of_perturbed_inputs(prepared, expected)
    assert 0 < (moved - expected.eager[0]).abs().max() < 1e-4


ATTENTION = """
import torch
class Model(torch.nn.Module):
    def forward(self, query, key, value):
        scores = torch.zeros(*query.shape[:-1], key.shape[-2], dtype=query.dtype)
        for at in range(0, 64, 8):
            part = query[..., at:at + 8].double() @ key[..., at:at + 8].double().mT
            scores = scores + part.to(query.dtype)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return torch.softmax((scores * 0.125).masked_fill(later, float("-inf")), -1) @ value
def get_inputs():
    return [torch.randn(4, 256, 64) * 2.0, torch.randn(4, 256, 64), torch.randn(4, 256, 64)]
def get_init_inputs():
    return []
"""
"""Eager's on a GPU: eight terms of a score at a time, as a tensor core adds them."""


def _causal(scores, value):
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ value


def _term_by_term(query, key):
    """Scores as the threads of a kernel add them: one fused product after the other.

    Equal terms are all rounded the same way.
    """
    scores = torch.zeros(*query.shape[:-1], key.shape[-2])
    for at in range(query.shape[-1]):
        scores = (
            scores.double() + query[..., at, None].double() * key[..., None, :, at].double()
        ).float()
    return scores * 0.125


def test_scores_of_constant_rows_added_term_by_term_pass_and_in_lower_precision_they_do_not():
    prepared = prepare_problem(Problem(name="attention", source=ATTENTION), "cpu", 1)
    for seed in range(4):
        expected = expected_outputs(prepared, Draw.CONSTANT_ROWS, seed)
        [query, key, value], [eager], [exact] = expected.inputs, expected.eager, expected.exact
        [perturbed] = outputs_of_perturbed_inputs(prepared, expected)
        honest = _causal(_term_by_term(query, key), value)
        assert measure(honest, eager, exact, perturbed=perturbed).headroom < 0.3, seed
        for cast in (tf32, bf16, fp16):
            cheat = _causal(cast(query) @ cast(key).mT * 0.125, value)
            assert measure(cheat, eager, exact, perturbed=perturbed).headroom > 5, (
                seed,
                cast.__name__,
            )


NORMALISED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        x = torch.nn.functional.elu(x)
        return x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-6)
def get_inputs():
    return [torch.randn(2048, 45)]
def get_init_inputs():
    return []
"""


def test_constant_rows_are_not_tiny_for_what_a_row_is_divided_by_its_own_size_shows_every_rounding():
    prepared = prepare_problem(Problem(name="normalised", source=NORMALISED), "cpu", 1)
    expected = expected_outputs(prepared, Draw.CONSTANT_ROWS, 1)
    [x], [eager], [exact] = expected.inputs, expected.eager, expected.exact
    assert x.abs().min() > 0.1
    assert (x < 0).any()
    naive = torch.where(x > 0, x, exp2_approx(x) - 1)
    honest = naive / torch.sqrt(torch.mean(naive * naive, dim=-1, keepdim=True) + 1e-6)
    assert measure(honest, eager, exact, draw="constant_rows").check.passed


@pytest.mark.parametrize(
    ("row", "filled_with"),
    [
        ([0.01, -0.3, 2.0, 5.0], 5.0),
        ([0.01, -0.3, 2.0, -3.5], 2.0),
        ([-1.0] * 4, -1.0),
        ([1e-9, 2e-9, 3e-9, 4e-9], 2e-9),
        ([0.0, 1.0, 2.0, 3.0], None),
    ],
)
def test_a_constant_row_is_the_first_of_its_numbers_that_is_no_small_one(row, filled_with):
    drawn = torch.tensor([row, row])
    apply_draw(Draw.CONSTANT_ROWS, [drawn])
    expected = row if filled_with is None else [filled_with] * 4
    assert torch.equal(drawn, torch.tensor([expected] * 2))


def test_constant_rows_are_the_same_in_pieces_and_in_other_layouts(monkeypatch):
    whole = torch.randn(3, 5, 11, 7)
    pieces, other = whole.clone(), whole.clone(memory_format=torch.channels_last)
    apply_draw(Draw.CONSTANT_ROWS, [whole])
    monkeypatch.setattr("kernelwright.tools.references.input_distributions.CHUNK_ELEMENTS", 16)
    apply_draw(Draw.CONSTANT_ROWS, [pieces, other])
    assert torch.equal(pieces, whole)
    assert torch.equal(other, whole)


def test_a_row_that_is_not_finite_is_filled_all_the_same():
    drawn = torch.full((2, 20), torch.nan)
    apply_draw(Draw.CONSTANT_ROWS, [drawn])
    assert drawn.isnan().all()
