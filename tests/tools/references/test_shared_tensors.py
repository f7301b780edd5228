"""Margins round shared tensors: every single byte of them is looked at."""

import pytest
import torch

from kernelwright.tools.references.shared_tensors import SHARED_MARGIN_BYTES, Buffers


@pytest.mark.parametrize("numbers", [1, 3, 8, 1001])
def test_one_byte_anywhere_in_a_margin_is_seen(numbers):
    buffers = Buffers("cpu")
    shared = buffers.new((numbers,), (1,), torch.uint8)
    shared.fill_margins(0xFF)
    shared.tensor.zero_()
    assert shared.margins_hold(0xFF)
    end = shared.start + shared.nbytes
    for place in (
        0,
        7,
        SHARED_MARGIN_BYTES - 1,
        end,
        end + 1,
        end + 7,
        end + 8,
        end + 4097,
        len(shared.memory) - 1,
    ):
        shared.memory[place] = 0xFE
        assert not shared.margins_hold(0xFF), place
        shared.memory[place] = 0xFF
    assert shared.margins_hold(0xFF)
    buffers.release()
    buffers.trim()


def test_no_more_memory_waits_than_the_bound_and_the_oldest_goes_first():
    buffers = Buffers("cpu", keep=5 << 20)
    for count in (1 << 20, 2 << 20, 3 << 20, 1 << 20):
        buffers.new((count,), (1,), torch.uint8)
        buffers.release()
    assert buffers.waiting <= 5 << 20
    kept = sorted(size >> 20 for size in buffers._free)
    assert kept == [1, 3], "the two that were used last"
    buffers.trim()
    assert buffers.waiting == 0


def test_memory_that_waits_is_used_again():
    buffers = Buffers("cpu")
    first = buffers.new((1000,), (1,), torch.uint8).memory.data_ptr()
    buffers.release()
    assert buffers.new((1000,), (1,), torch.uint8).memory.data_ptr() == first
    buffers.close()


def test_memory_is_given_back_when_the_last_of_a_size_is_in_use():
    """A GPU that was full met a size that was known and of which none waited: the judge ended with an IndexError."""
    buffers = Buffers("cpu", keep=1 << 30)
    small, large = (8,), (1 << 16,)
    for shape in (small, large):
        buffers.new(shape, (1,), torch.float32)
    buffers.release()
    buffers.new(small, (1,), torch.float32)
    buffers.trim()
    assert buffers.waiting == 0
    buffers.release()
    assert buffers.waiting > 0
