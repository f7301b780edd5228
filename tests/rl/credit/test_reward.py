"""The reward: parts that add up, cheats below honest failures, nothing for what was not measured."""

from __future__ import annotations

import math

import pytest

from kernelwright.agent.rewards.formula import FORMULA_PRESETS, Formula, find_formula
from kernelwright.agent.rewards.scoring import ReplyForm, score
from kernelwright.agent.rewards.storing import store_rewards
from kernelwright.agent.rewards.verdict_findings import FAULTS_THAT_BREAK_THE_RULE
from kernelwright.errors import InputError
from kernelwright.policies.base import FinishReason
from kernelwright.rl.credit.explaining import explain_candidate
from kernelwright.rl.training.safety.suspects import suspects_of
from kernelwright.tools.report import Fault
from tests.rl.logged import answer, verdict

EVERY = sorted(FORMULA_PRESETS)


@pytest.mark.parametrize("name", EVERY)
def test_the_parts_add_up_to_the_reward(name):
    scored = score(
        FORMULA_PRESETS[name], verdict(True, gpu=True), ReplyForm(finish=FinishReason.STOP)
    )
    assert scored.total == pytest.approx(math.fsum(scored.parts.values()), abs=0)
    assert set(scored.parts) == set(scored.words)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.CHEAT])
def test_a_cheat_earns_less_than_any_honest_failure(name, fault):
    cut_off = ReplyForm(finish=FinishReason.LENGTH)
    assert (
        score(FORMULA_PRESETS[name], verdict(fault=Fault.CHEAT)).total
        < score(FORMULA_PRESETS[name], verdict(fault=fault), cut_off).total
    )


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("speedup", [1e-9, 0.3, 1.0, 40.0, math.inf, math.nan])
def test_a_correct_kernel_earns_more_than_any_failure_however_slow(name, speedup):
    correct = score(FORMULA_PRESETS[name], verdict(True, gpu=True, speedup=speedup))
    assert math.isfinite(correct.total)
    assert all(
        correct.total > score(FORMULA_PRESETS[name], verdict(fault=fault)).total for fault in Fault
    )


@pytest.mark.parametrize("fault", sorted(FAULTS_THAT_BREAK_THE_RULE))
def test_where_the_rule_is_broken_nothing_else_counts(fault):
    generous = Formula(name="mine", compile=1.0, checks=1.0, correct=1.0)
    assert score(generous, verdict(fault=fault)).total == (
        generous.cheat if fault is Fault.CHEAT else 0.0
    )


def test_a_cpu_verdict_gives_no_speed_and_no_share():
    parts = score(FORMULA_PRESETS["default"], verdict(True)).parts
    assert parts["speed"] == parts["share"] == 0.0
    assert parts["correct"] == 1.0


def test_autotriton_is_rule_times_execution():
    totals = [
        score(FORMULA_PRESETS["autotriton"], report).total
        for report in (verdict(True), verdict(), verdict(fault=Fault.NO_KERNEL))
    ]
    assert totals == [1.0, 0.0, 0.0]


def test_kevin_is_three_tenths_and_the_speedup():
    assert score(
        FORMULA_PRESETS["kevin"], verdict(True, gpu=True, speedup=2.0)
    ).total == pytest.approx(0.3 + 1.8)


def test_drkernel_is_the_reward_of_kernelgym():
    """0.5 correct + 0.5 min(speedup, 3) + 0.5 coverage; the speedup is the lower end of its interval, 0.9 of it
    here.
    """
    preset = FORMULA_PRESETS["drkernel"]
    assert preset.label == "drkernel@2"
    twice = score(preset, verdict(True, gpu=True, speedup=2.0, share=0.8))
    assert twice.total == pytest.approx(0.5 + 0.5 * 1.8 + 0.5 * 0.8)
    fast = score(preset, verdict(True, gpu=True, speedup=40.0, share=1.0))
    assert fast.total == pytest.approx(0.5 + 0.5 * 3.0 + 0.5)
    assert score(preset, verdict(False)).total == 0.0


def test_the_default_takes_the_lower_bound_and_a_clipped_logarithm():
    parts = score(FORMULA_PRESETS["default"], verdict(True, gpu=True, speedup=2.0)).parts
    assert parts["speed"] == pytest.approx(0.5 * math.log2(1.8))
    assert score(FORMULA_PRESETS["default"], verdict(True, gpu=True, speedup=900.0)).parts[
        "speed"
    ] == pytest.approx(1.0)


def test_dr_kernel_rejects_a_correct_kernel_that_does_nothing_and_always_the_same_way():
    lazy, whole = (
        score(FORMULA_PRESETS["drkernel"], verdict(True, gpu=True, share=share))
        for share in (0.01, 0.9)
    )
    assert not lazy.kept
    assert whole.kept
    assert score(FORMULA_PRESETS["drkernel"], verdict(True, gpu=True, share=0.35)) == score(
        FORMULA_PRESETS["drkernel"], verdict(True, gpu=True, share=0.35)
    )


def test_a_cut_off_reply_costs_a_little():
    assert (
        score(FORMULA_PRESETS["default"], verdict(), ReplyForm(finish=FinishReason.LENGTH)).parts[
            "length"
        ]
        < 0
    )


def test_a_formula_of_the_users_own_has_a_label_of_its_own(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"name": "mine", "correct": 2.0}')
    assert find_formula(str(path)).label.startswith("mine@1+")
    path.write_text('{"name": "mine", "corect": 2.0}')
    with pytest.raises(InputError, match="corect"):
        find_formula(str(path))
    with pytest.raises(InputError, match="autotriton"):
        find_formula("autotritn")


def test_scoring_a_log_twice_writes_its_rewards_once(store, tell):
    tell("exp", (answer(), verdict(True)), (answer(), verdict()))
    formula = FORMULA_PRESETS["execution"]
    assert store_rewards(store, formula).stored == 2
    assert store_rewards(store, formula).stored == 0
    assert [turn.formula for turn in store.samples()] == ["execution@1"] * 2


def test_a_reward_is_explained_part_by_part_with_what_came_of_it(store, tell):
    draft, _ = tell("exp", (answer(), verdict()), (answer(), verdict(True)))
    explained = explain_candidate(store, draft, FORMULA_PRESETS["execution"])
    repaired = score(FORMULA_PRESETS["execution"], verdict(True)).total
    assert explained.value == pytest.approx(explained.total + 0.4 * repaired)
    assert {part.part: part.why for part in explained.parts}["correct"] == "not correct: mismatch"


def test_a_candidate_without_a_verdict_is_explained_by_saying_so(store, tell):
    [draft] = tell("exp", (answer(), None))
    with pytest.raises(InputError, match="no verdict"):
        explain_candidate(store, draft, FORMULA_PRESETS["execution"])


def test_what_looks_too_good_is_listed_for_a_person(store, tell):
    tell(
        "exp",
        (answer(), verdict(True, gpu=True, speedup=80.0)),
        (answer(), verdict(fault=Fault.CHEAT)),
        (answer(), verdict(True)),
    )
    found = suspects_of(store)
    assert len(found) == 2
    assert "80 times" in found[0].why
    assert "decoy" in found[1].why
