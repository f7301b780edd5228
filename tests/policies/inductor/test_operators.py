"""Functions of torch written with others: on real tensors they give what torch gives."""

import ast

import pytest
import torch
import torch.nn.functional as F

from kernelwright.policies.inductor.functions import (
    functional,
    linear_layer,
    ranking,
    searching,
    statistics,
    tensor_methods,
)
from kernelwright.policies.inductor.functions.convolution_gradients import convolution_backward
from kernelwright.policies.inductor.functions.embedding_bags import embedding_bag
from kernelwright.policies.inductor.functions.pooling import pooling_functions, whole_windows
from kernelwright.policies.inductor.functions.quantiles import quantile
from kernelwright.policies.inductor.functions.recurrent import recurrent_functions
from kernelwright.policies.inductor.functions.sampling import grid_sampling
from kernelwright.policies.inductor.tracing import numbers

SPECIAL = torch.tensor(
    [[1.0, float("nan"), -0.0, 0.0, float("inf"), -3.5, 1.0, float("-inf"), 2e-38]]
)


@pytest.mark.parametrize(
    "x", [SPECIAL, torch.randn(3, 40), torch.randint(-9, 9, (2, 30)), torch.randn(2, 20).half()]
)
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_bit_by_bit_is_stable_and_puts_nan_last(x: torch.Tensor, descending: bool):
    values, indices = ranking.sort(x, -1, descending)
    expected = torch.sort(x, dim=-1, descending=descending, stable=True)
    torch.testing.assert_close(values, expected.values, equal_nan=True)
    torch.testing.assert_close(indices, expected.indices)


@pytest.mark.parametrize("k", [3, 9])
@pytest.mark.parametrize("largest", [False, True])
def test_the_largest_are_those_of_a_stable_sort(k: int, largest: bool):
    for x in (SPECIAL, torch.randn(4, 50), torch.full((2, 12), float("-inf"))):
        values, indices = ranking.topk(x, k, -1, largest)
        expected = torch.sort(x, dim=-1, descending=largest, stable=True)
        torch.testing.assert_close(values, expected.values[:, :k], equal_nan=True)
        torch.testing.assert_close(indices, expected.indices[:, :k])


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("include_self", [False, True])
def test_scattered_elements_are_reduced_where_they_meet(reduce: str, include_self: bool):
    x, index, source = torch.randn(5, 3), torch.randint(0, 5, (9, 3)), torch.randn(9, 3)
    got = ranking.scatter_reduce(x, 0, index, source, reduce, include_self=include_self)
    torch.testing.assert_close(
        got, x.scatter_reduce(0, index, source, reduce, include_self=include_self)
    )


@pytest.mark.parametrize("reduce", ["amax", "prod", "mean"])
@pytest.mark.parametrize("dim", [0, -1])
def test_slices_are_reduced_where_they_meet(reduce: str, dim: int):
    x, index = torch.randn(5, 5), torch.randint(0, 5, (9,))
    source = torch.randn(9, 5) if dim == 0 else torch.randn(5, 9)
    got = ranking.index_reduce(x, dim, index, source, reduce, include_self=False)
    torch.testing.assert_close(got, x.index_reduce(dim, index, source, reduce, include_self=False))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("q", [0.3, torch.tensor([0.0, 0.25, 1.0])])
def test_quantiles_are_torch_s(interpolation: str, q: object):
    x = torch.randn(3, 4, 7)
    x[0, 1, 2] = float("nan")
    for words in ({}, {"dim": -1}, {"dim": 1, "keepdim": True}, {"keepdim": True}):
        got = quantile(x, q, interpolation=interpolation, **words)
        torch.testing.assert_close(
            got, torch.quantile(x, q, interpolation=interpolation, **words), equal_nan=True
        )


@pytest.mark.parametrize("cells", [1, 3, (2, 5), (None, 4)])
def test_pooling_to_a_number_of_cells_is_torch_s(cells: object):
    x = torch.randn(2, 3, 13, 11)
    own = pooling_functions()
    torch.testing.assert_close(
        own["adaptive_avg_pool2d"](x, cells), F.adaptive_avg_pool2d(x, cells)
    )
    torch.testing.assert_close(
        own["adaptive_max_pool2d"](x, cells), F.adaptive_max_pool2d(x, cells)
    )


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_gives_what_torch_s_gives(kind: str, both_ways: bool):
    layer = getattr(torch.nn, kind)(6, 5, num_layers=2, batch_first=True, bidirectional=both_ways)
    x, states = torch.randn(3, 7, 6), torch.zeros(2 * (1 + both_ways), 3, 5)
    name = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh"}[kind]
    start = (states, states) if kind == "LSTM" else states
    got = recurrent_functions()[name](
        x, start, layer._flat_weights, True, 2, 0.0, False, both_ways, True
    )
    expected, last = layer(x)
    torch.testing.assert_close(got[0], expected)
    torch.testing.assert_close(got[1], last[0] if kind == "LSTM" else last)


def test_distances_bilinear_forms_and_counts_are_torch_s():
    a, b, weight = torch.randn(4, 6), torch.randn(5, 6), torch.randn(3, 6, 6)
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        torch.testing.assert_close(functional.cdist(a, b, p), torch.cdist(a, b, p))
    torch.testing.assert_close(functional.bilinear(a, b[:4], weight), F.bilinear(a, b[:4], weight))
    ids = torch.randint(0, 8, (50,))
    torch.testing.assert_close(
        functional.bincount(ids, minlength=8), torch.bincount(ids, minlength=8)
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_are_reduced_as_torch_reduces_them(mode: str):
    weight, ids = torch.randn(9, 4), torch.randint(0, 9, (5, 6))
    flat, offsets = torch.randint(0, 9, (14,)), torch.tensor([0, 3, 3, 9])
    for padding in (None, 2):
        for given in ((ids, weight), (flat, weight, offsets)):
            got = embedding_bag(*given, mode=mode, padding_idx=padding)
            torch.testing.assert_close(got, F.embedding_bag(*given, mode=mode, padding_idx=padding))


def test_whole_numbers_and_real_ones_are_python_s_where_no_size_is_a_symbol():
    assert numbers.symbolic_int("7") == 7
    assert numbers.symbolic_int(2.9) == 2
    assert numbers.Real("2.5") == 2.5
    assert isinstance(0.5, numbers.Real)
    assert not isinstance(1, numbers.Real)


@pytest.mark.parametrize("align_corners", [False, True])
def test_a_place_that_is_no_number_is_the_border_s(align_corners: bool):
    x, grid = torch.randn(1, 2, 5, 6), torch.rand(1, 4, 4, 2) * 2 - 1
    grid[0, 1, 2, 0] = float("nan")
    own = grid_sampling(F.grid_sample)
    made = own(x, grid, padding_mode="border", align_corners=align_corners)
    torch.testing.assert_close(
        made, F.grid_sample(x, grid, padding_mode="border", align_corners=align_corners)
    )


def test_a_name_that_the_module_gives_another_meaning_keeps_it():
    text = "from torch import max\ndef f(x, min):\n    return max(x, dim=0), min(x, dim=0), int(x)"
    written = ast.unparse(numbers.with_numbers(ast.parse(text)))
    assert "return (max(x, dim=0), min(x, dim=0), __whole__(x))" in written


def test_functions_of_python_are_python_s_own_on_numbers():
    assert numbers.symbolic_min(3, 2.5, 4) == 2.5
    assert numbers.symbolic_max([3, 7], key=lambda n: -n) == 3
    assert numbers.symbolic_max("ab", "c") == "c"
    assert numbers.symbolic_len([1, 2]) == 2
    assert numbers.symbolic_len(torch.zeros(5, 2)) == 5


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_norm_but_for_one_dimension_is_torch_s(dim: int):
    v = torch.randn(4, 3, 5)
    torch.testing.assert_close(
        functional.norm_except_dim(v, 2, dim), torch.norm_except_dim(v, 2, dim)
    )


def test_functions_written_with_others_take_torch_s_names_for_their_first_arguments():
    x, weight = torch.randn(2, 5), torch.randn(3, 5)
    linear = functional.with_names_of_torch(linear_layer.linear)
    torch.testing.assert_close(linear(input=x, weight=weight), F.linear(x, weight))
    distances = functional.with_names_of_torch(functional.cdist)
    torch.testing.assert_close(distances(x1=x, x2=weight), torch.cdist(x, weight))


def test_a_diagonal_is_filled_in_place_and_a_layer_copied():
    for shape in ((4, 4), (3, 5), (6, 2), (3, 3, 3)):
        x = torch.randn(shape)
        expected = x.clone().fill_diagonal_(7.0)
        assert tensor_methods.fill_diagonal_(x, 7.0) is x
        torch.testing.assert_close(x, expected)
    weight, memo = torch.nn.Parameter(torch.randn(3)), {}
    copied = tensor_methods.deep_copy(weight, memo)
    assert isinstance(copied, torch.nn.Parameter)
    assert copied.data_ptr() != weight.data_ptr()
    assert tensor_methods.deep_copy(weight, memo) is copied  # it is one parameter in both places


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_elements_along_a_dimension_are_those_that_torch_takes(dim: int | None):
    x, index = (
        torch.randn(4, 6),
        torch.randint(-4 * (dim is not None), 4, (1, 6) if dim == 0 else (4, 1)),
    )
    got = tensor_methods.take_along_dim(x, index, dim)
    torch.testing.assert_close(got, torch.take_along_dim(x, index, dim))


@pytest.mark.parametrize("right", [False, True])
def test_a_search_with_a_sorter_or_of_a_number_is_one_in_sorted_rows(right: bool):
    edges, values = (
        torch.randint(0, 9, (12,)).float().sort().values,
        torch.randint(0, 9, (5,)).float(),
    )
    order = torch.randperm(12)
    places = searching.searchsorted(edges[order], values, sorter=order.argsort(), right=right)
    assert torch.equal(
        places, torch.searchsorted(edges[order], values, sorter=order.argsort(), right=right)
    )
    found = searching.searchsorted_of_number(edges, 4.0, out_int32=True, right=right)
    assert found.equal(torch.searchsorted(edges, 4.0, out_int32=True, right=right))
    assert searching.bucketize_of_number(4.0, edges, right=right).equal(
        torch.bucketize(4.0, edges, right=right)
    )


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_an_image_is_sampled_as_torch_samples_it(
    axes: int, mode: str, padding_mode: str, align_corners: bool
):
    x, grid = (
        torch.randn(2, 3, 6, 5, 4)[..., : 4 if axes == 3 else 1],
        torch.randn(2, 5, 4, 3, axes) * 1.5,
    )
    x, grid = (x, grid) if axes == 3 else (x[..., 0], grid[:, :, :, 0])
    expected = F.grid_sample(x, grid, mode, padding_mode, align_corners)
    torch.testing.assert_close(
        grid_sampling(F.grid_sample)(x, grid, mode, padding_mode, align_corners), expected
    )


def test_a_nan_at_the_border_of_an_image_is_not_read_outside_of_it():
    x, grid = torch.randn(1, 2, 4, 5), torch.rand(1, 3, 3, 2) * 4 - 2
    x[..., 0, 0] = float("nan")
    torch.testing.assert_close(
        grid_sampling(F.grid_sample)(x, grid, align_corners=False), F.grid_sample(x, grid, align_corners=False),
        equal_nan=True,
    )  # fmt: skip


def test_a_histogram_counts_what_torch_counts():
    x = torch.randn(200)
    for bounds in ((), (-1, 1), (0, 0.5), (3, 3)):
        assert statistics.histc(x, 12, *bounds).equal(torch.histc(x, 12, *bounds))
    assert statistics.histc(torch.full((4,), 2.0), 5).equal(torch.histc(torch.full((4,), 2.0), 5))


@pytest.mark.parametrize(
    "given",
    [
        (7, 1, 3),
        (7, 2, 3, False, False),
        ((9, 4), (2, 3), (4, 1), True),
        (5, 5),
        (7, 1, 0, False, True, 11),
        (3, 1, 1),
    ],
)
def test_means_over_large_windows_that_overlap_are_torch_s(given: tuple[object, ...]):
    x = torch.randn(2, 3, 20, 23)
    pooled = whole_windows(F.max_pool1d)["avg_pool2d"]
    torch.testing.assert_close(pooled(x, *given), F.avg_pool2d(x, *given))


@pytest.mark.parametrize(
    ("input_shape", "weight_shape", "stride", "padding", "dilation", "groups"),
    [
        ((2, 4, 12, 13), (6, 4, 3, 3), [1, 1], [1, 1], [1, 1], 1),
        ((2, 4, 12, 13), (6, 2, 3, 2), [2, 3], [1, 0], [2, 1], 2),
        ((2, 4, 20), (8, 1, 5), [2], [2], [1], 4),
        ((1, 2, 6, 7, 8), (3, 2, 2, 3, 1), [2, 1, 1], [0, 1, 0], [1, 1, 1], 1),
    ],
)
def test_gradients_of_a_convolution_are_torch_s(
    input_shape: tuple[int, ...], weight_shape: tuple[int, ...], stride: list[int], padding: list[int],
    dilation: list[int], groups: int,
):  # fmt: skip
    x, weight = (
        torch.randn(input_shape, dtype=torch.float64),
        torch.randn(weight_shape, dtype=torch.float64),
    )
    last = (stride, padding, dilation, False, [0] * len(stride), groups)
    upstream = torch.randn_like(torch.ops.aten.convolution(x, weight, None, *last))
    given = (upstream, x, weight, [weight_shape[0]], *last, [True] * 3)
    torch.testing.assert_close(
        convolution_backward(*given), torch.ops.aten.convolution_backward(*given)
    )
