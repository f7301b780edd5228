"""Memory that nobody has set, and what is moved on between calls."""

from __future__ import annotations

import torch

from kernelwright.tools.replaying.kept_memory import as_if_called_again
from kernelwright.tools.replaying.noise import NOISE, fill_memory


def filled(dtype, poison):
    tensor = torch.empty(1000, dtype=dtype)
    fill_memory(tensor.view(torch.uint8), tensor, poison)
    return tensor


def test_noise_is_ordinary_numbers_of_every_type():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        numbers = filled(dtype, NOISE)
        assert numbers.isfinite().all()
        assert 0.5 < numbers.double().std() < 2
    for dtype in (torch.int8, torch.int32, torch.int64):
        assert set(filled(dtype, NOISE).tolist()) == {0, 1, 2, 3}
    assert set(filled(torch.bool, NOISE).tolist()) == {True, False}
    assert filled(torch.float8_e4m3fn, NOISE).float().isfinite().all()


def test_a_poison_that_is_a_byte_fills_every_byte():
    assert (filled(torch.float32, 0x4B).view(torch.uint8) == 0x4B).all()


def test_a_counter_is_moved_on_and_what_stays_the_same_is_not():
    before = [torch.tensor([3, 5], dtype=torch.int32), torch.ones(2)]
    now = [torch.tensor([4, 5], dtype=torch.int32), torch.ones(2)]
    moved = as_if_called_again(before, now, 100)
    assert list(moved) == [0]
    assert moved[0].tolist() == [104, 5]
    assert moved[0].dtype == torch.int32
