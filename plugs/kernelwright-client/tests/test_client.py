"""The client against a real judge, and where there is none."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from kernelwright_client import (
    PRESET_WEIGHTS,
    Episode,
    JudgeClient,
    JudgeError,
    Score,
    Weights,
    code_of,
)

REPLY = "I first thought of this:\n```python\nprint(1)\n```\nHere it is:\n```python\n{}```\nIt masks the tail."


def test_a_kernel_is_scored_by_where_it_ends(judge_url, problem, right, wrong, uncompiled):
    with JudgeClient(judge_url) as judge:
        scores = judge.score_many(
            [(problem, text) for text in (right, wrong, uncompiled, "no code at all")]
        )
    assert [score.correct for score in scores] == [True, False, False, False]
    assert [score.compiled for score in scores] == [True, True, False, False]
    assert [score.ended_at for score in scores] == [
        "interpreted",
        "interpreted",
        "compile",
        "source",
    ]
    assert [score.fault for score in scores][:3] == [None, "mismatch", "compile"]
    assert not any(score.mask for score in scores)
    totals = [score.reward().total for score in scores]
    assert totals == [
        1.05,
        pytest.approx(0.02 + 0.03 * scores[1].checks_passed / scores[1].checks_made),
        0.0,
        0.0,
    ]
    assert scores[1].checks_made > scores[1].checks_passed
    assert "no_such_store" in scores[2].feedback()
    assert "last" in scores[1].feedback() or "mismatch" in scores[1].feedback()


def test_one_verdict_is_the_same_in_sync_and_in_async(judge_url, problem, right):
    with JudgeClient(judge_url) as judge:
        first = judge.score(problem, right)

        async def again() -> Score:
            try:
                return await judge.score_async(problem, right)
            finally:
                await judge.aclose()

        assert asyncio.run(again()) == first


def test_a_judge_that_is_away_masks_the_reward_and_is_no_zero(nobody, problem, right):
    with JudgeClient(nobody, patience=0.0) as judge:
        score = judge.score(problem, right)
        [many] = judge.score_many([(problem, right)])
    for unscored in (score, many):
        reward = unscored.reward()
        assert reward.total is None
        assert reward.masked
        assert reward.failure_kind == "unreachable"
        assert reward.ended_at == "unscored"


def test_what_the_user_must_mend_is_raised(judge_url, nobody, right):
    with JudgeClient(judge_url) as judge, pytest.raises(JudgeError, match="no problem"):
        judge.score("no such problem anywhere", right)
    with JudgeClient(judge_url) as judge, pytest.raises(JudgeError, match="near ones"):
        judge.task("no such problem anywhere")
    with JudgeClient(nobody, patience=0.0) as judge, pytest.raises(JudgeError, match="no answer"):
        judge.tasks()


def test_the_judge_lists_its_problems_as_tasks(judge_url):
    with JudgeClient(judge_url) as judge:
        [task] = judge.tasks(["fused_silu"])
    assert task.id == "fused_silu"
    assert "class Model" in task.reference
    assert task.reference.strip() in task.prompt[0]["content"]


def test_a_text_over_the_limit_is_the_candidates_fault(judge_url, problem, right):
    with JudgeClient(judge_url) as judge:
        score = judge.score(problem, right + "#" * 300_000)
        surrogate = judge.score(problem, right + "# \ud800\n")
        null = judge.score(problem, right + "\0")
    assert (score.fault, score.mask, score.reward().total) == ("too_large", False, 0.0)
    assert surrogate.correct
    assert (null.fault, null.mask) == ("syntax", False)


def test_a_reply_is_judged_as_the_program_in_it(judge_url, problem, right):
    reply = f"Here is the kernel:\n\n```python\n{right}```\n\nIt reads each element once."
    with JudgeClient(judge_url) as judge:
        single = judge.score(problem, reply)
        [together] = judge.score_many([(problem, reply)])
        program = judge.score(problem, right)
    assert single.correct
    assert single.verdict_id == together.verdict_id == program.verdict_id


@pytest.mark.parametrize(("url", "token"), [("127.0.0.1:8700", None), ("http://judge", "tökén")])
def test_an_address_or_a_token_that_cannot_be_used_is_told_at_once(url, token):
    with pytest.raises(JudgeError):
        JudgeClient(url, token)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (REPLY.format("class ModelNew: pass\n"), "class ModelNew: pass\n"),
        ("```python\nclass ModelNew: pass\n```\nand to test it\n```python\nprint(1)\n```", "class ModelNew: pass\n"),
        ("<think>```python\nclass ModelNew: ...\n```</think>```py\nclass ModelNew: pass\n```",
         "class ModelNew: pass\n"),
        ("```python\nclass ModelNew: pass", "class ModelNew: pass\n"),
        ("class ModelNew: pass", "class ModelNew: pass\n"),
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "```\nclass ModelNew: pass\n```"}],
         "class ModelNew: pass\n"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "class ModelNew: pass"}]}],
         "class ModelNew: pass\n"),
        (None, "\n"),
    ],
)  # fmt: skip
def test_the_candidate_is_found_in_a_reply(reply, code):
    assert code_of(reply) == code


def timed(speedup: float | None, **more: object) -> Score:
    told = {"ended_at": "profile", "compiled": True, "correct": True, "gate": 1.0, "speedup": speedup,
            "speedup_low": speedup and 0.9 * speedup, "time_share": speedup and 1.0, "checks_passed": 4,
            "checks_made": 4, "fault": None, "mask": False, "explanation": ""}  # fmt: skip
    return Score.of(
        {"verdict_id": "v", "state": "finished", "candidate_hash": "c", "score": {**told, **more}}
    )


def test_the_parts_of_a_reward_add_up_and_pay_the_lower_bound_of_the_speedup():
    assert timed(2.0).reward().parts == {
        "form": 0.0, "compile": 0.02, "checks": 0.03, "correct": 1.0, "speed": 0.5 * math.log2(1.8), "share": 0.25,
        "length": 0.0, "cheat": 0.0,
    }  # fmt: skip
    assert timed(2.0).reward().total == pytest.approx(1.3 + 0.5 * math.log2(1.8))
    assert timed(1e6).reward().total == timed(5.0).reward().total
    assert timed(None).reward().total == 1.05, "what was not timed earns nothing for speed or share"
    assert timed(2.0).reward(Weights(speed=0.0, share=0.0, compile=0.0, checks=0.0)).total == 1.0


def test_a_preset_weights_of_the_users_own_and_a_function_pay_a_score():
    score = timed(2.0, compile_speedup_low=1.5, narrow_contract="")
    assert score.reward("kevin").total == pytest.approx(0.3 + 1.8)
    assert score.reward("drkernel").total == pytest.approx(0.5 + 0.5 * 1.8 + 0.5)
    over_compile = Weights(
        compile=0.0, checks=0.0, share=0.0, speed=1.0, scale="ratio", baseline="compile"
    )
    assert score.reward(over_compile).total == pytest.approx(1.0 + 1.5)
    assert score.reward({"correct": 2.0, "speed": 0.0, "share": 0.0}).total == pytest.approx(2.05)
    assert score.reward(lambda it: 10.0 * it.correct + it.checks_passed).total == 14.0
    assert score.reward(lambda it: None).masked
    assert timed(2.0, mask=True).reward(lambda it: 1.0).masked
    assert timed(2.0, narrow_contract="one size").reward().total == 0.05
    for wrong in ("no such preset", {"corect": 1.0}):
        with pytest.raises(ValueError, match="choose"):
            score.reward(wrong)
    with pytest.raises(ValueError, match="log2 or ratio"):
        Weights(scale="log10")


def test_every_preset_is_one_of_rl_and_pays_a_rejected_sample_nothing():
    assert sorted(PRESET_WEIGHTS) == ["autotriton", "default", "drkernel", "execution", "kevin"]
    assert timed(2.0, time_share=0.01).reward("drkernel").masked


def test_a_cheat_in_any_turn_costs_the_whole_rollout():
    episode = Episode(attempts=3)
    cheat = timed(None, correct=False, gate=0.0, fault="cheat", checks_passed=0, checks_made=0)
    gained = [
        episode.add(score)
        for score in (timed(2.0, correct=False, fault="mismatch"), cheat, timed(2.0))
    ]
    assert episode.total == -0.25
    assert sum(gained) == pytest.approx(-0.25)
    assert gained[2] == 0.0


def test_a_rollout_until_turns_goes_on_after_a_correct_kernel_and_is_told_what_bounds_it():
    report = {"profile": {
        "speedup": 2.0, "speedup_low": 1.8, "candidate": {"median": 0.02}, "roofline": {"bound": "memory",
        "milliseconds": 0.005}, "launches": [{"kernel": "first", "grid": [8, 1, 1], "ms": 0.015, "share": 0.75},
                                             {"kernel": "second", "grid": [1, 1, 1], "ms": 0.005, "share": 0.25}],
    }}  # fmt: skip
    fast = Score.of({**timed(2.0).answer, "report": report})
    until_correct, until_turns = Episode(2), Episode(2, until="turns")
    for episode in (until_correct, until_turns):
        episode.add(fast)
    assert (until_correct.done, until_turns.done) == (True, False)
    assert "Hand in a faster kernel" in until_turns.feedback()
    assert "Hand in a faster kernel" not in until_correct.feedback()
    assert "bound by memory" in until_turns.feedback()
    assert "slowest launch is first" in until_turns.feedback()
    until_turns.add(timed(None, correct=False, fault="mismatch", explanation="ended at profile"))
    assert until_turns.done
    assert until_turns.total == fast.reward().total
    with pytest.raises(ValueError, match="until"):
        Episode(2, until="until it is fast")


def test_a_cheat_is_below_every_honest_failure_and_a_masked_verdict_is_none():
    cheat = timed(None, correct=False, gate=0.0, fault="cheat").reward()
    assert cheat.total == -0.25 < timed(None, correct=False, fault="mismatch").reward().total
    assert timed(None, correct=False, mask=True, fault="timeout").reward().total is None
    failed = Score.of(
        {
            "verdict_id": "v",
            "state": "failed",
            "score": None,
            "error": {"code": "infrastructure", "message": "disk"},
        }
    )
    assert (failed.reward().total, failed.reward().failure_kind) == (None, "infrastructure")


def test_a_candidate_that_crashes_by_itself_twice_is_worth_no_more_than_a_wrong_one(
    judge_url, problem, right
):
    ends = f"{right}\nimport os\nos._exit(0)\n"
    with JudgeClient(judge_url) as judge:
        score = judge.score(problem, ends)
    assert (score.fault, score.mask) == ("crash", False)
    assert score.reward().total == 0.0
    assert len(score.answer["attempts"]) == 2
    with JudgeClient(judge_url, insist=0) as judge:
        assert judge.score(problem, ends).reward().masked


def test_a_verdict_takes_no_longer_than_the_timeout(judge_url, problem, right):
    hangs = f"{right}\nwhile True:\n    pass\n"
    began = time.monotonic()
    with JudgeClient(judge_url, options={"compile_seconds": 600.0}) as judge:
        score = judge.score(problem, hangs, timeout=1.0)
    assert (score.trouble, score.reward().total) == ("timeout", None)
    assert time.monotonic() - began < 60.0


def test_the_service_sees_the_groups_of_rollouts(judge_url, problem, right, wrong):
    with JudgeClient(judge_url) as judge:
        judge.score_many([(problem, right), (problem, wrong)] * 2, group=["a", "a", "b", "b"])
        health = judge._get("/v1/rewards")
    assert health["groups"]["groups"] >= 2
