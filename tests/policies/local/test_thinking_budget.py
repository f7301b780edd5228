"""A thinking budget on a real tiny model: thoughts end at it, answers follow, and training can tell the end apart."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from kernelwright.policies.base import FinishReason, Message, Request, Role, Sampling
from kernelwright.policies.local.in_process_policy import InProcessPolicy
from kernelwright.policies.local.thinking_budget import forced_tokens
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from tests.policies.exactness import teacher_forced
from tests.tiny_model import save_tiny_model, tiny_tokenizer

THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
"""The prompt opens the thought; without thinking an empty thought is in the prompt."""
BUDGET = 6


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    from transformers import AutoTokenizer

    folder = save_tiny_model(tmp_path_factory.mktemp("models") / "thinker")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = THINKING
    tokenizer.save_pretrained(folder)
    return folder


def ask(**sampling: object) -> Request:
    message = Message(role=Role.USER, content="softmax")
    return Request(
        messages=(message,), sampling=Sampling(**{"max_tokens": 24, "seed": 3, **sampling})
    )


@pytest.mark.parametrize("kind", [TransformersPolicy, InProcessPolicy])
def test_a_thought_ends_at_its_budget_and_an_answer_follows(thinker, kind):
    policy = kind(str(thinker), device="cpu")
    free, bounded = policy.sample([ask(), ask(thinking_tokens=BUDGET)])
    end = tiny_tokenizer()("\n</think>\n\n", add_special_tokens=False)["input_ids"]
    assert bounded.token_ids[:BUDGET] == free.token_ids[:BUDGET]
    assert list(bounded.token_ids[BUDGET : BUDGET + len(end)]) == end
    assert "</think>" in bounded.text
    assert len(bounded.token_ids) == len(bounded.logprobs) == 24
    assert bounded.finish is FinishReason.LENGTH
    forced = forced_tokens(bounded.logprobs, BUDGET)
    assert forced == range(BUDGET, BUDGET + len(end))
    # All other log-probs are the model's own for exactly these tokens.
    expected = teacher_forced(thinker, bounded, 1.0)
    for place, (logged, own) in enumerate(zip(bounded.logprobs, expected, strict=True)):
        assert place in forced or logged == pytest.approx(own, abs=1e-4)


def test_the_same_seed_gives_the_same_answer_behind_the_end(thinker):
    policy = TransformersPolicy(str(thinker), device="cpu")
    first, again = policy.sample([ask(thinking_tokens=BUDGET)] * 2)
    assert first.token_ids == again.token_ids


def test_a_reply_that_does_not_think_is_not_cut(thinker):
    policy = TransformersPolicy(str(thinker), device="cpu")
    [reply] = policy.sample([ask(thinking=False, thinking_tokens=BUDGET)])
    assert len(reply.token_ids) == 24
    assert "</think>" not in reply.text
    assert not forced_tokens(reply.logprobs, BUDGET)


def test_the_switch_of_a_request_is_in_its_prompt(thinker):
    policy = TransformersPolicy(str(thinker), device="cpu")
    default, on, off = policy.sample([ask(), ask(thinking=True), ask(thinking=False)])
    assert default.prompt_token_ids == on.prompt_token_ids
    spelled = tiny_tokenizer().decode(list(off.prompt_token_ids))
    assert spelled.endswith("<think>\n\n</think>\n\n")
    assert default.chat_template_hash == off.chat_template_hash


def test_without_a_budget_no_token_counts_as_forced():
    assert not forced_tokens((0.0, 0.0), None)
    assert not forced_tokens((-1.0,) * 12, BUDGET)
