"""Judges that share a GPU keep little of it between their verdicts; one alone keeps what makes the next verdict quick."""

from pathlib import Path

import pytest

from tools.judge import TOGETHER, Judge, Rules
from tools.problem import Problem

pytestmark = pytest.mark.gpu

KERNEL = (Path(__file__).parents[1] / "kernels" / "good" / "vector_add.py").read_text()
REFERENCE = """
import torch
import torch.nn as nn

n = NUMBER


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(n), torch.randn(n)]


def get_init_inputs():
    return []
"""
SHARERS = 32


@pytest.mark.parametrize("sharers", [1, SHARERS])
def test_what_is_kept_is_a_part_of_what_is_shared(sharers):
    import torch

    whole = torch.cuda.mem_get_info("cuda:0")[1]
    fair = whole // (TOGETHER * SHARERS)
    problem = Problem(name="large", source=REFERENCE.replace("NUMBER", str(fair // 8)))
    torch.cuda.empty_cache()
    with Judge("cuda:0", sharers=sharers) as judge:
        assert judge.judge(problem, KERNEL, Rules()).correctness.failure is None
        kept = torch.cuda.memory_reserved("cuda:0")
        assert (kept > fair) == (sharers == 1), f"{kept >> 20} MiB of {whole >> 20} kept"
        assert judge.judge(problem, KERNEL, Rules()).correctness.failure is None
