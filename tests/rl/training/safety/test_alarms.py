"""Jumps that no honest training makes, and what is measured on held-out problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.rl.training.online.loop_folder import promote, read_record
from kernelwright.rl.training.online.measuring import (
    HeldOutFigures,
    PolicyComparison,
    bootstrap_interval,
    compare,
    is_better,
)
from kernelwright.rl.training.report import draw_curves, series_of
from kernelwright.rl.training.safety.alarms import (
    Alarm,
    AlarmBounds,
    TrainingAlarm,
    WatchedCandidate,
    check_drift,
    check_entropy,
    check_step,
)

LIMITS = AlarmBounds()


def seen(count=32, **changes):
    return [
        WatchedCandidate(
            candidate_id=n,
            problem_hash=f"p{n % 8}",
            source_hash=f"s{n}",
            correct=n % 2 == 0,
            **changes,
        )
        for n in range(count)
    ]


def raised(rows) -> Alarm:
    with pytest.raises(TrainingAlarm) as stopped:
        check_step(rows, LIMITS)
    assert len(str(stopped.value).splitlines()) == 1
    return stopped.value.alarm


def test_an_honest_step_raises_no_alarm():
    check_step(seen(), LIMITS)
    check_step([], LIMITS)


def test_a_speed_over_physics_stops_the_training_at_the_first_candidate():
    assert (
        raised(
            [WatchedCandidate(candidate_id=1, problem_hash="p", correct=True, speed_of_light=1.3)]
        )
        is Alarm.TOO_FAST
    )


def test_many_cheats_stop_it():
    assert raised([one.with_(cheat=one.candidate_id < 8) for one in seen()]) is Alarm.CHEATS


def test_one_program_that_is_right_for_most_problems_stops_it():
    assert (
        raised([one.with_(source_hash="same", correct=True) for one in seen()]) is Alarm.TAKEN_OVER
    )


def test_one_program_that_is_right_for_one_problem_many_times_is_just_a_sure_policy():
    check_step([one.with_(source_hash=one.problem_hash, correct=True) for one in seen()], LIMITS)


def test_entropy_that_falls_away_stops_it_and_a_low_one_from_the_start_does_not():
    check_entropy([0.1, 0.08, 0.05], LIMITS)
    check_entropy([0.0005] * 20, LIMITS)
    with pytest.raises(TrainingAlarm, match="entropy fell"):
        check_entropy([0.1] * 5 + [0.001] * 5, LIMITS)


def test_rows_that_all_but_one_say_nothing_stop_it_and_a_single_such_step_does_not():
    check_drift([0.9, 0.01, 0.01], LIMITS)
    check_drift([0.12, 0.11, 0.12, 0.07], LIMITS)
    with pytest.raises(TrainingAlarm, match="moved so far") as stopped:
        check_drift([0.9, 0.01, 0.005, 0.01], LIMITS)
    assert stopped.value.alarm is Alarm.WORN_OUT


def test_a_policy_far_from_the_sampler_stops_the_training_however_few_rows_a_step_has():
    few_rows = [0.3, 0.3, 0.3]
    check_drift(few_rows, LIMITS, [0.1, 0.2, 0.1])
    check_drift(few_rows, LIMITS, [7.3, 0.2, 7.3])
    with pytest.raises(TrainingAlarm, match=r"KL 7\.30 nats a token") as stopped:
        check_drift(few_rows, LIMITS, [7.1, 7.2, 7.3])
    assert stopped.value.alarm is Alarm.WORN_OUT


def measured(split, scores):
    by_problem = {f"h{n}": score for n, score in enumerate(scores)}
    mean = sum(scores) / len(scores)
    return HeldOutFigures(
        split=split, problems=len(scores), samples=len(scores), pass_at_1=mean, compile_rate=1.0, solved=mean,
        repair_rate=None, tokens=1.0,
        by_problem=by_problem,
    )  # fmt: skip


def test_a_candidate_is_better_only_where_all_splits_together_say_so():
    up = compare(measured("a", [0.0] * 20), measured("a", [0.5] * 20))
    down = compare(measured("b", [0.5] * 20), measured("b", [0.4] * 20))
    assert is_better([up])[0]
    assert is_better([up, down]) == (False, "worse on b: 50.0% -> 40.0%")
    assert not is_better([compare(measured("a", [0.5] * 4), measured("a", [0.5] * 4))])[0]
    assert not is_better([])[0]


def test_the_interval_of_a_paired_difference_holds_its_mean():
    low, high = bootstrap_interval([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    assert low < 0.5 < high
    assert bootstrap_interval([]) == (0.0, 0.0)
    assert isinstance(compare(measured("a", [0.0]), measured("a", [1.0])), PolicyComparison)


def test_a_promotion_replaces_the_old_policy_whole(tmp_path):
    for name, text in (("one", "1"), ("two", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(text)
        promote(tmp_path / name, tmp_path / "policy")
        assert (tmp_path / "policy" / "model.safetensors").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "policy", "two"]
    assert read_record(tmp_path) == []


def test_curves_leave_out_what_is_not_finite(tmp_path: Path):
    history = [
        {"step": 1, "loss": 0.5, "reward": float("nan")},
        {"step": 2, "loss": 0.4, "reward": 0.7},
    ]
    assert series_of(history, "reward") == ([2], [0.7])
    assert draw_curves(tmp_path / "curves.png", history)
    assert not draw_curves(tmp_path / "none.png", json.loads("[]"))


def test_steps_without_a_row_are_no_collapse_of_entropy(tmp_path):
    pytest.importorskip("transformers")
    from types import SimpleNamespace

    from kernelwright.rl.training.options import Method, TrainOptions
    from kernelwright.rl.training.watching import TrainingRun, TrainingWatcher, ignore_step

    options = TrainOptions(output=tmp_path / "out", limits=LIMITS)
    options.work.mkdir()
    watching = TrainingWatcher(TrainingRun(None, options, Method.GRPO, {}), ignore_step)
    state = SimpleNamespace(log_history=[], is_world_process_zero=True, global_step=1, max_steps=20)

    def log(**figures):
        state.log_history.append({"step": 1, "loss": 0.0, **figures})
        watching.on_log(None, state, None, logs=state.log_history[-1])

    for _ in range(6):
        log(entropy=0.1, rows=8.0)
    for _ in range(6):
        log(entropy=0.0, rows=0.0)
    for _ in range(4):
        log(entropy=0.0, rows=8.0)
    with pytest.raises(TrainingAlarm):
        log(entropy=0.0, rows=8.0)
