"""One step of TRL's own trainer each way, with verdicts of a real judge. What a policy would write is scripted; the
model, which is trained on it, is tiny and made here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from kernelwright_client import JudgeClient
from kernelwright_trl import KernelReward, environment_factory, kernel_dataset

TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PART_NAMES = ("form", "compile", "checks", "correct", "speed", "share", "length", "cheat")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte, and Qwen3's chat template, which TRL can read tool calls of."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(
        models.BPE(vocab={one: place for place, one in enumerate(alphabet)}, merges=[])
    )
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    fast.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return fast


def tiny_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=16384, eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip


class ScriptedTrainer(GRPOTrainer):
    """GRPOTrainer whose completions are given: each call of the policy takes the next reply of its rollout."""

    def script(self, rollouts: list[list[str]]) -> None:
        self._script = [list(replies) for replies in rollouts]

    def _generate_single_turn(
        self, prompt_ids: Any, *_: Any, **__: Any
    ) -> tuple[list[list[int]], None]:
        waiting = [replies for replies in self._script if replies][: len(prompt_ids)]
        texts = [replies.pop(0) for replies in waiting]
        encode = self.processing_class.encode
        return [
            [*encode(text, add_special_tokens=False), self.processing_class.eos_token_id]
            for text in texts
        ], None


def trainer_of(
    tokenizer: Any,
    tmp_path: Path,
    rollouts: list[list[str]],
    max_steps: int = 1,
    group_size: int | None = None,
    **more: Any,
) -> ScriptedTrainer:
    """group_size: completions of a step, which are of one prompt; None: all rollouts are of one step."""
    count = group_size or len(rollouts)
    args = GRPOConfig(
        output_dir=str(tmp_path), max_steps=max_steps, per_device_train_batch_size=count,
        num_generations=count, use_cpu=True, max_completion_length=8192, learning_rate=0.01, report_to=[],
        save_strategy="no", logging_steps=1, beta=0.0, disable_tqdm=True,
        chat_template_kwargs={"enable_thinking": False},
    )  # fmt: skip
    trainer = ScriptedTrainer(
        model=tiny_model(tokenizer), args=args, processing_class=tokenizer, **more
    )
    trainer.script(rollouts)
    return trainer


def logged(trainer: GRPOTrainer) -> dict[str, float]:
    return {key: value for entry in trainer.state.log_history for key, value in entry.items()}


def test_a_step_of_the_trainer_is_rewarded_by_the_judge(
    judge_url, problem, right, wrong, uncompiled, tokenizer, tmp_path
):
    judge = JudgeClient(judge_url)
    replies = [[f"```python\n{text}```"] for text in (right, wrong, uncompiled, right)]
    trainer = trainer_of(
        tokenizer,
        tmp_path,
        replies,
        reward_funcs=KernelReward(judge),
        train_dataset=kernel_dataset(judge, [problem]),
    )
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    told = logged(trainer)
    assert told["rewards/kernel_reward/mean"] == pytest.approx(
        (1.05 + 0.035 + 0.0 + 1.05) / 4, abs=0.004
    )
    assert told["kernel/correct"] == pytest.approx(0.5)
    assert told["kernel/masked"] == 0.0
    assert {f"kernel/{part}" for part in PART_NAMES} <= set(told)
    assert not torch.equal(before, trainer.model.lm_head.weight), "the step changed nothing"


def test_a_policy_repairs_its_kernel_with_the_tool(
    judge_url, problem, right, wrong, tokenizer, tmp_path
):
    def call(code: str) -> str:
        told = {"name": "submit_kernel", "arguments": {"code": code}}
        return f"<tool_call>\n{json.dumps(told)}\n</tool_call>"

    judge = JudgeClient(judge_url)
    rollouts = [[call(wrong), call(right), "Done."], [call(wrong), "I give up."]]
    trainer = trainer_of(
        tokenizer, tmp_path, rollouts, environment_factory=environment_factory(judge=judge, attempts=4),
        train_dataset=kernel_dataset(judge, [problem]),
    )  # fmt: skip
    trainer.train()
    told = logged(trainer)
    assert told["rewards/KernelEnvironment/mean"] == pytest.approx((1.05 + 0.035) / 2, abs=0.008)
    assert told["tools/call_frequency"] == pytest.approx(1.5)
    assert told["tools/failure_frequency"] == 0.0


def test_a_judge_that_is_away_gives_none_and_no_zero(nobody, problem, right):
    reward = KernelReward(JudgeClient(nobody, patience=0.0))
    metrics: dict[str, float] = {}
    extra: dict[str, list] = {}
    given = asyncio.run(
        reward(
            [[{"role": "assistant", "content": right}]] * 2, [problem] * 2, log_extra=extra.__setitem__,
            log_metric=metrics.__setitem__,
        )
    )  # fmt: skip
    assert given == [None, None]
    assert metrics == {"kernel/masked": 1.0}
    assert extra["ended_at"] == ["unscored", "unscored"]
    environment = environment_factory(judge=JudgeClient(nobody, patience=0.0))()
    environment.reset(problem=problem)
    assert "same kernel again" in asyncio.run(environment.submit_kernel(right))
    assert environment.get_reward() is None


def test_two_steps_with_groups_a_failed_and_a_masked_candidate(
    judge_url, problem, right, wrong, uncompiled, crashing, tokenizer, tmp_path, settled
):
    """The judge is asked once for each candidate, so that a crash masks its sample."""
    judge = JudgeClient(judge_url, insist=0)
    reward = KernelReward(judge)
    texts = (right, wrong, uncompiled, crashing)
    trainer = trainer_of(
        tokenizer, tmp_path, [[f"```python\n{text}```"] for text in texts * 2], max_steps=2, group_size=4,
        reward_funcs=reward, train_dataset=kernel_dataset(judge, [problem, problem]),
    )  # fmt: skip
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "kernel/masked" in entry]
    assert [entry["kernel/masked"] for entry in steps] == [0.25, 0.25]
    mean = (1.05 + 0.035 + 0.0) / 3
    for entry in steps:
        assert entry["rewards/kernel_reward/mean"] == pytest.approx(mean, abs=0.01)
    assert not torch.equal(before, trainer.model.lm_head.weight)
    for row in settled(f"trl/{reward.run}/step-", 2, 4):
        assert (row["problem"], row["correct"], row["masked"]) == (problem, 1, 1)
        assert row["lowest"] == 0.0
        assert row["highest"] == pytest.approx(1.05)


def test_two_steps_of_several_turns_that_go_on_after_a_correct_kernel(
    judge_url, problem, right, wrong, tokenizer, tmp_path, settled
):
    def call(code: str) -> str:
        told = {"name": "submit_kernel", "arguments": {"code": code}}
        return f"<tool_call>\n{json.dumps(told)}\n</tool_call>"

    judge = JudgeClient(judge_url)
    faster = right.replace("BLOCK=2048", "BLOCK=1024").replace("n, 2048", "n, 1024")
    rollout = [call(right), call(faster), "Done."]
    repair = [call(wrong), call(right), "Done."]
    factory = environment_factory(judge=judge, attempts=2, until="turns", run="turns")
    trainer = trainer_of(
        tokenizer, tmp_path, [rollout, repair] * 2, max_steps=2, group_size=2, environment_factory=factory,
        train_dataset=kernel_dataset(judge, [problem, problem]),
    )  # fmt: skip
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "tools/call_frequency" in entry]
    assert [entry["tools/call_frequency"] for entry in steps] == [2.0, 2.0]
    for entry in steps:
        assert entry["rewards/KernelEnvironment/mean"] == pytest.approx(1.05)
    rows = settled("trl/turns/rollout-", 2, 4)
    assert all(row["correct"] == 3 for row in rows)
