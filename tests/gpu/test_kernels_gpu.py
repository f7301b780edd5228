"""On a GPU, at full shapes: honest kernels are accepted, and broken ones get the name of their fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.judge_suites import KERNELS, Entry, header, honest, problem_of
from bench.trust import options_for
from kernelwright.tools.evaluation.pipeline import Evaluator, Options

pytestmark = pytest.mark.gpu
BAD = sorted((KERNELS / "bad").iterdir())
BRIEFLY = Options(profile=False, torch_compile=False, compile_seconds=30.0, seconds=30.0)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(device="cuda:0", workers=4) as judge:
        yield judge


@pytest.mark.parametrize("entry", honest(), ids=lambda e: e.name)
def test_an_honest_kernel_is_accepted(entry: Entry, evaluator: Evaluator) -> None:
    if not entry.tried_on("cuda:0"):
        pytest.skip(f"needs Triton {entry.triton}")
    report = evaluator.evaluate(
        problem_of(entry.problem), entry.source, options_for(entry).with_(profile=False)
    )
    assert report.correct, f"{report.failure}"


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_a_broken_kernel_gets_the_name_of_its_fault(path: Path, evaluator: Evaluator) -> None:
    said, text = header(path.read_text()), path.read_text()
    if path.suffix != ".py":
        text = "".join(line for line in text.splitlines(True) if line[0] != "#")
    report = evaluator.evaluate(problem_of(said["problem"]), text, BRIEFLY)
    failure = report.failure
    assert not report.correct
    assert failure is not None
    assert failure.fault in (said["fault"], said.get("gpu-fault")), (
        f"{failure.fault}: {failure.message}"
    )
    if "line" in said:
        assert failure.where is not None
        assert failure.where.line == int(said["line"])
