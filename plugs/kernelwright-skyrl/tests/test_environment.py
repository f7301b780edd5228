"""The environment as SkyRL-Gym makes and steps it."""

from __future__ import annotations

import pytest
import skyrl_gym

import kernelwright_skyrl
from kernelwright_client import JudgeClient


def made(judge_url: str, problem: str, max_turns: int, **config):
    extras = {"reward_spec": {"method": "rule", "ground_truth": problem}, "max_turns": max_turns}
    return skyrl_gym.make(
        kernelwright_skyrl.ENVIRONMENT, env_config={"judge_url": judge_url, **config}, extras=extras
    )


def test_a_rollout_repairs_a_kernel_and_its_rewards_add_up_to_the_best(
    judge_url, problem, right, wrong, uncompiled
):
    [row] = kernelwright_skyrl.rows(JudgeClient(judge_url), [problem], max_turns=5)
    env = skyrl_gym.make(row["env_class"], env_config={"judge_url": judge_url}, extras=row)
    prompt, _ = env.init(row["prompt"])
    assert "class Model" in prompt[0]["content"]
    outputs = [env.step(f"```python\n{text}```") for text in (wrong, uncompiled, right)]
    assert [one["reward"] for one in outputs] == pytest.approx([0.035, 0.0, 1.015], abs=0.016)
    assert [one["done"] for one in outputs] == [False, False, True]
    assert [one["metadata"]["ended_at"] for one in outputs] == [
        "interpreted",
        "compile",
        "interpreted",
    ]
    assert "no_such_store" in outputs[1]["observations"][0]["content"]
    assert outputs[2]["observations"] == []
    assert env.get_metrics() == {"correct": 1.0, "candidates": 3.0}


def test_a_rollout_ends_after_its_turns(judge_url, problem, wrong):
    output = made(judge_url, problem, 1).step(wrong)
    assert output["done"]
    assert output["metadata"]["failure_kind"] == "mismatch"


def test_a_judge_that_is_away_is_no_reward_at_all(nobody, problem, right):
    env = made(nobody, problem, 1, patience=0.0)
    with pytest.raises(kernelwright_skyrl.Unscored, match="unreachable"):
        env.step(right)


def test_a_row_without_a_problem_is_refused():
    with pytest.raises(ValueError, match="must name a problem"):
        skyrl_gym.make(kernelwright_skyrl.ENVIRONMENT, env_config={}, extras={})


def test_two_steps_of_groups_of_several_turns_with_a_failed_and_a_masked_candidate(
    judge_url, nobody, problem, right, wrong, uncompiled, settled
):
    """The environment's own interface, as SkyRL's generator steps it; its trainer needs GPUs."""
    faster = right.replace("BLOCK=2048", "BLOCK=1024").replace("n, 2048", "n, 1024")
    rollouts = ((wrong, right), (right, faster), (uncompiled, wrong))
    for step in (1, 2):
        totals = []
        for texts in rollouts:
            [row] = kernelwright_skyrl.rows(JudgeClient(judge_url), [problem], max_turns=2)
            row["group"] = f"skyrl/step-{step}"
            config = {"judge_url": judge_url, "until": "turns"}
            env = skyrl_gym.make(row["env_class"], env_config=config, extras=row)
            env.init(row["prompt"])
            outputs = [env.step(f"```python\n{text}```") for text in texts]
            assert [output["done"] for output in outputs] == [False, True]
            totals.append(sum(output["reward"] for output in outputs))
        assert totals == pytest.approx([1.05, 1.05, 0.035], abs=0.016)
        with pytest.raises(kernelwright_skyrl.Unscored):
            made(nobody, problem, 2, patience=0.0).step(right)
    for row in settled("skyrl/step-", 2, 6):
        assert (row["problem"], row["correct"], row["masked"]) == (problem, 3, 0)
