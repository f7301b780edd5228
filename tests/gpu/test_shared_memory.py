"""Judges that share a GPU keep little of it between their verdicts; one alone keeps what makes the next verdict quick."""

import pytest

from bench.suite import exploits, honest, problem_of
from tools.judge import TOGETHER, Judge, Rules
from tools.pipeline import Evaluator

pytestmark = pytest.mark.gpu

SHARERS = 32


@pytest.mark.parametrize("sharers", [1, SHARERS])
def test_what_is_kept_is_a_part_of_what_is_shared(sharers):
    import torch

    whole = torch.cuda.mem_get_info("cuda:0")[1]
    fair = whole // (TOGETHER * SHARERS)
    [adding] = honest(["vector_add"])
    problem = problem_of(adding.problem).with_sizes({"size": fair // 8})
    torch.cuda.empty_cache()
    with Judge("cuda:0", sharers=sharers) as judge:
        assert judge.judge(problem, adding.source, Rules()).correctness.failure is None
        kept = torch.cuda.memory_reserved("cuda:0")
        assert (kept > fair) == (sharers == 1), f"{kept >> 20} MiB of {whole >> 20} kept"
        assert judge.judge(problem, adding.source, Rules()).correctness.failure is None


def test_what_a_candidate_took_is_there_again_when_its_verdict_is():
    """The next candidate may be another judge's, which knows of no process that is just dying."""
    import torch

    [greedy] = exploits(["keeps_device_memory"])
    with Evaluator("cuda:0") as lessor, lessor.alone_on_the_gpu(), Judge("cuda:0") as judge:
        before, whole = torch.cuda.mem_get_info("cuda:0")
        assert judge.judge(problem_of(greedy.problem), greedy.source, Rules()).correctness.failure is not None
        assert torch.cuda.mem_get_info("cuda:0")[0] > before - whole // 10
