"""Judges of a pool, as a training sees them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelwright.agent.judging.local_pool import LocalPool
from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.rl.training.online.pooled_judges import PooledJudges
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem, ProblemError


@pytest.fixture(scope="module")
def judges():
    with PooledJudges(LocalPool(["cpu"], 1), DeviceKind.CPU) as found:
        yield found


def test_equal_programs_are_judged_once_and_counted_so(judges):
    problem, text, options = (
        find_by_name("fused_silu"),
        "import triton\nNUMBER = 1\n",
        Options(sizes=0, seed=1),
    )
    same = Problem(name="another name", source=problem.source)
    with ThreadPoolExecutor(4) as threads:
        asked = [
            (problem, text),
            (same, f"{text}# equal\n"),
            (problem, text),
            (problem, f"{text}MORE = 2\n"),
        ]
        reports = list(threads.map(lambda one: judges.evaluate(*one, options), asked))
    assert [report.problem for report in reports] == [
        "fused_silu",
        "another name",
        "fused_silu",
        "fused_silu",
    ]
    assert sorted(report.cached for report in reports) == [False, False, True, True]
    assert (judges.figures.requested, judges.figures.judged, judges.workers) == (4, 2, 1)
    assert judges.figures.seconds > 0


def test_a_problem_that_cannot_be_used_is_refused_to_each_who_asks(judges, request):
    right = (request.config.rootpath / "tests" / "kernels" / "good" / "fused_silu.py").read_text()
    for _ in range(2):
        with pytest.raises(ProblemError, match="lacks"):
            judges.evaluate(Problem(name="none", source="x = 1"), right)
