"""The client against a real judge, and where there is none."""

from __future__ import annotations

import asyncio

import pytest

from kernelwright_client import JudgeClient, JudgeError, Score, Weights, code_of

REPLY = "I first thought of this:\n```python\nprint(1)\n```\nHere it is:\n```python\n{}```\nIt masks the tail."


def test_a_kernel_is_scored_by_where_it_ends(judge_url, problem, right, wrong, uncompiled):
    with JudgeClient(judge_url) as judge:
        scores = judge.score_many([(problem, text) for text in (right, wrong, uncompiled, "no code at all")])
    assert [score.correct for score in scores] == [True, False, False, False]
    assert [score.compiled for score in scores] == [True, True, False, False]
    assert [score.ended_at for score in scores] == ["interpreted", "interpreted", "compile", "source"]
    assert [score.fault for score in scores][:3] == [None, "mismatch", "compile"]
    assert not any(score.mask for score in scores)
    totals = [score.reward().total for score in scores]
    assert totals == [1.05, 0.05, 0.0, 0.0]
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
    assert (score.fault, score.mask, score.reward().total) == ("too_large", False, 0.0)
    assert surrogate.correct


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
    told = {"ended_at": "profile", "compiled": True, "correct": True, "gate": 1.0, "speedup": speedup, "share": 1.0,
            "fault": None, "mask": False, "explanation": ""}  # fmt: skip
    return Score.of({"verdict_id": "v", "state": "finished", "score": {**told, **more}})


def test_the_parts_of_a_reward_add_up():
    assert timed(2.0).reward().parts == {
        "gate": 1.0, "compiled": 0.05, "correct": 1.0, "speed": 0.5, "share": 0.25, "cheat": 0.0,
    }  # fmt: skip
    assert timed(2.0).reward().total == pytest.approx(1.8)
    assert timed(0.5).reward().total == pytest.approx(0.8)
    assert timed(1e6).reward().total == timed(4.0).reward().total
    assert timed(None).reward().total == 1.05, "what was not timed earns nothing for speed or share"
    assert timed(2.0).reward(Weights(speed=0.0, share=0.0, compiled=0.0)).total == 1.0


def test_a_cheat_is_below_every_honest_failure_and_a_masked_verdict_is_none():
    cheat = timed(None, correct=False, gate=0.0, fault="cheat").reward()
    assert cheat.total == -0.25 < timed(None, correct=False, fault="mismatch").reward().total
    assert timed(None, correct=False, mask=True, fault="timeout").reward().total is None
    failed = Score.of(
        {"verdict_id": "v", "state": "failed", "score": None, "error": {"code": "infrastructure", "message": "disk"}}
    )
    assert (failed.reward().total, failed.reward().failure_kind) == (None, "infrastructure")
