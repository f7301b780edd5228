"""The comparison: what is right up to rounding passes, what is computed with less does not."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from bench import tolerance as bench
from kernelwright.tools.comparing.comparison import (
    describe,
    failure_of,
    form,
    kernelbench_close,
    measure,
)
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.numerics.tolerance import (
    Tolerance,
    perturb,
    real_parts,
    rows_of,
    scale_towards_zero,
    tiles,
)
from kernelwright.tools.report import Fault, Pattern
from kernelwright.tools.trace.forms_of_outputs import flatten

torch.manual_seed(7)
CASES = list(bench.cases())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_honest_order_passes_and_every_cheat_fails(case):
    honest, cheats = bench.headrooms(case, case.honest), bench.headrooms(case, case.cheats)
    print(
        f"{case.name}: separation {min(cheats.values()) / max(*honest.values(), 1e-9):.0f}",
        honest,
        cheats,
    )
    assert max(honest.values()) < 0.75
    assert min(cheats.values()) > 1.1
    assert min(cheats.values()) > 4 * max(honest.values())


def _matmul(k=512):
    a, b = torch.randn(65, k), torch.randn(k, 130)
    return a, b, a @ b, a.double() @ b.double()


def test_tf32_for_fp32_is_a_precision_fault_that_names_the_cure():
    a, b, e, r = _matmul()
    found = measure(bench.tf32(a) @ bench.tf32(b), e, r)
    failure = failure_of(found)
    assert failure is not None
    assert failure.fault is Fault.PRECISION
    assert failure.mismatch is not None
    assert failure.mismatch.pattern is Pattern.ROUNDING
    assert 'input_precision="ieee"' in failure.message
    assert 6 < found.check.error_ratio < 5000


def test_eager_itself_passes_with_a_ratio_of_one_and_has_no_failure():
    _, _, e, r = _matmul()
    found = measure(e.clone(), e, r)
    assert found.check.passed
    assert found.check.error_ratio == 1.0
    assert failure_of(found) is None


def test_one_wrong_element_among_millions_is_found():
    x = torch.randn(3000, 1111)
    c = x.clone()
    c[2999, 1110] += 0.01
    found = measure(c, x, x.double())
    assert found.fault is Fault.MISMATCH
    assert found.mismatch.wrong == 1
    assert found.mismatch.first.index == (2999, 1110)


def test_a_long_vector_is_judged_in_pieces():
    x = torch.randn(5_000_001)
    c = x.clone()
    c[-1] = 0.0
    assert measure(x.clone(), x, x.double()).check.passed
    found = measure(c, x, x.double())
    assert found.mismatch.first.index == (5_000_000,)
    assert [(d.stop - d.start) * (a.stop - a.start) for d, a in tiles(1, 5_000_001, "cpu")] == [
        1 << 22,
        5_000_001 - (1 << 22),
    ]


def test_nan_and_infinity_must_stand_where_the_reference_has_them():
    r = torch.tensor([[1.0, math.inf, -math.inf, math.nan] * 10], dtype=torch.float64)
    e = r.float()
    assert measure(e.clone(), e, r).check.passed
    for place, value in ((0, math.nan), (1, -math.inf), (1, 5.0), (3, 0.0), (0, math.inf)):
        c = e.clone()
        c[0, place] = value
        found = measure(c, e, r)
        assert not found.check.passed, (place, value)
        assert found.fault is Fault.NON_FINITE


def test_an_overflow_that_eager_has_too_is_right():
    r = torch.full((4, 64), 1e5, dtype=torch.float64)
    assert measure(r.half(), r.half(), r).check.passed
    assert not measure(torch.full((4, 64), 6e4).half(), r.half(), r).check.passed


def test_whole_numbers_are_exact_unless_eager_itself_is_off():
    x = torch.randn(64, 1000)
    e = x.argmax(-1)
    c = e.clone()
    c[5] += 1
    assert measure(e.clone(), e, e).check.passed
    assert measure(c, e, e).fault is Fault.MISMATCH
    assert not measure(e % 2 == 0, e % 2 == 1, e % 2 == 1).check.passed


def _quantised(x, scale):
    return torch.round(x / scale).clamp(-128, 127)


@pytest.mark.parametrize(
    ("dtype", "signed"), [(torch.uint16, 32), (torch.uint32, 64), (torch.uint64, 64)]
)
def test_unsigned_numbers_are_compared_as_signed_ones_for_which_a_gpu_has_operators(dtype, signed):
    eager = torch.tensor([0, 7, torch.iinfo(dtype).max // 2 - 1] * 32).to(dtype)
    wrong = torch.tensor([0, 7, 9] * 32).to(dtype)
    assert real_parts(eager).dtype == getattr(torch, f"int{signed}")
    for kind in (ArithmeticKind.EXACT, ArithmeticKind.STEPPED):
        assert measure(eager.clone(), eager, eager.clone(), kind=kind).check.passed
        found = measure(wrong, eager, eager.clone(), kind=kind)
        assert found.mismatch.wrong == 32
        assert found.mismatch.first.got == 9


def test_a_rounding_that_falls_on_the_other_side_is_no_fault_where_eager_jumps_too():
    x = torch.randint(-200, 200, (500, 67)).float() * 0.05
    scale = x.abs().amax(-1, keepdim=True) / 127
    e, r = (
        _quantised(x, scale).to(torch.int8),
        _quantised(x.double(), scale.double()).to(torch.int8),
    )
    honest = torch.round(x * (1 / scale)).clamp(-128, 127).to(torch.int8)
    perturbed = _quantised(x * (1 + 4e-7), scale).to(torch.int8)
    assert measure(honest, e, r, perturbed=perturbed).check.passed
    assert not measure(
        torch.floor(x / scale).clamp(-128, 127).to(torch.int8), e, r, perturbed=perturbed
    ).check.passed


def test_a_fake_quantised_row_may_step_where_the_perturbed_reference_steps():
    x = torch.randn(4000, 64)
    scale = torch.full((4000, 1), 0.05)
    x[::50, 3] = 0.05 * 2.5
    e = torch.round(x / scale) * scale
    r = torch.round(x.double() / scale.double()) * scale.double()
    honest = torch.round(x * 20.0) * scale
    perturbed = torch.round(x * (1 + 4e-7) / scale) * scale
    assert measure(honest, e, r, perturbed=perturbed).check.passed
    assert not measure(torch.floor(x / scale) * scale, e, r, perturbed=perturbed).check.passed


def test_constant_rows_of_a_layer_norm_pass_because_the_perturbed_reference_shows_their_condition():
    x = torch.full((64, 100), 37.3) * torch.linspace(0.5, 2, 64)[:, None]
    honest = bench._one_pass_norm(torch.randn(64, 100)) * 0 + bench._two_pass_norm(x)
    r, perturbed = (
        F.layer_norm(x.double(), (100,)),
        F.layer_norm(perturb([x], 5)[0].double(), (100,)),
    )
    assert measure(honest, F.layer_norm(x, (100,)), r, perturbed=perturbed).check.passed
    assert not measure(honest + 0.1, F.layer_norm(x, (100,)), r, perturbed=perturbed).check.passed


def test_without_a_float64_reference_the_carried_tolerance_serves():
    a, b, e, r = _matmul(2048)
    carried = measure(e, e, r).tolerance
    a2 = torch.randn_like(a)
    honest = bench.blocks(torch.matmul, 16, a2, b)
    assert carried.row > 0
    assert measure(honest, a2 @ b, None, tolerance=carried).check.passed
    found = measure(bench.tf32(a2) @ bench.tf32(b), a2 @ b, None, tolerance=carried)
    assert found.fault is Fault.PRECISION
    assert found.check.error_ratio is None


def test_tolerances_join_to_the_larger_of_both():
    assert Tolerance(row=1, rms=4).joined(Tolerance(row=2, rms=3)) == Tolerance(row=2, rms=4)


def test_scalars_empty_outputs_and_complex_numbers_are_compared():
    s = torch.tensor(3.0)
    assert measure(s.clone(), s, s.double()).check.passed
    assert not measure(s + 1e-3, s, s.double()).check.passed
    empty = torch.empty(0, 5)
    assert measure(empty, empty, empty.double()).check.passed
    z = torch.randn(8, 40, dtype=torch.complex64)
    assert measure(z.clone(), z, z.to(torch.complex128)).check.passed
    assert not measure(z.conj().resolve_conj(), z, z.to(torch.complex128)).check.passed


def test_outputs_of_another_memory_order_are_compared_by_value():
    r = torch.randn(4, 8, 16, 16, dtype=torch.float64)
    e = r.float().to(memory_format=torch.channels_last)
    assert measure(r.float(), e, r).check.passed


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((), (1, 1)),
        ((9,), (1, 9)),
        ((5, 64), (5, 64)),
        ((7, 1), (1, 7)),
        ((50, 4, 8), (50, 32)),
        ((0, 3), (1, 0)),
    ],
)
def test_rows_hold_at_least_32_elements(shape, expected):
    assert rows_of(shape) == expected


class _Disguised(torch.Tensor):
    pass


def test_form_is_looked_at_before_numbers():
    want = [describe(torch.ones(2, 3))]
    assert form(want, want) is None
    wrong = {
        Fault.OUTPUT: [
            torch.ones(2, 3).as_subclass(_Disguised),
            torch.nn.Parameter(torch.ones(2, 3)),
            None,
            1.5,
            [1.0],
        ],
        Fault.SHAPE: [torch.ones(3, 2), torch.ones(2, 3, 1)],
        Fault.DTYPE: [torch.ones(2, 3).double(), torch.ones(2, 3).half()],
        Fault.LAYOUT: [torch.ones(1, 3).expand(2, 3), torch.ones(2, 3).to_sparse()],
    }
    for fault, values in wrong.items():
        for value in values:
            failure = form([describe(value)], want)
            assert failure is not None
            assert failure.fault is fault
    assert form([describe(torch.ones(2, 3, device="meta"))], want).fault is Fault.OUTPUT
    assert form([], want).fault is Fault.OUTPUT


def test_a_contiguous_output_stands_for_a_view():
    assert form([describe(torch.ones(2, 3))], [describe(torch.ones(3, 2).T)]) is None
    assert form([describe(torch.ones(3, 2).T)], [describe(torch.ones(2, 3))]) is None
    assert form([describe(torch.ones(2, 3))], [describe(torch.ones(1, 3).expand(2, 3))]) is None


def test_nested_outputs_are_flattened_in_order():
    assert flatten((1, [2, (3,)], {"a": 4})) == [1, 2, 3, 4]


def test_kernelbenchs_own_rule_is_its_allclose():
    e = torch.randn(100, 100)
    assert kernelbench_close(e + 5e-5, e)
    assert not kernelbench_close(e + 3e-4, e)
    assert kernelbench_close(e.half() + 5e-3, e.half(), "fp16")
    assert not kernelbench_close(e.double(), e)
    assert not kernelbench_close(e[:1], e)
    assert not kernelbench_close(torch.full_like(e, math.nan), torch.full_like(e, math.nan))
    assert kernelbench_close(torch.arange(5), torch.arange(5))


def test_shaking_moves_every_element_by_a_few_ulps_and_leaves_zeros_and_whole_numbers():
    x = torch.tensor([0.0, 1.0, -2.0] * 100)
    whole = torch.arange(3)
    moved, same, number = perturb([x, whole, 5], seed=1)
    assert (moved[::3] == 0).all()
    assert 0 < (moved - x).abs().max() <= 8 * 2**-22
    assert len(set(moved[1::3].tolist())) > 4
    assert same is whole
    assert number == 5


def test_a_tie_is_moved_to_both_sides_by_a_noise_and_its_mirror_image():
    halves = torch.arange(4096, dtype=torch.float32) + 0.5
    moved, mirrored = (perturb([halves], seed=2, ulps=16, mirrored=m)[0] for m in (False, True))
    assert torch.equal(moved - halves, halves - mirrored)
    is_moved = moved != halves
    assert is_moved.float().mean() > 0.9
    assert torch.equal(is_moved, torch.round(moved) != torch.round(mirrored))


def test_lessening_brings_every_element_a_little_nearer_to_zero_and_leaves_zeros_and_whole_numbers():
    x = torch.tensor([0.0, 1.0, -2.0] * 100)
    whole = torch.arange(3)
    moved, same, number = scale_towards_zero([x, whole, 5], seed=1)
    assert (moved[::3] == 0).all()
    assert (moved / x)[1::3].min() >= 1 - 1 / 64
    assert (moved.abs() <= x.abs()).all()
    assert len(set(moved[1::3].tolist())) > 90
    assert same is whole
    assert number == 5


def _overflowing(share: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A right candidate in float16, eager's answer with a share of NaN, and the exact one."""
    exact = 1e4 * torch.randn(64, 96, dtype=torch.float64)
    right = (exact * (1 + 2e-3 * torch.randn_like(exact))).half()
    eager = (exact * (1 + 2e-3 * torch.randn_like(exact))).half()
    eager[: int(share * len(eager))] = math.nan
    return right, eager, exact


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_where_eager_overflowed_the_noise_of_its_other_rows_counts(share):
    right, eager, exact = _overflowing(share)
    assert measure(right, eager, exact).check.passed
    assert not measure((exact * 1.1).half(), eager, exact).check.passed


def test_where_eager_overflowed_everywhere_its_noise_on_another_draw_counts():
    right, eager, exact = _overflowing(0.0)
    elsewhere = measure(eager, eager, exact).tolerance
    eager[:] = math.nan
    assert not measure(right, eager, exact).check.passed
    assert measure(right, eager, exact, tolerance=elsewhere).check.passed
    assert not measure((exact * 1.1).half(), eager, exact, tolerance=elsewhere).check.passed


def test_an_answer_beyond_the_type_may_be_infinite_where_eager_is_not():
    exact = torch.tensor([[7e4, -2e5, 3.0] * 32], dtype=torch.float64)
    eager = exact.clamp(-6e4, 6e4).half()
    assert measure(exact.half(), eager, exact).check.passed
    assert not measure(-exact.half(), eager, exact).check.passed
