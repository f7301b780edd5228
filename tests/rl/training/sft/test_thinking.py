"""Reasoning models: templates in the form of Qwen3's and of Llama's, token by token, and thoughts
left out of the loss.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from kernelwright.errors import InputError
from kernelwright.policies.base import Message, PromptForm, Request, Role
from kernelwright.policies.local.transformers_policy import prompt_ids
from kernelwright.rl.data.rows import Kind, row_of
from kernelwright.rl.training.sft.encoding import RowSelection, encode_rows
from kernelwright.rl.training.sft.thinking import answer_mask, set_thinking
from tests.tiny_model import tiny_tokenizer

QWEN3 = (
    "{%- for m in messages %}"
    "{%- set content = m['content'] %}"
    "{%- if m['role'] == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}"
    "{%- endif %}"
    "{{- '<|im_start|>' + m['role'] + '\\n' + content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}"
    "{%- endif %}"
)
"""Thoughts of earlier turns are dropped; without thinking an empty thought begins the reply."""
LLAMA = (
    "{{- '<|begin|>' }}"
    "{%- for m in messages %}"
    "{{- '<|header|>' + m['role'] + '<|end_header|>\\n\\n' + (m['content'] | trim) + '<|im_end|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|header|>assistant<|end_header|>\\n\\n' }}{%- endif %}"
)
ASKED = (
    Message(role=Role.SYSTEM, content="You write kernels."),
    Message(role=Role.USER, content="softmax  of rows\n"),
)
REPLY = "<think>\nrows, then columns\n</think>\n\n@triton.jit\ndef kernel(): pass"


def tokenizer_with(template: str):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def prompt(tokenizer, *more: Message) -> list[int]:
    return prompt_ids(tokenizer, Request(messages=(*ASKED, *more)), "tiny")


def rendered(tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids)


@pytest.mark.parametrize("template", [QWEN3, LLAMA], ids=["qwen3", "llama"])
def test_the_prompt_is_the_templates_text_token_by_token(template):
    tokenizer = tokenizer_with(template)
    messages = [{"role": str(m.role), "content": m.content} for m in ASKED]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = prompt(tokenizer)
    assert ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert rendered(tokenizer, ids) == text


@pytest.mark.parametrize(
    "reply", [REPLY, "@triton.jit\ndef kernel(): pass"], ids=["thought", "plain"]
)
@pytest.mark.parametrize("template", [QWEN3, LLAMA], ids=["qwen3", "llama"])
def test_a_trained_row_is_the_templates_conversation_token_by_token(template, reply):
    """The last turn as the template writes it: its thought is kept there by Qwen3's own template, too."""
    tokenizer = tokenizer_with(template)
    row = row_of(Kind.INSTRUCT, "", reply, messages=ASKED)
    [encoded] = encode_rows([row], tokenizer, RowSelection(form=PromptForm.CHAT))
    assert list(encoded.prompt) == prompt(tokenizer)
    whole = tokenizer.decode([*encoded.prompt, *encoded.answer, tokenizer.eos_token_id])
    messages = [{"role": str(m.role), "content": m.content} for m in ASKED]
    opening = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert whole == f"{opening}{reply}<|im_end|>"
    assert [*encoded.prompt, *encoded.answer] == tokenizer(
        opening + reply, add_special_tokens=False
    )["input_ids"]
    if reply is not REPLY:
        answered = [*messages, {"role": "assistant", "content": reply}]
        assert tokenizer.apply_chat_template(answered, tokenize=False).rstrip("\n") == whole


@pytest.mark.parametrize("enabled", [True, False])
def test_the_switch_is_in_the_template_and_so_in_every_prompt(enabled):
    tokenizer = tokenizer_with(QWEN3)
    plain = rendered(tokenizer, prompt(tokenizer))
    set_thinking(tokenizer, enabled)
    told = rendered(tokenizer, prompt(tokenizer))
    assert told == plain + ("" if enabled else "<think>\n\n</think>\n\n")
    # As the template itself writes it where the switch is given by the caller.
    messages = [{"role": str(m.role), "content": m.content} for m in ASKED]
    given = tokenizer_with(QWEN3).apply_chat_template(
        messages, add_generation_prompt=True, tokenize=False, enable_thinking=enabled
    )
    assert told == given


def test_the_switch_outlives_saving_and_loading(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = tokenizer_with(QWEN3)
    set_thinking(tokenizer, False)
    tokenizer.save_pretrained(tmp_path)
    assert prompt(AutoTokenizer.from_pretrained(tmp_path)) == prompt(tokenizer)


def test_a_template_without_the_switch_is_refused():
    with pytest.raises(InputError, match="--no-thinking: the model's chat template has no"):
        set_thinking(tokenizer_with(LLAMA), False)


def test_thoughts_of_earlier_turns_are_not_in_the_next_prompt():
    tokenizer = tokenizer_with(QWEN3)
    more = (
        Message(role=Role.ASSISTANT, content=REPLY),
        Message(role=Role.USER, content="It did not compile."),
    )
    text = rendered(tokenizer, prompt(tokenizer, *more))
    assert "@triton.jit" in text
    assert "rows, then columns" not in text


def test_the_mask_leaves_out_the_thought_and_its_end():
    tokenizer = tiny_tokenizer()
    ids = tokenizer(REPLY, add_special_tokens=False)["input_ids"]
    mask = answer_mask(ids, tokenizer)
    masked = [token for token, kept in zip(ids, mask, strict=True) if not kept]
    answer = [token for token, kept in zip(ids, mask, strict=True) if kept]
    assert tokenizer.decode(masked).startswith("<think>\nrows")
    assert "</think>" in tokenizer.decode(masked)
    assert tokenizer.decode(answer).lstrip().endswith("@triton.jit\ndef kernel(): pass")
    assert sorted(mask) == mask


@pytest.mark.parametrize("text", ["def kernel(): pass", "<think>\ncut off", ""])
def test_a_reply_without_the_end_of_a_thought_is_all_answer(text):
    tokenizer = tiny_tokenizer()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert answer_mask(ids, tokenizer) == [1] * len(ids)
