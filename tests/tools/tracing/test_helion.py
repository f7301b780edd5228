"""Helion's kernels as candidates: Helion writes Triton text, and is allowed with `--allow-import helion`."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

pytest.importorskip("helion", reason="helion is not installed (extra bench)")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]

SILU = """import torch
rows, columns = 1024, 777
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return []
"""
ACTIVATED = """import torch
import helion
import helion.language as hl

@helion.kernel({options})
def activated(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        value = x[tile]
        out[tile] = value * torch.sigmoid({what})
    return out

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return activated(x)
"""
PRODUCT = """import torch
m, k, n = 256, 333, 128
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x @ y
def get_inputs():
    return [torch.randn(m, k), torch.randn(k, n)]
def get_init_inputs():
    return []
"""
MATMUL = """import torch
import helion
import helion.language as hl

@helion.kernel(config=helion.Config(block_sizes=[32, 32, 32]), dot_precision="ieee")
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    k, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            total = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=total)
        out[tile_m, tile_n] = total
    return out

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return matmul(x, y)
"""
DYNAMIC = "config=helion.Config(block_sizes=[64, 64]), static_shapes=False"
ALLOWED = Options(allow_import=("helion",), compile_seconds=120.0)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (SILU, ACTIVATED.format(options=DYNAMIC, what="value")),
        (SILU, ACTIVATED.format(options="static_shapes=False", what="value")),
        (PRODUCT, MATMUL),
    ],
    ids=["symbolic sizes", "its default configuration", "a product for each size"],
)
def test_a_helion_kernel_is_right_at_every_size(reference: str, candidate: str) -> None:
    with Evaluator("cpu", workers=1) as judge:
        report = judge.evaluate(Problem(name="helion", source=reference), candidate, ALLOWED)
    assert report.correct, report.failure


def test_a_wrong_helion_kernel_is_refused_and_one_that_is_not_allowed() -> None:
    problem = Problem(name="helion", source=SILU)
    with Evaluator("cpu", workers=1) as judge:
        wrong = judge.evaluate(
            problem, ACTIVATED.format(options=DYNAMIC, what="value * 2.0"), ALLOWED
        )
        foreign = judge.evaluate(problem, ACTIVATED.format(options=DYNAMIC, what="value"))
    assert wrong.failure is not None
    assert wrong.failure.fault == "mismatch"
    assert foreign.failure is not None
    assert "helion" in foreign.failure.message
