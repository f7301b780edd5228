"""Which elements of a call's inputs are read: by loads, by operators of torch, and through copies that torch makes."""

from __future__ import annotations

import numpy as np
import torch

from kernelwright.tools.replaying.interpreter.extents import ReadElements
from kernelwright.tools.replaying.watching import Watch


def addresses_of(tensor: torch.Tensor) -> np.ndarray:
    steps = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        steps = steps.unsqueeze(-1) + torch.arange(size) * stride
    return (steps.reshape(-1).numpy() * tensor.element_size() + tensor.data_ptr()).astype(np.uint64)


def test_loads_count_where_their_mask_holds_and_in_the_order_of_the_input_s_indices():
    x, y = torch.randn(3, 4).t(), torch.randn(5)
    reads = ReadElements([x, 7, y])
    lanes = np.arange(12) != 1
    reads.note(addresses_of(x.t()), lanes, 4)  # element [0, 1] of the memory is [1, 0] of the input
    assert reads.unread() == [(0, [(3, 4)]), (2, [(0, 5)])]
    reads.note(addresses_of(y), np.ones(5, bool), 4)
    assert reads.unread() == [(0, [(3, 4)])]


def test_a_wide_load_reads_all_elements_that_it_covers():
    x = torch.zeros(16, dtype=torch.int8)
    reads = ReadElements([x])
    reads.note(addresses_of(x)[:8:4], np.ones(2, bool), 4)
    assert reads.unread() == [(0, [(8, 16)])]


def watched(x: torch.Tensor, work) -> list:
    reads = ReadElements([x])
    with Watch([x], reads=reads) as watch:
        outputs = work(reads, x)
    watch.ends_with(outputs)
    return reads.unread()


def test_a_view_reads_nothing_and_an_operator_reads_what_it_is_given():
    x = torch.randn(4, 6)

    def only_views(_: ReadElements, x: torch.Tensor) -> list:
        x[:, 2:].t()
        return []

    assert watched(x, only_views) == [(0, [(0, 24)])]
    assert watched(x.clone(), lambda _, x: [x[:2].mul_(2) * 1]) == [(0, [(12, 24)])]
    assert watched(x.clone(), lambda _, x: [torch.zeros_like(x.zero_())]) == [(0, [(0, 24)])]
    assert watched(x, lambda _, x: [torch.mm(x, torch.ones(6, 2), out=torch.empty(4, 2))]) == []
    assert watched(x, lambda _, x: [x[:2] + 1]) == [(0, [(12, 24)])]
    assert watched(x, lambda _, x: [x[0]]) == [(0, [(6, 24)])]


def test_elements_of_a_copy_count_as_those_that_they_were_copied_from():
    x = torch.randn(4, 6)

    def half_of_a_copy(reads: ReadElements, x: torch.Tensor) -> list:
        copy = x.t().contiguous().to(torch.float64)
        reads.note(addresses_of(copy[:3]), np.ones(12, bool), 8)
        return []

    assert watched(x, half_of_a_copy) == [(0, [(3, 6), (9, 12), (15, 18), (21, 24)])]
    assert watched(x, lambda _, x: [x.clone()]) == []


def test_an_input_whose_elements_share_memory_is_read_through_its_copy():
    x = torch.randn(1, 6).expand(4, 6)

    def a_column(reads: ReadElements, x: torch.Tensor) -> list:
        copy = x.contiguous()
        reads.note(addresses_of(copy[1:2, :5]), np.ones(5, bool), 4)
        return []

    assert watched(x, a_column) == [(0, [(5, 6), (11, 12), (17, 18), (23, 24)])]
