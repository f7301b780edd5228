"""Problems in the forms that people have: each runs, and the compiler's draft of it is judged correct."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference

SPEC = importlib.util.spec_from_file_location("form_table", Path(__file__).parent / "form_table.py")
assert SPEC is not None
assert SPEC.loader is not None
table = importlib.util.module_from_spec(SPEC)
sys.modules["form_table"] = table  # dataclasses look there
SPEC.loader.exec_module(table)
FORMS = {**table.DEVELOPED, **table.KEPT_BACK}


@pytest.fixture
def problem(request: pytest.FixtureRequest, tmp_path: Path) -> Problem:
    form = FORMS[request.param]
    for name, text in form.files.items():
        (tmp_path / name).write_text(text)
    if not form.text:
        return find_by_name(form.name, init=form.init, inputs=form.inputs)
    (tmp_path / form.name.partition(":")[0]).write_text(form.text)
    return find_by_name(f"{tmp_path}/{form.name}", init=form.init, inputs=form.inputs)


@pytest.mark.parametrize("problem", FORMS, indirect=True)
def test_a_form_that_people_have_is_a_problem_that_runs(problem: Problem):
    reference = Reference(problem, "cpu")
    outputs = reference.run(reference.model(0), reference.inputs(0), 0)
    assert any(hasattr(output, "shape") for output in outputs)


@pytest.fixture(scope="module")
def drafter() -> Iterator[Drafter]:
    with Drafter() as made:
        yield made


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator("cpu") as made:
        yield made


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("problem", FORMS, indirect=True)
def test_the_compiler_s_draft_of_a_form_that_people_have_is_correct(
    problem: Problem, drafter: Drafter, evaluator: Evaluator
):
    draft = drafter.draft(problem)
    assert draft.usable, draft.refused
    report = evaluator.evaluate(problem, draft.source, Options(sizes=3))
    assert report.correct, report.failure or report.warnings
