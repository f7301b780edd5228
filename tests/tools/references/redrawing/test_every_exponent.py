"""Numbers of every exponent, for functions that compute each element by itself."""

import pytest
import torch

from kernelwright.tools.references.redrawing.every_exponent import (
    every_exponent,
    parts_of_every_exponent,
)


def test_a_few_hundred_floats_hold_every_finite_exponent_with_both_signs() -> None:
    numbers = every_exponent(torch.randn(510), 0)
    assert torch.isfinite(numbers).all()
    for signed in (numbers, -numbers):
        exponents = torch.frexp(signed[signed > 0]).exponent
        assert exponents.max() == 128
        assert set(range(-125, 129)) <= set(exponents.tolist())
        assert exponents.min() < -125


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_parts_of_a_type_of_sixteen_bits_are_all_of_its_finite_numbers(
    dtype: torch.dtype,
) -> None:
    own = torch.ones(3000, dtype=dtype)
    parts = [every_exponent(own, part) for part in range(parts_of_every_exponent(own))]
    drawn = torch.cat(parts).view(torch.int16).unique()
    patterns = torch.arange(-32768, 32768).to(torch.int16)
    finite = patterns[patterns.view(dtype).isfinite()]
    assert torch.equal(drawn, finite)


def test_zeros_stay_zeros() -> None:
    own = torch.ones(1000, dtype=torch.float64)
    own[::7] = 0.0
    numbers = every_exponent(own, 1)
    assert (numbers[::7] == 0).all()
    assert torch.isfinite(numbers).all()


def test_parts_go_on_with_other_mantissas() -> None:
    own = torch.ones(510)
    first, second = every_exponent(own, 0), every_exponent(own, 1)
    assert torch.equal(torch.frexp(first[2:250]).exponent, torch.frexp(second[2:250]).exponent)
    assert (first[2:250] != second[2:250]).all()
