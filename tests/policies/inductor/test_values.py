"""Values that are known while a module is traced, and complex numbers by their parts, against torch's own."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.values.complex_numbers import (
    ByParts,
    Pair,
    as_real_argument,
    has_complex,
    unwrapped_path,
)
from kernelwright.policies.inductor.values.known import KnownValuesMode

Z = torch.randn(4, 6, dtype=torch.complex64)
W = torch.randn(6, 5, dtype=torch.complex64)
CASES = {
    "a product": lambda z, w: z @ w,
    "a quotient": lambda z, w: z / (z + 3),
    "a sum with a real tensor and with numbers": lambda z, w: 2 * (z + z.real) - 1 + 3j * z,
    "the conjugate": lambda z, w: torch.conj(z) * z,
    "length and angle": lambda z, w: torch.polar(z.abs(), z.angle()),
    "an exponential of what is cut and joined": lambda z, w: torch.cat([z[:, 2:], z[:, :2].exp()], 1),
    "places that are written to": lambda z, w: torch.zeros(4, 6, dtype=torch.complex64).index_copy(1,
        torch.tensor([1, 3]), z[:, :2]),
    "means, squares and transposed ones": lambda z, w: (z.mean(0, keepdim=True) ** 2).t(),
    "a real tensor made complex": lambda z, w: z.real.to(torch.complex64) * z,
    "einsum": lambda z, w: torch.einsum("ij,jk->ki", z, w),
    "a transform of real numbers and back": lambda z, w: torch.fft.irfft(torch.fft.rfft(z.real) * 2, n=6),
    "back to an odd length": lambda z, w: torch.fft.irfft(torch.fft.rfft(w.real), n=5),
    "a transform over two axes": lambda z, w: torch.fft.ifft2(torch.fft.fft2(z) * z),
    "a real transform over two axes": lambda z, w: torch.fft.irfft2(torch.fft.rfft2(z.real, norm="ortho"), s=(4, 6),
        norm="ortho"),
    "windows of a signal": lambda z, w: torch.stft(w.real, 4, 2, window=torch.hann_window(4), center=False,
        return_complex=True).abs(),
    "frequencies in the middle": lambda z, w: torch.fft.fftshift(torch.fft.fft(z, dim=0), dim=0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_by_their_parts_are_what_torch_makes_of_them(name: str):
    graph = make_fx(lambda z, w: CASES[name](torch.view_as_complex(z), torch.view_as_complex(w)))(
        torch.view_as_real(Z), torch.view_as_real(W)
    )
    assert has_complex(graph)
    made = ByParts(graph).run(torch.view_as_real(Z), torch.view_as_real(W))
    whole = torch.complex(*made) if isinstance(made, Pair) else made
    torch.testing.assert_close(whole, CASES[name](Z, W), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in CASES if "transform" in n])
def test_a_transform_that_is_left_to_the_library_is_put_together_and_taken_apart(name: str):
    graph = make_fx(lambda z, w: CASES[name](torch.view_as_complex(z), torch.view_as_complex(w)))(
        torch.view_as_real(Z), torch.view_as_real(W)
    )
    made = ByParts(graph, library=True).run(torch.view_as_real(Z), torch.view_as_real(W))
    whole = torch.complex(*made) if isinstance(made, Pair) else made
    torch.testing.assert_close(whole, CASES[name](Z, W))


def test_a_transform_over_too_many_elements_is_refused():
    graph = make_fx(lambda x: torch.view_as_real(torch.fft.rfft(x)))(torch.randn(1, 50_000))
    with pytest.raises(DraftRefused, match="a Fourier transform over more than 46340 elements"):
        ByParts(graph).run(torch.randn(1, 50_000))


def test_a_function_of_complex_numbers_without_a_rule_is_refused_by_name():
    graph = make_fx(lambda z: torch.view_as_real(torch.view_as_complex(z).tan()))(
        torch.view_as_real(Z)
    )
    with pytest.raises(DraftRefused, match="tan of complex numbers has no kernel"):
        ByParts(graph).run(torch.view_as_real(Z))


def test_a_complex_argument_goes_in_as_a_real_one_with_an_axis_more():
    path, value = as_real_argument("self.freqs", Z)
    assert path == "torch.view_as_real(self.freqs)"
    assert value.shape == (4, 6, 2)
    assert unwrapped_path(path) == "self.freqs"
    assert as_real_argument("x", Z.real)[0] == unwrapped_path("x") == "x"


def test_what_a_constructor_reads_from_numbers_is_known_and_nothing_else_is():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()), KnownValuesMode():
        rates = torch.linspace(0, 0.5, 3)
        assert [x.item() for x in rates] == [0.0, 0.25, 0.5]
        assert bool((rates > 0.4).any())
        assert torch.arange(4).flip(0).tolist() == [3, 2, 1, 0]
        rates[1] = 7.0
        assert not isinstance(rates[1].item(), float)  # written to: asked of the mode below
        assert not isinstance(torch.rand(2)[0].item(), float)


def test_an_attempt_that_takes_the_same_numbers_for_sizes_is_not_made_twice():
    from kernelwright.policies.inductor.attempts import distinct_guesses
    from kernelwright.policies.inductor.tracing.sizes import sizes_over

    guesses = [sizes_over(3), sizes_over(8), sizes_over(1 << 62)]
    assert distinct_guesses(guesses, {"x.shape[0]": 64}) == guesses[:1]
    assert distinct_guesses(guesses, {"self.width": 64, "self.layers": 9}) == [
        guesses[0],
        guesses[2],
    ]
    assert distinct_guesses(guesses, {"self.width": 64, "self.heads": 4}) == guesses
