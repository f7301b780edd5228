"""After a run without a correct kernel: how far it came, what is near, and what could go further."""

from __future__ import annotations

import json

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.loop.stopping import Budgets, StopReason
from kernelwright.agent.problems.finding import catalogue, find_by_name
from kernelwright.agent.problems.similarity import most_similar, operators_of
from kernelwright.agent.runtime.errors import Exit
from kernelwright.agent.solve.next_steps import next_steps
from kernelwright.policies.base import Origin
from kernelwright.tools.problem import Problem

OWN = """
import torch
import torch.nn as nn
import torch.nn.functional as F

rows, columns = 8, 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return F.softmax(self.norm(x) @ x.transpose(0, 1), dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


def test_the_operators_of_a_reference_are_read_from_its_text_by_torch_s_names():
    assert operators_of(OWN) == {"layer_norm", "softmax", "matmul"}


@pytest.mark.parametrize(
    ("name", "near"),
    [("fused_gelu", "fused_bias_gelu"), ("cumsum", "reverse_cumsum"), ("matvec", "batched_matmul"),
    ("depthwise_conv2d", "pointwise_conv2d")],
)  # fmt: skip
def test_the_nearest_problem_shares_the_rarest_operators(name, near):
    assert most_similar(find_by_name(name), catalogue())[0].problem in (near, "conv2d")


def steps_of(run, store, **settings):
    return next_steps(
        run.problem, run.settings.with_(**settings), run.attempts, run.stop_reason, store
    )


def test_a_run_that_fails_says_how_far_it_came_and_what_could_go_further(
    begin, store, does_not_compile, unfinished
):
    run = begin([unfinished(1), does_not_compile], budgets=Budgets(turns=2))
    assert run.run() is StopReason.TURNS
    steps = steps_of(run, store)
    assert steps.reached.startswith("turn 2 of 2 came furthest: it ended at compile: compile: ")
    assert steps.nearest == "fused_swiglu of the catalogue, which has silu too: agent solve fused_swiglu, and begin " \
        "from its kernel with --draft FILE"  # fmt: skip
    assert "a first draft by the compiler: --draft compiler" in steps.options
    assert "more turns: --turns 4" in steps.options
    assert any(
        "--policy openai:" in step for step in steps_of(run, store, policy="embedded").options
    )
    assert any(
        "--policy embedded" in step for step in steps_of(run, store, policy="compiler").options
    )


def test_a_run_that_its_time_ended_is_told_how_to_have_more(begin, store):
    run = begin([], budgets=Budgets(minutes_unsolved=1e-9))
    assert run.run() is StopReason.WALL
    assert "more time: --max-minutes 10" in steps_of(run, store).options


def test_what_the_compiler_refused_is_said_with_what_to_do_about_it(begin, store, unfinished):
    run = begin([unfinished(1)], budgets=Budgets(turns=1))
    run.run()
    asked = (run.problem, run.settings, run.attempts, run.stop_reason, store)
    branch = "what forward does depends on the values of a tensor at line 12 (if x.mean() > 0:)"
    steps = next_steps(*asked, branch)
    assert steps.compiler == branch
    assert steps.options[0].startswith("a reference without that branch: torch.where or a mask")
    operator = next_steps(
        *asked, "no kernel of its own for _fft_r2c at line 9 (f = torch.fft.rfft(x))"
    )
    assert operator.options[0].endswith("left to torch: --partial")
    assert not any("--draft compiler" in step for step in (*steps.options, *operator.options))
    assert next_steps(*asked).compiler == ""


@pytest.mark.parametrize("draft", ["auto", "policy"])
def test_the_compiler_is_named_where_it_has_not_drafted(begin, store, unfinished, draft):
    """With one turn the policy alone is asked, whatever `--draft` says."""
    run = begin([unfinished(1)], budgets=Budgets(turns=1))
    run.run()
    named = "a first draft by the compiler: --draft compiler"
    assert named in steps_of(run, store, draft=draft).options
    drafted = [attempt.with_(origin=Origin.COMPILER) for attempt in run.attempts]
    assert (
        named not in next_steps(run.problem, run.settings, drafted, run.stop_reason, store).options
    )


def test_a_solved_problem_of_this_database_is_named_first_and_a_correct_run_has_no_next_steps(
    begin, store, right
):
    run = begin([right])
    run.run()
    assert steps_of(run, store) is None
    like = Problem(
        name="mine",
        source=run.problem.source.replace("functional.silu(x)", "functional.silu(x) + 1"),
    )
    failed = next_steps(like, run.settings, [], StopReason.TURNS, store)
    assert failed.reached == "no candidate was judged"
    assert (
        f"fused_silu of the catalogue, which has silu too; it is solved in trajectory {run.trajectory_id}"
        in (failed.nearest)
    )


def test_agent_solve_on_a_file_of_one_s_own_ends_with_the_next_step(
    tmp_path, monkeypatch, capsys, unfinished
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(OWN)
    (tmp_path / "script.json").write_text(json.dumps([unfinished(1)]))
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "solve",
                "model.py",
                "--policy",
                "scripted:script.json",
                "--device",
                "cpu",
                "--turns",
                "1",
            ]
        )
    assert ended.value.code == Exit.INCORRECT
    said = " ".join(capsys.readouterr().out.split())
    assert "what to do next" in said
    assert "turn 1 of 1 came furthest: it ended at source" in said
    assert "layer_norm of the catalogue" in said
    assert "--draft compiler" in said
