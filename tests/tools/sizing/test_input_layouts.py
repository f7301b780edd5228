"""Drawn layouts hold the values of their tensors, and have the traits that are asked for."""

import random

import pytest
import torch

from kernelwright.tools.sizing.input_layouts import (
    Trait,
    copy_values,
    draw_layout,
    held_values,
    is_contiguous,
)

SHAPES = ((7,), (5, 67), (1, 9), (2, 3, 4), (2, 3, 5, 4), (2, 3, 2, 5, 4), (1, 1, 1, 6))
TRAITS = (
    *((trait,) for trait in Trait),
    (Trait.PERMUTED, Trait.STEPPED, Trait.AWAY),
    (Trait.GAPPED, Trait.EXPANDED),
    (Trait.PERMUTED, Trait.OVERLAPPING, Trait.GAPPED),
)


@pytest.mark.parametrize("traits", TRAITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_of_any_shape_holds_its_values_in_every_layout(traits, shape):
    rng = random.Random(3)
    for _ in range(20):
        layout = draw_layout(shape, traits, rng)
        if layout is None:
            return
        values = held_values(torch.randn(shape), layout)
        storage = torch.full((layout.elements(shape),), torch.nan)
        view = storage.as_strided(shape, layout.strides, layout.offset)
        copy_values(view, values)
        assert torch.equal(view, values)


def test_layouts_have_the_traits_that_are_asked_for():
    rng = random.Random(1)
    shape = (5, 67)
    away = draw_layout(shape, [Trait.AWAY], rng)
    assert away.is_dense
    assert away.offset % 2 == 1
    assert draw_layout(shape, [Trait.PERMUTED], rng).strides == torch.empty(67, 5).t().stride()
    assert draw_layout(shape, [Trait.STEPPED], rng).follows_strides
    assert 0 in draw_layout(shape, [Trait.EXPANDED], rng).strides
    windows = draw_layout(shape, [Trait.OVERLAPPING], rng)
    assert 0 < windows.strides[0] < 67
    assert windows.repeats


@pytest.mark.parametrize(
    ("trait", "steps"), [(Trait.STEPPED, {2, 3}), (Trait.FAR_APART, {4, 5, 6, 7, 8, 9})]
)
def test_every_step_along_the_fastest_dimension_is_drawn(trait, steps):
    rng = random.Random(2)
    assert {draw_layout((5, 67), [trait], rng).strides[1] for _ in range(200)} == steps


def test_four_dimensions_are_often_those_of_heads_and_of_images():
    rng = random.Random(4)
    drawn = {draw_layout((2, 3, 5, 4), [Trait.PERMUTED], rng).strides for _ in range(100)}
    heads = torch.empty(2, 5, 3 * 4).view(2, 5, 3, 4).transpose(1, 2)
    image = torch.empty(2, 3, 5, 4).to(memory_format=torch.channels_last)
    assert {heads.stride(), image.stride()} <= drawn


def test_a_scalar_and_an_empty_tensor_have_one_layout_alone():
    rng = random.Random(0)
    assert not any(
        draw_layout(shape, [trait], rng) for trait in Trait for shape in ((), (1, 1), (0, 4))
    )


def test_a_contiguous_tensor_is_told_apart():
    assert is_contiguous((5, 67), (67, 1))
    assert not is_contiguous((5, 67), (1, 5))
