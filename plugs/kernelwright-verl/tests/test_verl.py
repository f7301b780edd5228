"""compute_score through verl's own loader and reward manager, and the advantage through its registry."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.reward import get_custom_reward_fn

from kernelwright_client import JudgeClient
from kernelwright_verl import Unscored, compute_score, rows


class Characters:
    """A tokenizer that has a token for each byte: what the reward manager needs of one is `decode`."""

    eos_token = "\x00"

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool = True) -> str:
        return bytes(int(one) for one in ids).decode()


def loaded(**arguments: Any) -> Any:
    """The function as verl's configuration names it."""
    named = {
        "path": "pkg://kernelwright_verl.scoring",
        "name": "compute_score",
        "reward_kwargs": arguments,
    }
    return get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": named}}))


def batch_of(problem: str, replies: list[str], group: str | None = None) -> DataProto:
    """Replies as verl's rollouts leave them: prompt and response side by side, padded."""
    encoded = [list(reply.encode()) for reply in replies]
    width = max(map(len, encoded))
    responses = torch.tensor([one + [0] * (width - len(one)) for one in encoded])
    lengths = torch.tensor([len(one) for one in encoded])
    mask = torch.cat(
        [torch.ones(len(replies), 1), (torch.arange(width)[None] < lengths[:, None]).float()], dim=1
    )
    rows_of = np.array([{"style": "rule", "ground_truth": problem}] * len(replies), dtype=object)
    return DataProto.from_dict(
        tensors={
            "responses": responses,
            "attention_mask": mask.long(),
            "prompts": torch.zeros(len(replies), 1).long(),
        },
        non_tensors={
            "reward_model": rows_of,
            "data_source": np.array(["kernelwright"] * len(replies), dtype=object),
            "extra_info": np.array(
                [{} if group is None else {"group": group} for _ in replies], dtype=object
            ),
        },
    )


def test_verl_loads_the_function_and_its_reward_manager_scores_a_batch(
    judge_url, problem, right, wrong, uncompiled
):
    data = batch_of(problem, [f"```python\n{text}```" for text in (right, wrong, uncompiled)])

    async def run() -> list[dict]:
        config = OmegaConf.create({"reward": {"reward_model": {}}})
        manager = NaiveRewardManager(config, Characters(), loaded(judge_url=judge_url))
        return await asyncio.gather(
            *(manager.run_single(data[i : i + 1]) for i in range(len(data)))
        )

    results = asyncio.run(run())
    assert [one["reward_score"] for one in results] == pytest.approx([1.05, 0.035, 0.0], abs=0.016)
    assert [one["reward_extra_info"]["ended_at"] for one in results] == [
        "interpreted",
        "interpreted",
        "compile",
    ]
    assert results[0]["reward_extra_info"]["part_correct"] == 1.0


def test_what_cannot_be_judged_ends_the_step_or_is_marked_and_is_never_a_zero(
    nobody, problem, right, monkeypatch
):
    monkeypatch.setattr(
        "kernelwright_verl.scoring._judge", lambda url: JudgeClient(url, patience=0.0, insist=2)
    )
    with pytest.raises(Unscored, match="unreachable"):
        asyncio.run(compute_score("kernelwright", right, problem, judge_url=nobody))
    told = asyncio.run(
        compute_score("kernelwright", right, problem, judge_url=nobody, unscored="nan")
    )
    assert math.isnan(told["score"])
    assert told["masked"] == 1.0


def test_the_advantage_leaves_unscored_samples_out():
    import kernelwright_verl.advantage  # noqa: F401 (registers it)

    estimate = get_adv_estimator_fn("kernel_grpo")
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, math.nan], [0.0, 3.0], [0.0, 5.0]])
    mask, index = torch.ones(5, 2), np.array(["a", "a", "a", "b", "b"])
    advantages, _ = estimate(token_level_rewards=rewards, response_mask=mask, index=index)
    without, _ = get_adv_estimator_fn("grpo")(
        token_level_rewards=rewards[[0, 1, 3, 4]], response_mask=mask[:4], index=index[[0, 1, 3, 4]]
    )
    assert torch.equal(advantages[2], torch.zeros(2))
    assert torch.allclose(advantages[[0, 1, 3, 4]], without)
    assert torch.isfinite(advantages).all()
    none, _ = estimate(
        token_level_rewards=torch.full((2, 2), math.nan), response_mask=mask[:2], index=index[:2]
    )
    assert torch.equal(none, torch.zeros(2, 2))


def test_the_rows_are_in_verls_form(judge_url, problem):
    [row] = rows(JudgeClient(judge_url), [problem])
    assert row["reward_model"] == {"style": "rule", "ground_truth": problem}
    assert row["prompt"][0]["role"] == "user"


def test_two_steps_with_groups_a_failed_and_a_masked_candidate(
    judge_url, problem, right, wrong, uncompiled, crashing, monkeypatch, settled
):
    """verl's reward manager, advantage estimator, policy loss and aggregation; its trainer needs GPUs.

    The policy is a table of logits of each byte. The judge is asked once, so that a crash masks its sample.
    """
    from verl.trainer.ppo.core_algos import agg_loss

    import kernelwright_verl.advantage  # noqa: F401 (registers it)

    monkeypatch.setattr("kernelwright_verl.scoring._judge", lambda url: JudgeClient(url, insist=0))
    texts = (right, wrong, uncompiled, crashing)
    logits = torch.zeros(len(texts), 256, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=1.0)
    config = OmegaConf.create({"reward": {"reward_model": {}}})
    reward = loaded(judge_url=judge_url, unscored="nan")
    estimate = get_adv_estimator_fn("kernel_grpo")

    async def scored(data: DataProto) -> list[float]:
        manager = NaiveRewardManager(config, Characters(), reward)  # of this event loop
        runs = (manager.run_single(data[i : i + 1]) for i in range(len(data)))
        return [result["reward_score"] for result in await asyncio.gather(*runs)]

    for step in (1, 2):
        data = batch_of(problem, [f"```python\n{text}```" for text in texts], f"verl/step-{step}")
        rewards = asyncio.run(scored(data))
        assert rewards[:3] == pytest.approx([1.05, 0.035, 0.0], abs=0.016)
        assert math.isnan(rewards[3])
        responses = data.batch["responses"]
        mask = data.batch["attention_mask"][:, 1:].float()
        token_rewards = torch.zeros_like(mask)
        token_rewards[torch.arange(4), mask.sum(1).long() - 1] = torch.tensor(rewards)
        advantages, _ = estimate(
            token_level_rewards=token_rewards, response_mask=mask, index=np.array(["g"] * 4)
        )
        assert advantages[0].max() > 0 > advantages[2].min()
        assert torch.equal(advantages[3], torch.zeros_like(advantages[3]))
        log_probabilities = torch.log_softmax(logits, -1).gather(1, responses)
        loss = agg_loss(-advantages * log_probabilities, mask, "token-mean")
        optimizer.zero_grad()
        loss.backward()
        assert logits.grad[0].abs().sum() > 0
        assert logits.grad[3].abs().sum() == 0, "a masked sample trains"
        optimizer.step()
    for row in settled("verl/step-", 2, 4):
        assert (row["problem"], row["correct"], row["masked"]) == (problem, 1, 1)
