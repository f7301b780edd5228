"""A batch whose policy and judge share a GPU, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.agent.batch.running import run_batch
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets, StopReason
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.runtime.databases import open_store
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.store.records import TrajectoryFilter

pytestmark = pytest.mark.gpu
WEIGHTS = Path(__file__).parents[2] / "policies" / "weights"
SOLVED = ("fused_gelu", "fused_silu", "fused_softmax", "vector_add")


def test_every_trajectory_is_judged_while_the_policy_computes_beside(tmp_path):
    """Seen on an H200: a graph's capture failed, and problems were said to fail that did not (`Offset increment
    outside graph capture`).
    """
    policy = TransformersPolicy(str(WEIGHTS), device="cuda:0")
    settings = Settings(
        policy=f"transformers:{WEIGHTS}",
        targets=("sm_90",),
        device="cuda:0",
        budgets=Budgets(turns=2),
        temperature=0.8,
        seed=1,
    )
    problems = [find_by_name(name) for name in SOLVED]
    done = run_batch(
        problems,
        policy,
        settings,
        name="shared",
        samples=3,
        folder=tmp_path / "run",
        db=str(tmp_path / "runs.db"),
    )
    with open_store(str(tmp_path / "runs.db"), readonly=True) as store:
        ended = [
            row.stop_reason
            for row in store.trajectories(TrajectoryFilter(run="shared"), limit=None)
        ]
    assert len(ended) == 3 * len(SOLVED)
    assert not set(ended) & {StopReason.PROBLEM, StopReason.INFRASTRUCTURE, StopReason.REFUSED}, (
        ended
    )
    assert done.standing.jobs == len(ended)
