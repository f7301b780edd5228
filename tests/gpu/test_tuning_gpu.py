"""The tuner on a GPU: what it writes is right and not slower, a grid follows its tile, a run tunes and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.settings import PrecisionClass, TuneSettings
from kernelwright.agent.tuning.tuned import ConfigurationOutcome
from kernelwright.agent.tuning.tuning import Tuner

pytestmark = pytest.mark.gpu
GOOD = Path(__file__).parents[1] / "kernels" / "good"


@pytest.fixture(scope="module")
def evaluator():
    from kernelwright.tools.evaluation.pipeline import Evaluator

    with Evaluator(device="cuda:0") as made:
        yield made


def tuner_of(evaluator, path, name, **settings):
    asked = TuneSettings(
        target=evaluator.target, device="cuda:0", configurations=settings.pop("configurations", 16),
        measured=8, launches=600, gpu_seconds=60.0, **settings,
    )  # fmt: skip
    source = (GOOD / f"{name}.py").read_text(encoding="utf-8")
    journal = Journal(path, name)
    return Tuner(evaluator, find_by_name(name.replace("_", " ")), source, asked, journal)


@pytest.mark.parametrize("name", ["vector_add", "matmul", "fused_softmax"])
def test_what_wins_is_right_and_certainly_faster_or_nothing_is_written(evaluator, tmp_path, name):
    tuned, text = tuner_of(evaluator, tmp_path / "journal.jsonl", name).run()
    assert tuned.measured
    assert tuned.report.correct
    assert tuned.eager.median > 0
    if text:
        assert tuned.chosen[0].timing.high < tuned.before.low
        assert evaluator.evaluate(find_by_name(name.replace("_", " ")), text).correct


def test_a_matmul_in_fp32_is_faster_with_split_products_and_the_class_is_told(evaluator, tmp_path):
    tuned, _ = tuner_of(evaluator, tmp_path / "j.jsonl", "matmul", configurations=24).run()
    assert tuned.by_precision[PrecisionClass.SPLIT.value].timing.median < tuned.before.median
    assert tuned.by_precision[PrecisionClass.IEEE.value].precision is PrecisionClass.IEEE


def test_only_ieee_products_are_chosen_where_only_they_are_allowed(evaluator, tmp_path):
    tuned, text = tuner_of(
        evaluator, tmp_path / "j.jsonl", "matmul", precision=PrecisionClass.IEEE
    ).run()
    assert "bf16x3" not in text
    assert all(one.precision is PrecisionClass.IEEE for one in tuned.chosen)


def test_a_tuning_that_goes_on_measures_nothing_again_and_ends_alike(evaluator, tmp_path):
    path = tmp_path / "j.jsonl"
    first, text = tuner_of(evaluator, path, "vector_add").run()
    rows = path.read_text(encoding="utf-8").splitlines()
    half = [row for row in rows if json.loads(row).get("kind") != "judged"]
    path.write_text("\n".join(half[: len(half) // 2]) + "\n", encoding="utf-8")
    tuner_of(evaluator, path, "vector_add").run()
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    again, same = tuner_of(evaluator, path, "vector_add").run()
    assert path.read_text(encoding="utf-8").splitlines() == rows
    assert (same, again.chosen, again.groups) == (text, first.chosen, first.groups)


def test_a_wrong_configuration_is_seen_while_it_is_timed(evaluator):
    """A grid that does not follow its tile leaves the end of the output unwritten."""
    source = (GOOD / "vector_add.py").read_text(encoding="utf-8").replace("BLOCK=1024", "BLOCK=512")
    trial = evaluator.trial(find_by_name("vector add"), source, 4)
    assert trial.failure
    assert not trial.milliseconds


def test_a_failed_configuration_never_wins(evaluator, tmp_path):
    tuned, _ = tuner_of(evaluator, tmp_path / "j.jsonl", "matmul").run()
    for row in (row for group in tuned.groups for row in group.rows):
        assert row.fate is not ConfigurationOutcome.WON or (
            row.score.passed and row.timing is not None
        )


def test_a_run_tunes_its_correct_kernel_and_keeps_the_row(tmp_path):
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.agent.loop.stopping import Budgets, Goal
    from kernelwright.agent.solve.solving import solve_problem
    from kernelwright.policies.inductor.policy import CompilerPolicy
    from kernelwright.store.database import Store

    settings = Settings(
        policy="compiler", device="cuda:0", draft=str(GOOD / "matmul.py"), tune=True, goal=Goal.parse("sol:1"),
        budgets=Budgets(turns=1),
    )  # fmt: skip
    database = tmp_path / "runs.db"
    solved = solve_problem(
        find_by_name("matmul"), CompilerPolicy(), settings, db=str(database), output=tmp_path / "out.py",
        watch=lambda run, doing: None, say=lambda text: None,
    )  # fmt: skip
    with Store.open(database) as store:
        first, second = store.turns(solved.trajectory_id)[:2]
    assert second.action.value == "tune"
    assert second.parent_id == first.candidate_id
    assert second.completion.policy == "tuner"
