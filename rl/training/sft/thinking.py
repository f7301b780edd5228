"""Reasoning models in training: whether a chat template lets them think, and thoughts in the loss.

A thought is the text of a reply up to `</think>`. Nothing else here takes it for an answer:
programs are read behind it, and a later turn's prompt holds the program alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.errors import InputError

END_OF_THOUGHT = "</think>"
SWITCH = "enable_thinking"
"""The variable of chat templates that turns thinking on or off (Qwen3 and its relatives)."""


def set_thinking(tokenizer: Any, enabled: bool) -> None:
    """Writes the switch into the tokenizer's chat template, which is saved with the model: the
    prompts of training, of every engine and of a server are then the same tokens.

    Raises InputError for a template without the switch.
    """
    template = str(tokenizer.chat_template)
    if SWITCH not in template:
        word = "--thinking" if enabled else "--no-thinking"
        raise InputError(f"{word}: the model's chat template has no {SWITCH}, so leave that out")
    value = "true" if enabled else "false"
    tokenizer.chat_template = f"{{%- set {SWITCH} = {value} %}}{template}"


def answer_mask(ids: Sequence[int], tokenizer: Any) -> list[int]:
    """Returns 0 for the tokens of a reply's thought, its end included, and 1 for the answer's.

    A reply without the end of a thought is all answer.

        "plan</think>x" in tokens "pl", "an", "</th", "ink>x"  ->  0 0 0 0
        "plan</think>x" in tokens "plan", "</think>", "x"      ->  0 0 1
    """

    def has_ended(count: int) -> bool:
        return END_OF_THOUGHT in tokenizer.decode(list(ids[:count]))

    if not has_ended(len(ids)):
        return [1] * len(ids)
    # Once the end is decoded it stays: bisect for the shortest beginning that has it.
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if has_ended(middle):
            high = middle
        else:
            low = middle + 1
    return [0] * low + [1] * (len(ids) - low)
