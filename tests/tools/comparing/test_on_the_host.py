"""Large tensors compared beside little more than themselves, and what waits on the host while a GPU is full."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from kernelwright.tools.comparing import on_the_host
from kernelwright.tools.comparing.on_the_host import (
    ask_with_host_memory,
    moved_to_host,
    with_host_memory,
)
from kernelwright.tools.expected.perturbed_outputs import outputs_of_perturbed_inputs
from kernelwright.tools.expected.prepared_problem import (
    expected_outputs,
    prepare_problem,
    tensors_of_run,
)
from kernelwright.tools.numerics import pieces as module
from kernelwright.tools.numerics.pieces import pieces
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.arithmetic import (
    _round_to_tf32_by_chance,
    errors_of_tf32_convolutions,
)
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Failed, Failure, Fault

EXPANDING = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen = nn.Conv2d(1, 16, 1)

    def forward(self, x):
        return self.widen(x)


def get_inputs():
    return [torch.rand(4, 1, 256, 256)]


def get_init_inputs():
    return []
"""
OUTPUT_BYTES = 4 * 4 * 16 * 256 * 256


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(module, "PIECE_ELEMENTS", 1 << 14)
    monkeypatch.setattr(on_the_host, "MIN_MOVED_BYTES", 1 << 10)


@pytest.fixture(scope="module")
def expanding():
    prepared = prepare_problem(Problem(name="expanding", source=EXPANDING), "cpu", 1)
    return prepared, expected_outputs(prepared, Draw.OWN, 7)


def most_bytes(compute) -> int:
    """That torch's allocator had handed out at a time while this was computed, above those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        compute()
    changes = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda e: e.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    return most


class FullGpu:
    """One that finds no memory until the tensors that it watches are gone from it."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors, self.asked = tensors, 0

    def compute(self) -> str:
        self.asked += 1
        if any(t.untyped_storage().nbytes() for t in self.tensors):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return "done"

    def answer(self) -> str:
        try:
            return self.compute()
        except torch.cuda.OutOfMemoryError as error:
            raise Failed(Failure(fault=Fault.MEMORY, message=str(error))) from error


@pytest.mark.parametrize(
    "shape", [(), (0, 3), (7,), (3, 5), (100_000,), (3, 50_000), (40, 5, 300), (1, 1, 70_000)]
)
def test_pieces_are_small_and_cover_every_element_once(shape):
    count = torch.zeros(shape)
    other = torch.ones(shape)
    for piece, beside in pieces(count, other):
        assert piece.numel() <= 1 << 14
        piece += beside
    assert torch.equal(count, other)


def test_pieces_of_tensors_that_lie_otherwise_in_memory_are_views_of_the_same_places():
    plain = torch.arange(3 * 70 * 500.0).reshape(3, 70, 500)
    turned = plain.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    found = [(one, other) for one, other in pieces(plain, turned)]
    assert len(found) > 1
    assert all(torch.equal(one, other) for one, other in found)
    found[0][1].zero_()
    assert bool((turned.flatten()[: found[0][1].numel()] == 0).all())


def test_what_is_set_aside_takes_no_memory_and_is_afterwards_what_it_was():
    tensor = torch.randn(64, 128)
    view, before = tensor.T[3:], tensor.clone()
    with moved_to_host([tensor, view, torch.ones(2), "text", None]) as moved:
        assert moved == tensor.nbytes, "once, though it is named twice"
        assert tensor.untyped_storage().nbytes() == 0
    assert torch.equal(tensor, before)
    assert torch.equal(view, before.T[3:])


def test_memory_that_is_needed_stays_though_an_idle_tensor_lies_in_it():
    weight = torch.randn(64, 128)
    with moved_to_host([weight.view(-1)], besides=[weight]) as moved:
        assert moved == 0
        assert weight.untyped_storage().nbytes() == weight.nbytes


def test_what_was_set_aside_comes_back_where_the_block_fails():
    tensor = torch.randn(64, 128)
    before = tensor.clone()
    with pytest.raises(ZeroDivisionError), moved_to_host([tensor]):
        raise ZeroDivisionError
    assert torch.equal(tensor, before)


def test_what_finds_no_memory_is_computed_with_the_idle_tensors_on_the_host():
    eager, needed = torch.randn(64, 128), torch.randn(64, 128)
    before = eager.clone()
    gpu = FullGpu(eager)
    assert with_host_memory(gpu.compute, lambda: [eager], lambda: [needed]) == "done"
    assert gpu.asked == 2
    assert torch.equal(eager, before)


def test_what_finds_no_memory_then_either_says_so():
    gpu = FullGpu(torch.randn(64, 128))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        with_host_memory(gpu.compute, list, list)
    assert gpu.asked == 2


def test_a_candidate_without_memory_is_asked_again_while_the_judges_tensors_are_away():
    eager = torch.randn(64, 128)
    gpu = FullGpu(eager)
    assert ask_with_host_memory(gpu.answer, lambda: [eager], list, lambda: True) == "done"
    assert eager.untyped_storage().nbytes() == eager.nbytes


@pytest.mark.parametrize(
    ("idle", "alive"), [([], True), ([torch.ones(64, 128)], False)], ids=["nothing", "ended"]
)
def test_a_candidate_is_asked_once_where_nothing_can_go_or_its_process_has_ended(idle, alive):
    gpu = FullGpu(torch.ones(64, 128))
    with pytest.raises(Failed):
        ask_with_host_memory(gpu.answer, lambda: idle, list, lambda: alive)
    assert gpu.asked == 1


def test_another_failure_of_a_candidate_is_not_asked_about_again():
    asked = []

    def wrong():
        asked.append(1)
        raise Failed(Failure(fault=Fault.SHAPE, message="another shape"))

    with pytest.raises(Failed, match="another shape"):
        ask_with_host_memory(wrong, lambda: [torch.ones(64, 128)], list, lambda: True)
    assert len(asked) == 1


def test_perturbed_outputs_take_little_more_than_float64_and_one_gap(expanding):
    prepared, expected = expanding
    most = most_bytes(lambda: outputs_of_perturbed_inputs(prepared, expected))
    assert most < 8 * OUTPUT_BYTES, f"{most / OUTPUT_BYTES:.1f} outputs"


def test_errors_in_tf32_beside_float64_take_no_more_than_three_outputs_at_a_time(expanding):
    _, expected = expanding
    weight, x = expected.weights.widen.weight.detach(), expected.inputs[0]
    right = [F.conv2d(x.double(), weight.double())]
    most = most_bytes(lambda: errors_of_tf32_convolutions(lambda: [F.conv2d(x, weight)], right))
    assert most < 3.5 * OUTPUT_BYTES, f"{most / OUTPUT_BYTES:.1f} outputs"


def test_rounding_by_chance_takes_one_copy_and_rounds_alike_at_each_call():
    x = torch.randn(64, 8, 128, 32)
    x[3, 2, 1, 0] = float("inf")
    assert most_bytes(lambda: _round_to_tf32_by_chance(x)) < 1.3 * x.nbytes
    once = _round_to_tf32_by_chance(x)
    assert torch.equal(once, _round_to_tf32_by_chance(x))
    assert once[3, 2, 1, 0] == float("inf")
    gap = torch.where(x.isfinite(), (once - x).abs() / x.abs().clamp(min=1e-30), 0.0)
    assert 2.0**-12 < float(gap.max()) <= 2.0**-10
    assert not bool((once.view(torch.int32) & ((1 << 13) - 1)).any()), "all of it is tf32"


def test_what_a_run_reads_is_never_among_what_is_set_aside(expanding):
    _, expected = expanding
    with moved_to_host(
        [*expected.eager, *expected.inputs, *expected.weights.parameters()],
        tensors_of_run(expected),
    ) as out:
        assert out == sum(t.nbytes for t in expected.eager)
