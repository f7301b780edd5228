"""Exports turns as JSON lines for other trainers: sft, dpo and grpo.

Benchmark suites (KernelBench, TritonBench), held-out problems, and problems with trivial correct
answers are omitted and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kernelwright.policies.base import Message
from kernelwright.store.records import Turn
from kernelwright.tools.problem import ProblemError

BENCHMARK_SUITES = frozenset({"kernelbench", "tritonbench-t"})
PREFERRED_SPEEDUP = 1.1
"""Minimum speed ratio at which a correct kernel is preferred to another."""


class LeftOutCounts:
    """Numbers of omitted turns, by reason."""

    def __init__(self) -> None:
        self.out: dict[str, int] = {}

    def __call__(self, reason: str) -> None:
        """Counts another turn omitted for this reason."""
        self.out[reason] = self.out.get(reason, 0) + 1

    def __str__(self) -> str:
        return ", ".join(f"{count} {reason}" for reason, count in self.out.items())


def select_trainable(
    turns: Iterable[Turn], references: dict[str, str], left_out: LeftOutCounts
) -> Iterator[Turn]:
    """Yields turns allowed for training. references: source by problem hash, to find held-out
    problems.
    """
    held_out = {hash for hash, source in references.items() if is_held_out(source)}
    for turn in turns:
        if turn.report is None or turn.completion is None:
            left_out("not judged")
        elif turn.suite in BENCHMARK_SUITES:
            left_out(f"of {turn.suite}, which is for measuring")
        elif turn.problem_hash in held_out:
            left_out("of held-out problems")
        elif turn.report.degenerate:
            left_out("of problems that cannot tell right from wrong")
        else:
            yield turn


def is_held_out(source: str) -> bool:
    """Returns whether a reference declares `HELD_OUT = True`."""
    from kernelwright.agent.problems.reading import problem_of

    try:
        return "held_out" in problem_of(source, "reference", "file").tags
    except ProblemError:
        return False


def sft_lines(turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Yields correct answers as conversations: `messages`, ending with the assistant's answer
    (trl's conversational format).
    """
    for turn in turns:
        if turn.report is not None and turn.report.correct and turn.completion is not None:
            answer = {"role": "assistant", "content": turn.completion.text}
            yield {"messages": [*_messages(turn.messages), answer], **_origin(turn)}


def dpo_lines(turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Yields pairs of answers to equal prompts: correct over incorrect, and clearly faster over
    slower correct answers.

    Answers to a prompt are ranked and paired from both ends: correct 2.0x, correct 1.0x, incorrect
    give one pair, the first over the last.
    """
    for same_prompt in _by_prompt(turns).values():
        # Best against worst, second best against second worst, and so on.
        ranked = sorted(same_prompt, key=_worth, reverse=True)
        for better, worse in zip(ranked, reversed(ranked), strict=True):
            if not _preferred(better, worse):
                break
            yield {
                "prompt": _messages(better.messages),
                "chosen": [_answer(better)],
                "rejected": [_answer(worse)],
                **_origin(better),
                "rejected_candidate_id": worse.candidate_id,
            }


def grpo_lines(turns: Iterable[Turn], left_out: LeftOutCounts) -> Iterator[dict[str, Any]]:
    """Yields groups of exact answers to equal prompts, with sampled token ids, log-probs,
    verdicts and reward parts.
    """
    exact = []
    for turn in turns:
        if turn.completion is not None and turn.completion.exact:
            exact.append(turn)
        else:
            left_out("without exact token ids and log-probs")
    for same_prompt in _by_prompt(exact).values():
        # GRPO compares answers to the same prompt: a single answer has no advantage.
        first = same_prompt[0].completion
        if first is None or len(same_prompt) < 2:
            left_out("alone with its prompt")
            continue
        yield {
            "prompt": _messages(same_prompt[0].messages),
            "prompt_token_ids": first.prompt_token_ids,
            "problem": same_prompt[0].problem,
            "problem_hash": same_prompt[0].problem_hash,
            "completions": [_drawn(turn) for turn in same_prompt],
        }


def _drawn(turn: Turn) -> dict[str, Any]:
    completion, report = turn.completion, turn.report
    assert completion is not None
    assert report is not None
    profile = report.profile
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "logprobs": completion.logprobs,
        "sampling": turn.sampling.model_dump(mode="json"),
        "seed": completion.seed,
        "policy_revision": completion.revision,
        "adapter_revision": completion.adapter_revision,
        "tokenizer_hash": completion.tokenizer_hash,
        "chat_template_hash": completion.chat_template_hash,
        "rewards": turn.rewards,
        "formula": turn.formula,
        "speedup_low": profile.speedup_low if profile and report.correct else None,
        "fingerprint": turn.fingerprint,
        **_origin(turn),
    }


def _by_prompt(turns: Iterable[Turn]) -> dict[tuple[str, tuple[Message, ...]], list[Turn]]:
    groups: dict[tuple[str, tuple[Message, ...]], list[Turn]] = {}
    for turn in turns:
        groups.setdefault((turn.problem_hash, turn.messages), []).append(turn)
    return groups


def _worth(turn: Turn) -> tuple[bool, float]:
    report = turn.report
    return (report is not None and report.correct), (report.speedup or 0.0) if report else 0.0


def _preferred(better: Turn, worse: Turn) -> bool:
    """Returns whether the first answer is clearly better.

    Speeds are comparable only within an environment.
    """
    (right, speed), (other_right, other_speed) = _worth(better), _worth(worse)
    if right != other_right:
        return right
    same = better.fingerprint == worse.fingerprint
    return right and same and other_speed > 0 and speed > PREFERRED_SPEEDUP * other_speed


def _messages(messages: Iterable[Message]) -> list[dict[str, str]]:
    return [{"role": message.role.value, "content": message.content} for message in messages]


def _answer(turn: Turn) -> dict[str, str]:
    assert turn.completion is not None
    return {"role": "assistant", "content": turn.completion.text}


def _origin(turn: Turn) -> dict[str, Any]:
    """Returns the origin of a line and its degree of verification."""
    report = turn.report
    return {
        "candidate_id": turn.candidate_id,
        "problem": turn.problem,
        "action": turn.action.value,
        "policy": turn.completion.policy if turn.completion else "",
        "origin": turn.completion.origin.value if turn.completion else "",
        "correct": report.correct if report else None,
        "judged_on": report.judged_on if report else "",
        "speedup": report.speedup if report else None,
    }
