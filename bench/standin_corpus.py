"""What the stand-in policy is trained on: this repository's own verified kernels, and the same broken in ways that the real tools then complain of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agent.feedback import told_compactly
from agent.problems import find
from agent.prompts import Asked, Prompts
from policies.base import PromptForm
from store.models import Action
from tools.problem import Problem

GOOD = Path(__file__).parents[1] / "tests" / "kernels" / "good"
NAMES = (
    "vector_add", "scale_shift_clamp", "hardswish_chain", "exp_sin_chain", "binary_chain", "fused_gelu", "fused_silu", "fused_swiglu",
    "fused_bias_gelu", "leaky_relu_bias", "mish", "row_sum", "row_max", "row_argmax", "row_variance", "row_l2_normalize", "row_logsumexp",
    "fused_softmax", "log_softmax", "causal_softmax", "softmax_temperature", "layer_norm", "rms_norm",
)  # fmt: skip

BREAKS: tuple[tuple[str, str, str], ...] = (
    ("missing parenthesis", r"tl\.program_id\(0\)", "tl.program_id(0"),
    ("no such function", r"tl\.(exp|sum|sigmoid|load)\(", r"tl.\1_fast("),
    ("store without its mask", r"(tl\.store\(.*), mask=[^)]*\)", r"\1)"),
    ("mask off by one", r"offsets < (n|columns)\b", r"offsets < \1 - 1"),
    ("maximum from zero", r'other=-float\("inf"\)', "other=0.0"),
    ("an undefined name", r"offsets = ", "offset = "),
)
"""What is done, where (the first place only), and what is written there."""


@dataclass(frozen=True)
class Pair:
    prompt: str
    answer: str


def solution(name: str) -> str:
    """The kernel's text without the notes of the tests."""
    lines = (GOOD / f"{name}.py").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not re.match(r"# (problem|odd):", line)).strip() + "\n"


def broken(code: str) -> list[str]:
    """The same kernel with one mistake each."""
    found = [re.sub(pattern, new, code, count=1) for _, pattern, new in BREAKS]
    return [text for text in dict.fromkeys(found) if text != code]


def drafts() -> list[Pair]:
    prompts = Prompts(PromptForm.COMPACT)
    return [Pair(_prompt(prompts, find(name), Action.DRAFT), solution(name)) for name in NAMES]


def repairs(cache: Path, say: bool = True) -> list[Pair]:
    """Each broken kernel with what the tools really say of it. One that the tools find correct all the same is left out."""
    from tools.pipeline import Evaluator, Options

    prompts, found = Prompts(PromptForm.COMPACT), []
    with Evaluator(device="cpu", workers=1, cache_dir=cache) as evaluator:
        for name in NAMES:
            problem, answer = find(name), solution(name)
            for code in broken(answer):
                report = evaluator.evaluate(problem, code, Options(hidden_shapes=False))
                if report.failure is None:
                    continue
                prompt = _prompt(prompts, problem, Action.REPAIR, code, told_compactly(report))
                found.append(Pair(prompt, answer))
            if say:
                print(f"{name}: {len(found)} repairs so far", flush=True)
    return found


def _prompt(prompts: Prompts, problem: Problem, action: Action, code: str = "", feedback: str = "") -> str:
    asked = Asked(problem=problem, action=action, code=code, feedback=feedback)
    return prompts.messages(asked)[-1].content
