"""A mismatch is named as a kernel engineer would name it, from real wrong computations."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from bench import tolerance as bench
from kernelwright.tools.comparing.comparison import measure
from kernelwright.tools.comparing.mismatch_patterns import explain_mismatch
from kernelwright.tools.report import Pattern

torch.manual_seed(3)


def _x(rows=67, columns=515):
    return torch.randn(rows, columns)


def _copied_in_blocks(x, block, poison=0.0, from_element=0):
    """A kernel whose grid is numel // block: the last block is never stored."""
    flat = x.flatten()
    out = torch.full_like(flat, poison)
    whole = flat.numel() // block * block
    out[:whole] = flat[:whole]
    return out.view_as(x)


def _missing_last_columns(x, block=128):
    out, whole = x.clone() * 2, x.shape[1] // block * block
    out[:, whole:] = 7.0
    return out


def _interleaved(x, k):
    """Every k-th element of a doubling taken from its neighbour."""
    out = (x * 2).flatten()
    out[::k] = (x * 2).flatten().roll(-1)[::k] + 1.0
    return out.view_as(x)


def _softmax_without_sum(x):
    return torch.exp(x - x.amax(-1, keepdim=True))


def _unmasked_softmax(x):
    """Row 11 holds an infinity minus an infinity."""
    x = x.clone()
    x[11:] = math.inf
    return torch.softmax(x, -1)


def _half_accumulator(x):
    return (x.half() * x.half()).float()


def _second_program_reads_the_first(x):
    out = x.relu() + 1
    out[16:32] = x[0:16].relu() + 1
    return out


def _narrow(x):
    return x.clamp(-500, 500)


def _cases():
    x, square = _x(), torch.randn(96, 96)
    big = torch.randn(67, 515)
    big[torch.rand(67, 515) < 0.02] *= 1000
    bias, weight = torch.randn(515), torch.randn(515)
    a, b = torch.randn(65, 256), torch.randn(256, 130)
    soft = torch.softmax(x.double(), -1)
    return {
        "mask of the last columns": (_missing_last_columns(x), x.double() * 2, Pattern.LAST_BLOCK),
        "grid one block short": (
            _copied_in_blocks(x + 5, 1024, poison=2.0),
            x.double() + 5,
            Pattern.LAST_BLOCK,
        ),
        "every fourth element": (_interleaved(x, 4), x.double() * 2, Pattern.STRIDED),
        "columns of another stride": (
            torch.where(torch.arange(515) % 3 == 1, x.flip(0) + 2, x),
            x.double(),
            Pattern.STRIDED,
        ),
        "mean instead of sum": (x.mean(-1), x.double().sum(-1), Pattern.SCALED),
        "one over d": (a @ b / 16, (a.double() @ b.double()), Pattern.SCALED),
        "softmax without its sum": (_softmax_without_sum(x), soft, Pattern.SCALED),
        "plus one": (x + 1, x.double(), Pattern.SHIFTED),
        "no bias": (x, x.double() + bias, Pattern.SHIFTED),
        "no row maximum": (x, x.double() - x.double().amax(-1, keepdim=True), Pattern.SHIFTED),
        "no weight": (x, x.double() * weight, Pattern.SCALED),
        "never written": (torch.zeros_like(x), x.double().exp(), Pattern.ZEROS),
        "poison": (
            torch.full((67, 515), -1, dtype=torch.int32).view(torch.float32),
            x.double(),
            Pattern.UNWRITTEN,
        ),
        "swapped strides": (square.T.contiguous(), square.double(), Pattern.TRANSPOSED),
        "written as its transpose": (
            (a @ b).T.contiguous().view(65, 130),
            a.double() @ b.double(),
            Pattern.TRANSPOSED,
        ),
        "infinity minus infinity": (_unmasked_softmax(x), soft, Pattern.NON_FINITE_ROWS),
        "half overflows": (
            _half_accumulator(big * 10),
            (big * 10).double() ** 2,
            Pattern.LARGE_VALUES,
        ),
        "clamped accumulator": (_narrow(big), big.double(), Pattern.LARGE_VALUES),
        "tf32": (bench.tf32(a) @ bench.tf32(b), a.double() @ b.double(), Pattern.ROUNDING),
        "bf16 exp": (torch.exp(x.bfloat16()).float(), x.double().exp(), Pattern.ROUNDING),
        "rows of another program": (
            _second_program_reads_the_first(x),
            x.double().relu() + 1,
            Pattern.SOME_ROWS,
        ),
        "another function": (
            torch.sin(x * 3),
            torch.cos(x.double()) + x.double(),
            Pattern.EVERYWHERE,
        ),
    }


CASES = _cases()


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_computation_is_named(name):
    got, exact, pattern = CASES[name]
    mismatch = measure(got, exact.float(), exact).mismatch
    assert mismatch is not None
    assert mismatch.pattern is pattern, mismatch.hint
    assert mismatch.hint.endswith(".")
    assert 0 < mismatch.wrong <= mismatch.total == exact.numel()
    assert len(mismatch.worst) == min(5, mismatch.wrong)


def test_first_and_worst_elements_are_exact():
    x = torch.randn(20, 40, dtype=torch.float64)
    got = x.float()
    got[3, 4] += 1
    got[7, 9] += 5
    got[0, 39] -= 2
    found = measure(got, x.float(), x).mismatch
    assert found.first.index == (0, 39)
    assert [w.index for w in found.worst] == [(7, 9), (0, 39), (3, 4)]
    assert found.worst[0].got - found.worst[0].expected == pytest.approx(5, abs=1e-5)


def test_a_poison_that_the_judge_names_is_known():
    x = torch.randn(64, 64)
    got = x.clone()
    got[:, 32:] = -7.25
    assert (
        explain_mismatch(got, x.double(), got != x, poisons=(-7.25,)).pattern is Pattern.UNWRITTEN
    )
    got[:, 32:] = math.nan
    assert (
        explain_mismatch(got, x.double(), got != x, poisons=(math.nan,)).pattern
        is Pattern.UNWRITTEN
    )
    assert explain_mismatch(got, x.double(), got != x).pattern is Pattern.NON_FINITE_ROWS
    got[:, 32:] = torch.tensor(0x4B4B4B4B, dtype=torch.int32).view(torch.float32)
    assert explain_mismatch(got, x.double(), got != x).pattern is Pattern.UNWRITTEN


def test_an_image_whose_last_channels_are_masked_away_is_a_last_block():
    image = torch.randn(2, 10, 33, 35)
    got = F.relu(image) + 1
    got[:, 8:] = 3.0
    found = measure(got, F.relu(image) + 1, F.relu(image).double() + 1).mismatch
    assert found.pattern is Pattern.LAST_BLOCK
    assert "dimension 1" in found.hint


def test_nothing_wrong_explains_nothing():
    x = torch.randn(3, 3)
    assert explain_mismatch(x, x.double(), x != x).pattern is None


def test_whole_numbers_and_scalars_are_explained():
    flags = torch.arange(1000).view(10, 100)
    assert measure(flags + 1, flags, flags).mismatch.pattern is Pattern.SHIFTED
    assert measure(~(flags > 500), flags > 500, flags > 500).mismatch.pattern is Pattern.EVERYWHERE
    assert (
        measure(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(1.0).double()).mismatch
        is not None
    )


def test_a_whole_number_of_ones_alone_is_an_answer_and_a_scalar_has_no_end():
    signs = torch.tensor([-1, 1] * 500, dtype=torch.int32)
    assert (
        measure(torch.full_like(signs, -1), signs, signs).mismatch.pattern is not Pattern.UNWRITTEN
    )
    scalar = measure(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(1.0).double()).mismatch
    assert scalar.pattern is not Pattern.LAST_BLOCK


def test_many_elements_take_little_time_and_memory():
    x = torch.randn(2000, 6000)
    found = measure(torch.cos(x), x, x.double())
    assert found.mismatch.pattern is Pattern.EVERYWHERE
    assert found.mismatch.wrong > 11_000_000
