"""Honest kernels are accepted, and broken ones get the name of their fault, where it lies and what it looks like.

tests/kernels/run_interpreted.py proves the honest ones without the judge.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.judge_suites import KERNELS, Entry, header, honest, problem_of
from bench.trust import options_for
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.report import Fault, Report
from tests.catalogue_sample import parameters

GOOD = [e for e in honest() if e.tried_on("cpu") and e.on_cpu != "needs-gpu"]
BAD = sorted(p for p in (KERNELS / "bad").iterdir() if header(p.read_text()).get("needs") != "gpu")
NAME = operator.attrgetter("name")
STEM = operator.attrgetter("stem")
BRIEFLY = Options(profile=False, torch_compile=False, compile_seconds=20.0, seconds=20.0)


def fault_of(path: Path) -> str:
    return header(path.read_text())["fault"]


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(device="cpu", workers=2) as judge:
        yield judge


@pytest.mark.parametrize("entry", parameters(GOOD, NAME, operator.attrgetter("family")))
def test_an_honest_kernel_is_accepted(entry: Entry, evaluator: Evaluator) -> None:
    report = evaluator.evaluate(problem_of(entry.problem), entry.source, options_for(entry))
    assert report.correct, f"{report.failure}"


@pytest.mark.parametrize("path", parameters(BAD, STEM, fault_of))
def test_a_broken_kernel_gets_the_name_of_its_fault(path: Path, evaluator: Evaluator) -> None:
    expected = header(path.read_text())
    report = evaluator.evaluate(problem_of(expected["problem"]), text_of(path), BRIEFLY)
    assert_named(report, expected)


def assert_named(report: Report, said: dict[str, str]) -> None:
    """The fault of the header, and where the header tells them the line and the pattern."""
    failure = report.failure
    assert not report.correct
    assert failure is not None
    assert failure.fault == said["fault"], f"{failure.fault}: {failure.message}"
    if "line" in said:
        assert failure.where is not None, failure.message
        assert failure.where.line == int(said["line"]), failure.message
    if "pattern" in said:
        assert failure.mismatch is not None, failure.message
        assert failure.mismatch.pattern == said["pattern"], failure.message


def text_of(path: Path) -> str:
    """A candidate's text; a reply without code loses the header, which would be its only Python."""
    text = path.read_text()
    return (
        text
        if path.suffix == ".py"
        else "".join(line for line in text.splitlines(True) if line[0] != "#")
    )


def test_every_problem_of_the_catalogue_has_an_honest_kernel() -> None:
    catalogue = {
        p.stem for p in (KERNELS.parents[1] / "agent" / "problems" / "catalogue").glob("[!_]*.py")
    }
    assert catalogue <= {e.problem for e in honest()}


def test_broken_kernels_cover_what_an_honest_author_can_cause() -> None:
    faults = {header(p.read_text())["fault"] for p in (KERNELS / "bad").iterdir()}
    assert faults == set(Fault) - {Fault.CHEAT, Fault.LAYOUT, Fault.UNCHECKED, Fault.UNJUDGED}
