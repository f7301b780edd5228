"""Verdicts and answers as the tools and a policy give them."""

from __future__ import annotations

from typing import Any

from kernelwright.policies.base import Completion, FinishReason, Usage
from kernelwright.tools.report import (
    Cheat,
    Check,
    CorrectnessResult,
    Environment,
    Failure,
    Fault,
    ProfileResult,
    Report,
    Rung,
)

REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.{}(x)\n"
    "def get_inputs():\n    return [torch.rand(8)]\ndef get_init_inputs():\n    return []\n"
)
TOKENIZER, TEMPLATE = "t" * 16, "c" * 16


def verdict(
    correct: bool = False,
    fault: Fault | None = Fault.MISMATCH,
    *,
    gpu: bool = False,
    speedup: float = 2.0,
    share: float = 1.0,
    **changes: Any,
) -> Report:
    """A report as the tools give it."""
    passed = 11 if correct else 3
    checks = tuple(
        Check(draw="own", passed=number < passed) for number in range(passed + (not correct))
    )
    cheat = Cheat.DECOY if fault is Fault.CHEAT else None
    result = CorrectnessResult(
        device="NVIDIA H200" if gpu else "cpu", interpreted=not gpu, checks=checks
    )
    early = not correct and fault in (Fault.NO_CODE, Fault.SYNTAX, Fault.NO_KERNEL, Fault.COMPILE)
    profile = ProfileResult(
        device="NVIDIA H200", speedup=speedup, speedup_low=speedup * 0.9, own_share=share
    )
    report = Report(
        problem="p", problem_hash="p" * 64, candidate_hash="h" * 64,
        rung=Rung.COMPILE if early else _rung(gpu, correct),
        failure=None if correct or fault is None else Failure(fault=fault, cheat=cheat, message="it is wrong"),
        correct=correct, judged_on="" if early else "NVIDIA H200" if gpu else "cpu",
        interpreted=None if early or gpu else result, correctness=result if gpu and not early else None,
        profile=profile if gpu and correct else None,
        environment=Environment(torch="2.13.0", gpu="NVIDIA H200" if gpu else ""),
    )  # fmt: skip
    return report.with_(**changes)


def answer(ids: tuple[int, ...] = (5, 6, 7), **changes: Any) -> Completion:
    """What a policy that gives exact log-probs says."""
    whole = Completion(
        text=f"```python\nx = {sum(ids)}\n```", finish=FinishReason.STOP,
        usage=Usage(prompt_tokens=3, completion_tokens=len(ids), dollars=0.0),
        policy="transformers:tiny", prompt_token_ids=(1, 2, 3), token_ids=ids, logprobs=(-0.5,) * len(ids), exact=True,
        revision="r0",
        tokenizer_hash=TOKENIZER, chat_template_hash=TEMPLATE,
    )  # fmt: skip
    return whole.model_copy(update=changes)


def _rung(gpu: bool, correct: bool) -> Rung:
    if not gpu:
        return Rung.INTERPRETED
    return Rung.PROFILE if correct else Rung.CORRECTNESS
