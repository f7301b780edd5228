"""Modules of kinds that the rules were not made with (modules/): each is drafted with its sizes free, and right."""

from pathlib import Path

import pytest
import torch

from kernelwright.agent.problems.reading import read_problem
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.functions import statistics
from kernelwright.tools.evaluation.pipeline import Evaluator, Options

MODULES = sorted((Path(__file__).parent / "modules").glob("*.py"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_drafted_with_its_sizes_free_and_right(path: Path, drafter: Drafter):
    problem = read_problem(path)
    draft = drafter.draft(problem)
    assert draft.usable, draft.refused
    assert not draft.fixed_sizes
    with Evaluator("cpu") as evaluator:
        report = evaluator.evaluate(problem, draft.source, Options(sizes=4))
    assert report.correct, report.failure or report.warnings


@pytest.mark.slow
@pytest.mark.nightly
def test_the_groups_of_a_library_s_convolution_may_be_a_size(drafter: Drafter):
    problem = read_problem(Path(__file__).parent / "modules" / "ghost_shift_block.py")
    draft = drafter.draft(problem, "share:0.001")
    assert draft.usable, draft.refused
    assert "groups=cout // 2" in draft.source


def test_covariances_and_differences_are_torch_s():
    x, functions = torch.randn(5, 9), statistics.statistics_functions()
    for name in ("cov", "corrcoef"):
        torch.testing.assert_close(functions[name](x), getattr(torch, name)(x))
        torch.testing.assert_close(functions[name](x[0]), getattr(torch, name)(x[0]))
    torch.testing.assert_close(
        functions["gradient"](x, spacing=0.5), torch.gradient(x, spacing=0.5)
    )


@pytest.mark.parametrize("side", [1, 2, 7, 40])
def test_the_places_of_a_triangle_follow_from_their_number(side: int):
    places = torch.stack(statistics.rows_of_lower_triangle(torch.arange(side * (side + 1) // 2)))
    assert torch.equal(places, torch.tril_indices(side, side))
