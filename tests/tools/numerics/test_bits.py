"""What a tensor holds, compared bit for bit and remembered."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.numerics import bits
from kernelwright.tools.numerics.bits import RememberedTensor, same_bits

TYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.uint8,
    torch.complex64,
)


def some(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.randn(37, 53) * 40).abs().to(dtype)


@pytest.fixture(params=["copied", "hashed"])
def remembering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As small tensors are remembered, and as large ones are, in several pieces."""
    if request.param == "hashed":
        monkeypatch.setattr(bits, "COPIED_BYTES", 0)
        monkeypatch.setattr(bits, "HASHED_WORDS", 100)


@pytest.mark.parametrize("dtype", TYPES)
def test_one_changed_element_is_seen_and_an_equal_tensor_passes(
    remembering: None, dtype: torch.dtype
) -> None:
    tensor = some(dtype)
    was = RememberedTensor(tensor)
    assert was.is_in(tensor)
    assert was.is_in(tensor.clone().t().contiguous().t())  # lies in another way
    for place in ((0, 0), (36, 52), (17, 30)):
        other = tensor.clone()
        other[place] += 1
        assert not was.is_in(other)
        assert not same_bits(tensor, other)


def test_exchanged_elements_another_shape_and_another_type_are_seen(remembering: None) -> None:
    tensor = some(torch.float32)
    was = RememberedTensor(tensor)
    assert not was.is_in(tensor.flip(0))
    assert not was.is_in(tensor[:, torch.randperm(53)])
    assert not was.is_in(tensor.reshape(53, 37))
    assert not was.is_in(tensor.view(torch.int32))
    assert RememberedTensor(torch.zeros(())).is_in(torch.zeros(()))
    assert not RememberedTensor(torch.zeros(())).is_in(torch.ones(()))
    assert RememberedTensor(torch.zeros(0, 3)).is_in(torch.zeros(0, 3))


def test_zeros_of_either_sign_and_nans_are_told_by_their_bits(remembering: None) -> None:
    nan = torch.full((4, 4), float("nan"))
    assert RememberedTensor(nan).is_in(nan.clone())
    assert same_bits(nan, nan.clone())
    zero = torch.zeros(4, 4)
    assert not RememberedTensor(zero).is_in(-zero)
    assert not same_bits(zero, -zero)


def test_tensors_that_lie_differently_are_compared_by_their_elements() -> None:
    tensor = some(torch.float32)
    assert same_bits(tensor, tensor.t().contiguous().t())
    assert same_bits(tensor[::2, 3:9], tensor[::2, 3:9].clone())
    assert not same_bits(tensor.t(), (tensor + 1).t())


def test_a_large_tensor_is_remembered_in_a_few_bytes_and_compared_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bits, "COPIED_BYTES", 1 << 10)
    monkeypatch.setattr(bits, "PIECE_ELEMENTS", 1 << 8)
    large = torch.arange(1 << 14, dtype=torch.int32)
    was = RememberedTensor(large)
    assert was.copy is None
    changed = large.clone()
    changed[-1] = 0
    assert was.is_in(large)
    assert not was.is_in(changed)
    assert same_bits(large, large.clone())
    assert not same_bits(large, changed)
