"""Turns as lines for other trainers: sft, dpo and grpo.

Left out, and counted: suites that are for measuring (KernelBench, TritonBench), held-out problems, and problems that
cannot tell right from wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kernelwright.policies.base import Message
from kernelwright.store.records import Turn
from kernelwright.tools.problem import ProblemError

BENCHMARK_SUITES = frozenset({"kernelbench", "tritonbench-t"})
PREFERRED_SPEEDUP = 1.1
"""The smallest ratio of speeds at which a correct kernel is preferred to another one."""


class LeftOutCounts:
    """The numbers of turns that were left out, by reason."""

    def __init__(self) -> None:
        self.out: dict[str, int] = {}

    def __call__(self, reason: str) -> None:
        """Counts one more that was left out for this reason."""
        self.out[reason] = self.out.get(reason, 0) + 1

    def __str__(self) -> str:
        return ", ".join(f"{count} {reason}" for reason, count in self.out.items())


def select_trainable(
    turns: Iterable[Turn], references: dict[str, str], left: LeftOutCounts
) -> Iterator[Turn]:
    """references: problem hash to source, for what a reference says of itself."""
    held_out = {hash for hash, source in references.items() if is_held_out(source)}
    for turn in turns:
        if turn.report is None or turn.completion is None:
            left("not judged")
        elif turn.suite in BENCHMARK_SUITES:
            left(f"of {turn.suite}, which is for measuring")
        elif turn.problem_hash in held_out:
            left("of held-out problems")
        elif turn.report.degenerate:
            left("of problems that cannot tell right from wrong")
        else:
            yield turn


def is_held_out(source: str) -> bool:
    """A reference that says of itself `HELD_OUT = True`."""
    from kernelwright.agent.problems.reading import problem_of

    try:
        return "held_out" in problem_of(source, "reference", "file").tags
    except ProblemError:
        return False


def sft_lines(turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Correct answers as conversations: `messages`, the last one the assistant's (trl's conversational form)."""
    for turn in turns:
        if turn.report is not None and turn.report.correct and turn.completion is not None:
            answer = {"role": "assistant", "content": turn.completion.text}
            yield {"messages": [*_messages(turn.messages), answer], **_origin(turn)}


def dpo_lines(turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Two answers to one and the same prompt: correct before not, and among correct ones the faster, where it is
    clearly so.
    """
    for own in _by_prompt(turns).values():
        ranked = sorted(own, key=_worth, reverse=True)
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


def grpo_lines(turns: Iterable[Turn], left: LeftOutCounts) -> Iterator[dict[str, Any]]:
    """Groups of exact answers to one and the same prompt: token ids and log-probs as they were drawn, verdicts,
    reward parts.
    """
    exact = []
    for turn in turns:
        if turn.completion is not None and turn.completion.exact:
            exact.append(turn)
        else:
            left("without exact token ids and log-probs")
    for own in _by_prompt(exact).values():
        first = own[0].completion
        if first is None or len(own) < 2:
            left("alone with its prompt")
            continue
        yield {
            "prompt": _messages(own[0].messages),
            "prompt_token_ids": first.prompt_token_ids,
            "problem": own[0].problem,
            "problem_hash": own[0].problem_hash,
            "completions": [_drawn(turn) for turn in own],
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
    """Speeds compare only within one environment."""
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
    """Returns where a line comes from, and how far it was verified."""
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
