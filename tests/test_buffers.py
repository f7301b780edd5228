"""Margins round shared tensors: every single byte of them is looked at."""

import pytest
import torch

from tools.buffers import MARGIN, Buffers


@pytest.mark.parametrize("numbers", [1, 3, 8, 1001])
def test_one_byte_anywhere_in_a_margin_is_seen(numbers):
    buffers = Buffers("cpu")
    shared = buffers.new((numbers,), (1,), torch.uint8)
    shared.fill_margins(0xFF)
    shared.tensor.zero_()
    assert shared.margins_hold(0xFF)
    end = shared.start + shared.nbytes
    for place in (0, 7, MARGIN - 1, end, end + 1, end + 7, end + 8, end + 4097, len(shared.memory) - 1):
        shared.memory[place] = 0xFE
        assert not shared.margins_hold(0xFF), place
        shared.memory[place] = 0xFF
    assert shared.margins_hold(0xFF)
    buffers.release()
    buffers.trim()
