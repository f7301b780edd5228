"""Functions of single elements, each held to its own size."""

import torch

from kernelwright.tools.comparing.exactness.function_errors import (
    exponents_of,
    wrong_function_values,
)
from kernelwright.tools.numerics.tolerance import allowance
from kernelwright.tools.references.redrawing.every_exponent import every_exponent


def _silu(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = every_exponent(torch.randn(2040).to(dtype), 0)
    exact = torch.nn.functional.silu(x.double())
    return x, torch.nn.functional.silu(x.float()).to(dtype), exact


def _wrong(
    mine: torch.Tensor, x: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor
) -> torch.Tensor:
    return wrong_function_values(mine, eager, exact, None, [x], allowance(eager.dtype))


def test_one_octave_that_is_left_out_is_told_by_its_exponent() -> None:
    x, eager, exact = _silu()
    honest = x / (1 + torch.exp(-x))
    assert not _wrong(honest, x, eager, exact).any()
    octave = (torch.frexp(x).exponent == -40) & (x < 0)
    wrong = _wrong(torch.where(octave, honest * 0.5, honest), x, eager, exact)
    assert torch.equal(wrong, octave)
    assert "exponent -41 to -41" in exponents_of(wrong, [x])
    assert "negative" in exponents_of(wrong, [x])


def test_subnormal_results_are_asked_of_float16_alone() -> None:
    for dtype, is_asked in ((torch.float16, True), (torch.float32, False)):
        x, eager, exact = _silu(dtype)
        flushed = torch.where(eager.abs() < torch.finfo(dtype).smallest_normal, 0.0, eager)
        assert bool(_wrong(flushed, x, eager, exact).any()) is is_asked


def test_noise_of_the_reference_excuses_an_element_and_its_tail_is_not_asked() -> None:
    x, eager, exact = _silu()
    off = eager * 0.999
    allow = allowance(eager.dtype)
    assert wrong_function_values(off, eager, exact, None, [x], allow).any()
    assert not wrong_function_values(off, eager, exact, exact * 0.9995, [x], allow).any()
    cut = torch.where(x < -64, 0.0, eager)
    assert not _wrong(cut, x, eager, exact).any()
