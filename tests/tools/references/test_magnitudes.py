"""Large numbers in the place of a problem's own whole ones, asked for on a CPU before a GPU is given them; the ends of
a range that is drawn from; weights and statistics that are moved.
"""

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.numerics.seeds import bounds_are_drawn
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.magnitudes import (
    may_be_enlarged,
    perturb_weights,
    runs_on_large_integers,
)

TEXT = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, index):
        return {answer}
def get_inputs():
    return [torch.randint(1, 100, (4, 8)), torch.randint(1, 4, (3,))]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("answer", "sums"), [("x.sum(1) + index.sum()", True), ("x[index]", False)]
)
def test_a_gpu_is_given_large_whole_numbers_only_where_none_is_an_index(answer, sums):
    prepared = prepare_problem(Problem(name="whole", source=TEXT.format(answer=answer)), "cpu", 3)
    inputs = prepared.reference.inputs(1)
    assert runs_on_large_integers(prepared.reference, prepared.model, inputs) is sums
    assert int(inputs[0].max()) < 100


def test_on_a_cpu_the_reference_says_itself_that_they_are_indices():
    prepared = prepare_problem(
        Problem(name="whole", source=TEXT.format(answer="x[index]")), "cpu", 3
    )
    with pytest.raises(ProblemError, match="IndexError"):
        expected_outputs(prepared, Draw.LARGE, 1)


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        ("torch.bincount(x.flatten())", False),
        ("x[:, : int(index[0])]", False),
        ("x.cumsum(1) + index.sum()", True),
    ],
)
def test_whole_numbers_that_decide_a_size_stay_as_they_are(answer, free):
    prepared = prepare_problem(Problem(name="whole", source=TEXT.format(answer=answer)), "cpu", 3)
    assert may_be_enlarged(prepared.reference, prepared.model, prepared.reference.inputs(1)) is free
    assert (int(expected_outputs(prepared, Draw.LARGE, 1).inputs[0].max()) > 1 << 24) is free


def test_of_constants_some_stay_some_change_their_sign_and_most_move() -> None:
    norm = torch.nn.LayerNorm(512)
    perturb_weights(norm, 3)
    weight, bias = norm.weight.detach(), norm.bias.detach()
    assert 20 < int((weight == 1).sum()) < 120
    assert 20 < int((bias == 0).sum()) < 120
    assert int((weight < 0).sum()) > 20
    assert bool(((weight == 1) & (bias != 0)).any())
    assert bool(((weight != 1) & (bias == 0)).any())


def test_one_running_variance_in_eight_is_tiny_and_none_is_zero() -> None:
    norm = torch.nn.BatchNorm1d(512)
    perturb_weights(norm, 3)
    variance = norm.running_var
    assert variance is not None
    assert bool((variance > 0).all())
    assert 20 < int((variance < 1e-3).sum()) < 120


def test_whole_numbers_are_drawn_up_to_their_bounds() -> None:
    with bounds_are_drawn("cpu"):
        tokens = torch.randint(0, 50257, (2, 3))
        lengths = torch.randint(4, 900, size=(8,))
        few = torch.randint(10**9, (3,))
    assert (int(tokens.min()), int(tokens.max())) == (0, 50256)
    assert (int(lengths.min()), int(lengths.max())) == (4, 899)
    assert int(few.max()) < 10**9 - 1
