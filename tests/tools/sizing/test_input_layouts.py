"""The layouts are those of views that PyTorch itself makes."""

import random

import pytest
import torch

from kernelwright.tools.sizing.input_layouts import (
    channels_last,
    copy_values,
    expanded,
    heads_transposed,
    is_contiguous,
    sliced,
    stepped,
    transposed,
)

KINDS = (transposed, stepped, sliced, expanded, heads_transposed, channels_last)
SHAPES = ((7,), (5, 67), (1, 9), (2, 3, 4), (2, 3, 5, 4), (2, 3, 2, 5, 4), (1, 1, 1, 6))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_of_any_shape_holds_its_values_in_every_layout(kind, shape):
    layout = kind(shape, random.Random(3))
    if layout is None:
        return
    values = torch.randn(shape)
    if layout.expanded is not None:
        values = values.narrow(layout.expanded, 0, 1).expand(shape)
    storage = torch.full((layout.elements(shape),), torch.nan)
    view = storage.as_strided(shape, layout.strides, layout.offset)
    copy_values(view, values)
    assert torch.equal(view, values)
    assert (
        not is_contiguous(shape, layout.strides)
        or (kind is sliced and len(shape) == 1)
        or layout.offset
    )


def test_the_strides_are_those_of_the_view_that_gives_the_layout_its_name():
    rng = random.Random(0)
    heads = torch.empty(2, 5, 3 * 4).view(2, 5, 3, 4).transpose(1, 2)
    image = torch.empty(2, 3, 5, 4).to(memory_format=torch.channels_last)
    assert transposed((5, 67), rng).strides == torch.empty(67, 5).t().stride()
    assert heads_transposed((2, 3, 5, 4), rng).strides == heads.stride()
    assert channels_last((2, 3, 5, 4), rng).strides == image.stride()
    layout = stepped((5, 67), rng)
    step = layout.strides[1]
    assert layout.strides == torch.empty(5, 67 * step)[:, ::step].stride()


def test_a_scalar_and_an_empty_tensor_have_one_layout_alone():
    assert [kind(shape, random.Random(0)) for kind in KINDS for shape in ((), (1, 1), (0, 4))] == [
        None
    ] * 18
