"""Ends thoughts that reach their budget, so that an answer follows.

    budget 4, thought "<think> a b c d ..."   ->   "<think> a b c" + "\\n</think>\\n\\n" + answer

The end is not drawn by the model: its tokens have log-prob 0, and GRPO leaves them out of its loss.
"""

from __future__ import annotations

from typing import Any

from kernelwright.policies.base import FinishReason
from kernelwright.policies.local.decoding import SequenceInDecoding

THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"
EARLY_END = f"\n{THOUGHT_ENDS}\n\n"
PROMPT_TAIL_TOKENS = 8
"""Tokens at the end of a prompt in which a template may open the thought."""
SEED_STEP = 1_000_003
"""Added to a row's seed for the answer behind an ended thought."""


def answer_after(row: SequenceInDecoding, tokenizer: Any) -> SequenceInDecoding | None:
    """Returns a row that continues one cut at its thinking budget, after ending an open thought;
    None for a row that ended by itself or has no tokens left.
    """
    if row.finish is not FinishReason.LENGTH or row.room <= row.limit:
        return None
    if _is_thinking(row, tokenizer):
        end = tokenizer(EARLY_END, add_special_tokens=False)["input_ids"]
        if len(row.token_ids) + len(end) >= row.room:
            return None
        row.token_ids += end
        row.logprobs += [0.0] * len(end)
    return SequenceInDecoding(
        prompt=[*row.prompt, *row.token_ids],
        sampling=row.sampling,
        seed=row.seed + SEED_STEP,
        limit=row.room - len(row.token_ids),
    )


def _is_thinking(row: SequenceInDecoding, tokenizer: Any) -> bool:
    """Returns whether a thought is open at the end of a row. Of the prompt only its last tokens
    count: a user may write the mark, too.
    """
    tail = str(tokenizer.decode(list(row.prompt[-PROMPT_TAIL_TOKENS:]))).rstrip()
    opened = THOUGHT_BEGINS if tail.endswith(THOUGHT_BEGINS) else ""
    text = opened + str(tokenizer.decode(row.token_ids))
    return text.rfind(THOUGHT_BEGINS) > text.rfind(THOUGHT_ENDS)


def append_answer(row: SequenceInDecoding, answer: SequenceInDecoding) -> None:
    """Adds the tokens of a drawn answer to its row, and its reason to end."""
    row.token_ids += answer.token_ids
    row.logprobs += answer.logprobs
    row.finish = answer.finish
    row.latency += answer.latency


def forced_tokens(logprobs: tuple[float, ...], thinking_tokens: int | None) -> range:
    """Returns the places of the tokens that ended a thought at its budget; empty if it ended by
    itself.

    logprobs: of all tokens drawn. A server counts its budget behind `<think>`, so the end begins up
    to two tokens later.
    """
    if thinking_tokens is None:
        return range(0)
    for start in range(thinking_tokens, thinking_tokens + 3):
        end = start
        while end < len(logprobs) and logprobs[end] == 0.0:
            end += 1
        if end > start:
            return range(start, end)
    return range(0)
