"""`rl evaluate` with real verdicts on scripted answers, and the arithmetic of its figures."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.errors import InputError
from kernelwright.rl.data.rows import Split
from kernelwright.rl.evaluating.measures import evaluate_rollouts
from kernelwright.rl.evaluating.page import format_page
from kernelwright.rl.evaluating.rollouts import Rollout, RolloutTurn
from kernelwright.rl.evaluating.suites import open_suite
from kernelwright.rl.evaluating.text_checks import (
    CheckedText,
    has_patterns,
    overlap,
    separation,
    text_check_figures,
)
from kernelwright.rl.training.sft.card import put_evaluation
from kernelwright.tools.problem import ProblemError
from tests.agent.problems.test_problems import OPERATOR, tritonbench_file

ROOT = Path(__file__).parents[3]
GOOD = ROOT / "tests" / "kernels" / "good"


def answer(name):
    lines = (GOOD / f"{name}.py").read_text().splitlines()
    return "\n".join(line for line in lines if not re.match(r"# (problem|odd):", line))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two problems: one is drafted wrong and mended, the other never gets right.

    Through the command, with the real tools.
    """
    place = tmp_path_factory.mktemp("evaluate")
    (place / "problems").mkdir()
    for name in ("vector_add", "row_max"):
        shutil.copy(ROOT / "agent" / "problems" / "catalogue" / f"{name}.py", place / "problems")
    broken = answer("vector_add").replace("offsets < n", "offsets < m")
    parts = [
        {"when": "torch.max", "answers": [answer("vector_add")] * 2},
        {"answers": [broken, answer("vector_add")]},
    ]
    (place / "script.json").write_text(json.dumps({"parts": parts}))
    command = [
        sys.executable, "-m", "kernelwright.rl", "evaluate", "--policy", f"scripted:{place / 'script.json'}", "--suite",
        str(place / "problems"),
        "--turns", "2", "--device", "cpu", "--out", str(place / "out"), "--json", "--workers", "1",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "out", json.loads(done.stdout), command


@pytest.mark.slow
def test_a_rollout_that_was_mended_counts_within_two_turns_and_not_as_a_draft(measured):
    _, found, _ = measured
    one, two = found["within"]
    assert one["solved"]["value"] == 0.0
    assert two["solved"]["value"] == 0.5
    assert found["problems"] == found["rollouts"] == 2
    assert found["fast"]["1.0"]["value"] == 0.0


def test_the_light_checks_call_a_broken_kernel_good(measured):
    _, found, _ = measured
    assert found["light"]["candidates"] == 2
    assert found["light"]["correct_of_passed"] == 0.0


@pytest.mark.slow
def test_it_leaves_a_page_figures_and_a_database_and_the_same_command_adds_nothing(measured):
    folder, found, command = measured
    assert {"evaluation.md", "evaluation.json", "solved.png", "families.png", "rollouts.db"} <= {
        p.name for p in folder.iterdir()
    }
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert json.loads(again.stdout)["within"] == found["within"]


def rollout(problem, sample, *turns):
    turned = tuple(
        RolloutTurn(
            compiled=right,
            correct=right,
            judged_on="H200" if right else "",
            speedup=1.5 if right else None,
        )
        for right in turns
    )
    return Rollout(
        trajectory_id=sample,
        problem=problem,
        family="f",
        sample=sample,
        finished=True,
        stop_reason="",
        turns=turned,
    )


FACTS = {
    "policy": "p",
    "suite": "s",
    "device": "cuda:0",
    "samples": 2,
    "turns": 2,
    "temperature": 0.8,
    "seed": 0,
}


def test_pass_at_k_is_unbiased_and_problems_never_attempted_count():
    rollouts = [
        rollout("a", 0, True),
        rollout("a", 1, False, True),
        rollout("b", 0, False, False),
        rollout("b", 1, False, False),
    ]
    found = evaluate_rollouts(rollouts, {"a": "f", "b": "f", "c": "g"}, **FACTS)
    one, two = found.within
    assert one.solved.value == pytest.approx(0.5 / 3)
    assert one.at[2].value == pytest.approx(1 / 3)
    assert two.solved.value == pytest.approx(1 / 3)
    assert found.fast[1.0].value == pytest.approx(1 / 3)
    assert found.families["g"].solved.value == 0.0
    assert found.families["f"].any_solved == 1
    assert "2 rollouts are not finished" in format_page(found, "c", "m", "d")


def test_separation_tells_whether_overlap_knows_right_from_wrong():
    assert separation([0.9, 0.8], [0.1]) == 1.0
    assert separation([0.5], [0.5]) == 0.5
    assert separation([], [0.5]) is None
    wrong = CheckedText(patterns=True, overlap=0.9, compiled=True, correct=False)
    assert text_check_figures([wrong, wrong]).passed_of_wrong == 1.0
    assert overlap("a b", "a b") == 1.0
    assert not has_patterns("import torch")


def test_generated_suites_are_the_same_for_the_same_seed_and_named_apart():
    one, other = open_suite("synth:composition", 5), open_suite("synth:composition", 5)
    assert [p.hash for p in one.problems] == [p.hash for p in other.problems]
    assert len({p.name for p in one.problems}) == 5
    assert str(Split.HELD_OUT_COMPOSITION) in one.problems[0].name
    with pytest.raises(InputError, match="choose synth:composition"):
        open_suite("synth:nothing")
    with pytest.raises(InputError, match="choose"):
        open_suite("nothing")


def test_a_checkout_of_tritonbench_is_a_suite(tmp_path):
    tritonbench_file(tmp_path, "scaled_add", OPERATOR)
    found = open_suite(f"tritonbench-t:{tmp_path}")
    assert (found.name, [p.name for p in found.problems]) == (
        "tritonbench-t",
        ["tritonbench-t:scaled_add"],
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProblemError, match="holds no TritonBench-T"):
        open_suite(f"tritonbench-t:{tmp_path / 'empty'}")


def test_a_card_keeps_one_evaluation_the_last(tmp_path):
    card = tmp_path / "README.md"
    card.write_text("# m\n\n<!-- evaluation -->\nNot evaluated yet\n<!-- /evaluation -->\n\nend\n")
    put_evaluation(card, "first")
    put_evaluation(card, "second")
    assert "second" in card.read_text()
    assert "first" not in card.read_text()
    assert card.read_text().endswith("end\n")
