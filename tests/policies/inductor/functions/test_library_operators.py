"""Operators that Inductor leaves to a library, written with others: on real tensors they give what torch gives."""

import pytest
import torch
import torch.nn.functional as F

from kernelwright.policies.inductor.functions.indexing import tensor_split
from kernelwright.policies.inductor.functions.operators import (
    floats,
    losses,
    products,
    resizing,
    segments,
)

TORCH_CTC_LOSS = F.ctc_loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_numbers_are_taken_apart_as_torch_does(dtype: torch.dtype):
    special = [0.0, -0.0, float("inf"), float("nan"), float("-inf"), 1e-42, -1e-40, 6e-8]
    x = torch.cat([torch.randn(50), torch.tensor(special)]).to(dtype)
    mantissa, exponent = floats.frexp(x)
    expected = torch.frexp(x)
    torch.testing.assert_close(mantissa, expected.mantissa, equal_nan=True)
    finite = torch.isfinite(x)
    torch.testing.assert_close(exponent[finite], expected.exponent[finite])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_after_the_first_minus_one_do_not_count(reduction: str):
    x = torch.randn(6, 8)
    rows = [torch.cat([torch.randperm(8)[: i + 1], torch.full((7 - i,), -1)]) for i in range(6)]
    target = torch.stack(rows)
    got = losses.multilabel_margin_loss(x, target, reduction=reduction)
    torch.testing.assert_close(got, F.multilabel_margin_loss(x, target, reduction=reduction))
    row = losses.multilabel_margin_loss(x[0], target[0], reduction=reduction)
    torch.testing.assert_close(row, F.multilabel_margin_loss(x[0], target[0], reduction=reduction))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weight", [None, torch.rand(8)])
def test_a_margin_that_is_not_a_number_does_not_count(p: int, weight: torch.Tensor | None):
    x, target = torch.randn(6, 8), torch.randint(0, 8, (6,))
    x[2, 3] = float("nan")
    for words in ({"reduction": "none"}, {"margin": 0.5}):
        expected = F.multi_margin_loss(x, target, p, weight=weight, **words)
        got = losses.multi_margin_loss(x, target, p, weight=weight, **words)
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("lengths", [[(20, 18, 7), (5, 4, 0)], [(3, 18, 20), (5, 4, 3)]])
def test_the_loss_over_alignments_is_torch_s(reduction: str, lengths: list[tuple[int, ...]]):
    log_probs, targets = torch.randn(20, 3, 10).log_softmax(-1), torch.randint(1, 10, (3, 5))
    targets[0, 1] = targets[0, 0]
    for zero_infinity in (False, True):
        words = (*map(torch.tensor, lengths), 0, reduction, zero_infinity)
        got = losses.ctc_loss(log_probs, targets, *words)
        torch.testing.assert_close(got, TORCH_CTC_LOSS(log_probs, targets, *words))


def test_a_product_of_bytes_is_exact():
    left = torch.randint(-128, 128, (20, 30), dtype=torch.int8)
    right = torch.randint(-128, 128, (30, 16), dtype=torch.int8)
    assert torch.equal(products.int_mm(left, right), torch._int_mm(left, right))


@pytest.mark.parametrize(
    "shapes", [[(64, 32), (4, 32, 48)], [(4, 24, 32), (32, 64)], [(24, 64), (64, 16)]]
)
def test_products_by_group_are_torch_s(shapes: list[tuple[int, ...]]):
    left, right = (torch.randn(shape).bfloat16() for shape in shapes)
    ends = torch.tensor([16, 32, 32, 64], dtype=torch.int32)
    got = products.grouped_mm(left, right, ends)
    torch.testing.assert_close(got, torch._grouped_mm(left, right, offs=ends))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(7, 9), (20, 30), (5, 18), (1, 1)])
def test_antialiased_images_are_torch_s_and_no_further_element_is_read(
    mode: str, corners: bool, size: tuple[int, int]
):
    x = torch.randn(2, 3, 14, 18)
    x[0, 0, 3, 3] = float("nan")
    function = getattr(resizing, f"upsample_{mode}2d_aa")
    expected = F.interpolate(x, size=size, mode=mode, antialias=True, align_corners=corners)
    torch.testing.assert_close(
        function(x, size, corners), expected, equal_nan=True, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("lengths", [[3, 7, 2, 8], [0, 10, 10]])
def test_segments_are_reduced_as_torch_does(reduce: str, lengths: list[int]):
    x = torch.randn(20, 6)
    for initial in (None, 2):
        words = {"lengths": torch.tensor(lengths), "initial": initial}
        expected = torch.segment_reduce(x, reduce, **words)
        torch.testing.assert_close(
            segments.segment_reduce(x, reduce, **words), expected, equal_nan=True
        )


def test_values_are_scattered_where_a_mask_is_true():
    x, mask = torch.randn(20, 6), torch.rand(20, 6) < 0.5
    assert torch.equal(
        segments.masked_scatter(x, mask, x.flip(0)), x.masked_scatter(mask, x.flip(0))
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_pairs_are_torch_s(p: float):
    x = torch.randn(9, 5)
    torch.testing.assert_close(segments.pdist_forward(x, p), F.pdist(x, p))


@pytest.mark.parametrize("dims", [2, 0, ([1, 2], [0, 1]), ([-1], [1])])
def test_products_over_several_axes_are_torch_s(dims: object):
    left, right = torch.randn(4, 5, 6), torch.randn(5, 6, 7)
    torch.testing.assert_close(
        products.tensordot(left, right, dims), torch.tensordot(left, right, dims)
    )


def test_products_of_all_pairs_are_torch_s():
    left, right = torch.randn(4, 5, 6), torch.randn(2, 3)
    torch.testing.assert_close(products.kron(left, right), torch.kron(left, right))
    torch.testing.assert_close(products.kron(right, left), torch.kron(right, left))


@pytest.mark.parametrize("parts", [3, 17, 20, [2, 5], [-3]])
def test_parts_of_a_tensor_are_torch_s(parts: object):
    x = torch.randn(4, 17)
    for got, expected in zip(
        tensor_split(x, parts, 1), torch.tensor_split(x, parts, 1), strict=True
    ):
        assert torch.equal(got, expected)
