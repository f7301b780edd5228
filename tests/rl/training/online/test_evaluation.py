"""`rl train --online --evaluate-every N`: the policy that is written is the one measured best."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors.torch import load_file  # noqa: E402

from kernelwright.policies.policy_card import read_card  # noqa: E402
from kernelwright.rl.training.online.evaluation import (  # noqa: E402
    Evaluations,
    HeldOutEvaluation,
    best_evaluation,
    best_weights,
    read_evaluations,
)
from kernelwright.rl.training.online.training import train_online  # noqa: E402
from kernelwright.rl.training.processes import ALONE  # noqa: E402
from tests.rl.training.online.online_options import options  # noqa: E402


class MeasuredAs(Evaluations):
    """Evaluations whose measurements are given by step."""

    def __init__(self, figures: dict[int, float], work: Path, weights) -> None:
        super().__init__(5, 1, {"deep": ()}, work, ALONE, weights)
        self._figures = figures

    def _measure(self, step, rounds):
        from kernelwright.rl.training.online.measuring import HeldOutFigures

        value = self._figures[step]
        return {
            "deep": HeldOutFigures(
                split="deep", problems=1, samples=1, pass_at_1=value, compile_rate=1.0, solved=value,
                repair_rate=None, tokens=1.0, by_problem={"p": value},
            )
        }  # fmt: skip


def test_the_weights_of_the_best_measurement_are_kept_and_of_equal_ones_the_first(tmp_path):
    step = 0
    known = {0: 0.2, 5: 0.6, 10: 0.6, 15: 0.4}

    def weights():
        return {"step": torch.tensor([float(step)])}

    evaluations = MeasuredAs(known, tmp_path, weights)
    for step in known:
        assert evaluations.is_due(step)
        evaluations.evaluate(step, None)
        assert not evaluations.is_due(step)
    assert not evaluations.is_due(7)
    assert best_weights(tmp_path)["step"].item() == 5.0
    assert best_evaluation(read_evaluations(tmp_path)).step == 5


def test_a_training_that_goes_on_knows_what_was_measured(tmp_path):
    first = MeasuredAs({0: 0.5}, tmp_path, lambda: {"at": torch.zeros(1)})
    first.evaluate(0, None)
    again = MeasuredAs({5: 0.4}, tmp_path, lambda: {"at": torch.ones(1)})
    assert not again.is_due(0)
    again.evaluate(5, None)
    assert [evaluation.step for evaluation in read_evaluations(tmp_path)] == [0, 5]
    assert best_weights(tmp_path)["at"].item() == 0.0


def test_an_evaluation_is_logged_by_split():
    evaluation = HeldOutEvaluation(step=3, pass_at_1=0.5, by_split={"deep": 0.25, "wide": 0.75})
    assert evaluation.figures == {
        "held_out/pass_at_1": 0.5,
        "held_out/deep": 0.25,
        "held_out/wide": 0.75,
    }


@pytest.mark.slow
def test_the_policy_is_the_one_that_was_measured_best(novice, problems, judges, tmp_path):
    lines = []
    asked = options(
        novice,
        problems,
        tmp_path / "out",
        max_steps=4,
        evaluate_every=2,
        held_out=(problems,),
        samples=6,
    )
    trained = train_online(asked, judges=judges, say=lines.append)
    told = [line for line in lines if "on held-out problems" in line]
    assert [line.split(":")[0] for line in told] == [f"after {step} steps" for step in (0, 2, 4)]
    card = read_card(Path(trained.output))
    shares = [float(line.split("pass@1 ")[1].split("%")[0]) for line in told]
    assert card.model_extra["best_step"] == 2 * shares.index(max(shares))
    history = json.loads((Path(trained.output) / "history.json").read_text())
    measured = [entry["step"] for entry in history if "held_out/pass_at_1" in entry]
    assert measured == [1, 3]
    start, end = (load_file(folder / "model.safetensors") for folder in (novice, tmp_path / "out"))
    moved = any(not torch.equal(start[name].float(), end[name].float()) for name in end)
    assert moved is (card.model_extra["best_step"] > 0)
