"""A convolution may be as wrong as torch's default for it, tf32, and no more: the size does not matter."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernelwright.tools.comparing.comparison import ComparedOutput
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.exactness.steps import StepReach
from kernelwright.tools.expected.by_draw import measure_by_draw
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.faults import Fault
from kernelwright.tools.references.arithmetic import errors_of_tf32_convolutions
from kernelwright.tools.references.input_distributions import Draw

AFTER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nothing": lambda y: y,
    "mish": F.mish,
    "relu": lambda y: F.hardswish(F.relu(y)),
    "least of channels": lambda y: torch.tanh(y.min(1, keepdim=True).values),
    "group norm": lambda y: F.group_norm(y, 1),
    "batch norm": lambda y: F.batch_norm(y, None, None, training=True),
    "max pool": lambda y: F.max_pool2d(y, 2),
}
CHANNELS = [(3, 16, 3), (17, 31, 3), (64, 33, 5)]


def rounded(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """To nearest, without so many bits of the mantissa: 13 leave tf32, 16 bf16."""
    whole = tensor.contiguous().view(torch.int32) + (1 << (bits - 1))
    return (whole & -(1 << bits)).view(torch.float32)


class Convolution:
    """A reference, its draw, and what is expected of it."""

    def __init__(self, channels: tuple[int, int, int], after: str) -> None:
        torch.manual_seed(sum(channels))
        inside, outside, window = channels
        self.after, scale = AFTER[after], math.sqrt(inside * window * window)
        self.x = torch.rand(2, inside, 24, 24)
        self.w = (torch.rand(outside, inside, window, window) * 2 - 1) / scale
        exact = self.after(F.conv2d(self.x.double(), self.w.double()))
        self.expected = ExpectedOutputs([self.x], [self.run(self.x, self.w)], [exact], 1, None)

    def run(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.after(F.conv2d(x, w))

    def judged(self, bits: int) -> ComparedOutput:
        """A candidate whose operands lack so many bits."""
        made = self.run(rounded(self.x, bits), rounded(self.w, bits))
        return measure_by_draw(made, self.expected, 0, "own", tf32_errors=self.errors)

    def errors(self) -> list[torch.Tensor] | None:
        return errors_of_tf32_convolutions(lambda: [self.run(self.x, self.w)], self.expected.exact)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_tf32_is_right_and_bf16_is_not(channels, after):
    problem = Convolution(channels, after)
    with_tf32 = problem.judged(13)
    assert with_tf32.check.passed
    assert "tf32" in with_tf32.check.note
    assert not problem.judged(16).check.passed


def test_errors_in_tf32_serve_a_second_comparison():
    problem = Convolution(CHANNELS[0], "relu")
    errors = problem.errors()
    unchanged = [error.clone() for error in errors]
    answer = problem.run(rounded(problem.x, 13), rounded(problem.w, 13))
    measure_by_draw(answer, problem.expected, 0, "own", tf32_errors=lambda: errors)
    assert all(map(torch.equal, errors, unchanged))


def test_with_tf32_switched_off_it_is_wrong(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert Convolution(CHANNELS[0], "nothing").judged(13).fault is Fault.PRECISION


def test_a_product_is_no_convolution():
    """torch multiplies matrices in fp32 unless it is told otherwise."""
    torch.manual_seed(3)
    x, w = torch.rand(64, 96), torch.rand(96, 80)
    expected = ExpectedOutputs([x, w], [x @ w], [x.double() @ w.double()], 1, None)
    found = measure_by_draw(
        rounded(x, 13) @ rounded(w, 13), expected, 0, "own",
        tf32_errors=lambda: errors_of_tf32_convolutions(lambda: [x @ w], expected.exact),
    )  # fmt: skip
    assert found.fault is Fault.PRECISION


def test_without_float64_the_reference_without_tf32_stands_in():
    problem = Convolution(CHANNELS[1], "mish")
    problem.expected.exact = None
    assert problem.judged(13).check.passed
    assert not problem.judged(16).check.passed


@pytest.mark.parametrize("bits", [13, 16], ids=["tf32", "bf16"])
@pytest.mark.parametrize("after", ["relu", "group norm"])
def test_two_layers_on_inputs_near_0_have_one_error_a_channel(after, bits):
    """The first layer gives its bias at each place, so that the second one's error is one number a channel."""
    torch.manual_seed(5)
    x = torch.rand(4, 3, 20, 20) * 1e-6
    weights = [
        (torch.rand(*shape) * 2 - 1) / math.sqrt(shape[1] * 9)
        for shape in ((6, 3, 3, 3), (64, 6, 3, 3))
    ]
    bias = torch.rand(6) - 0.2

    def run(make: Callable[[torch.Tensor], torch.Tensor], kind: torch.dtype) -> list[torch.Tensor]:
        middle = F.conv2d(make(x.to(kind)), make(weights[0].to(kind)), bias.to(kind)).relu()
        return [AFTER[after](F.conv2d(make(middle), make(weights[1].to(kind))))]

    expected = ExpectedOutputs(
        [x], run(lambda t: t, torch.float32), run(lambda t: t, torch.float64), 1, None
    )
    found = measure_by_draw(
        run(lambda t: rounded(t, bits), torch.float32)[0], expected, 0, "tiny",
        tf32_errors=lambda: errors_of_tf32_convolutions(lambda: run(lambda t: t, torch.float32), expected.exact),
    )  # fmt: skip
    assert found.check.passed == (bits == 13)


@pytest.mark.parametrize(("off_by", "passes"), [(1e-4, True), (3e-2, False)])
def test_an_element_of_a_function_that_steps_may_be_off_by_its_reach(off_by, passes):
    x = torch.logspace(-6, 6, 4096)
    exact = x.double().sqrt()
    expected = ExpectedOutputs([x], [x.sqrt()], [exact], 1, None, draw=Draw.EXPONENTS)
    reach = 1e-4 * exact.float()
    mine = x.sqrt()
    mine[100] *= 1 + off_by
    measured = measure_by_draw(
        mine,
        expected,
        0,
        "exponents",
        moved=lambda: [StepReach(reach, reach)],
        kind=ArithmeticKind.STEPPED,
    )
    assert measured.check.passed is passes


def test_an_output_whose_last_bits_are_cut_is_refused():
    torch.manual_seed(3)
    x = torch.randn(64, 257)
    expected = ExpectedOutputs([x], [x.softmax(-1)], [x.double().softmax(-1)], 1, None)
    honest = torch.exp(x - x.logsumexp(-1, keepdim=True))
    assert measure_by_draw(honest, expected, 0, "own").check.passed
    cut = ((honest.view(torch.int32) + 16) & -32).view(torch.float32)
    measured = measure_by_draw(cut, expected, 0, "own")
    assert not measured.check.passed
    assert measured.fault is Fault.PRECISION
