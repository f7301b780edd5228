"""How fast a small policy answers on a CPU.

    python -m bench.decoding [--model DIR ...] [--out bench/results/decoding.md]

Three ways draw the same requests: transformers' own `generate`, one token a step (policies/local/stepping.py), and
several tokens a step (policies/local/lookahead.py). Processor seconds are reported beside wall seconds: the machine may
be shared.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernelwright.agent.loop.feedback import write_compact_feedback
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.policies.base import Completion, PromptForm, Request, Sampling
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS
from kernelwright.policies.small.small_policy import SmallPolicy
from kernelwright.rl.training.sft.card import git_revision, machine_line
from kernelwright.store.models import Action
from kernelwright.tools.report import Failure, Fault, Report

ROWS = ("fused_softmax", "layer_norm", "rms_norm", "row_sum", "row_max", "log_softmax", "row_variance", "mish")
LOADING = """
import time
began, used = time.monotonic(), time.process_time()
import torch
torch_used = time.process_time() - used
from kernelwright.policies.base import Message, Request, Role, Sampling
from {module} import {policy}
asked = Request(messages=(Message(role=Role.USER, content="draft"),), sampling=Sampling(temperature=0.0, max_tokens=1))
{policy}({model!r}, device="cpu").sample([asked])
print(torch_used, time.process_time() - used - torch_used, time.monotonic() - began)
"""


class DecodingSeconds(NamedTuple):
    wall: float
    used: float
    tokens: int


def requests(action: Action, temperature: float, code: str = "", count: int = len(ROWS)) -> list[Request]:
    prompts, found = Prompts(PromptForm.COMPACT), []
    said = write_compact_feedback(
        Report(
            problem="p",
            problem_hash="",
            candidate_hash="",
            failure=Failure(fault=Fault.COMPILE, message="no attribute expp"),
        )
    )
    for place in range(count):
        problem = find_by_name(ROWS[place % len(ROWS)])
        asked = PromptFields(problem=problem, action=action, code=code, feedback=said if code else "")
        found.append(
            Request(
                messages=prompts.messages(asked), sampling=Sampling(temperature=temperature, seed=place, max_tokens=80)
            )
        )
    return found


def timed(work: Callable[[], Sequence[Completion]]) -> DecodingSeconds:
    wall, used = time.monotonic(), time.process_time()
    answers = work()
    return DecodingSeconds(
        time.monotonic() - wall, time.process_time() - used, sum(len(a.token_ids or ()) for a in answers)
    )


def by_generate(policy: TransformersPolicy, asked: Sequence[Request]) -> DecodingSeconds:
    """Times what transformers does by itself, for as many tokens as the others drew."""
    import torch

    lengths = [len(answer.token_ids or ()) for answer in policy.sample(asked)]
    loaded: Any = policy._loaded
    rows = [loaded.row(request) for request in asked]
    width = max(len(row.prompt) for row in rows)
    ids = torch.tensor([[0] * (width - len(row.prompt)) + list(row.prompt) for row in rows])
    mask = torch.tensor([[0] * (width - len(row.prompt)) + [1] * len(row.prompt) for row in rows])
    wall, used = time.monotonic(), time.process_time()
    with torch.inference_mode():
        loaded._model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=max(lengths), min_new_tokens=max(lengths),
            do_sample=True,
            temperature=1.0, top_k=0,
        )  # fmt: skip
    return DecodingSeconds(time.monotonic() - wall, time.process_time() - used, sum(lengths))


def measure(model: Path, answers: int) -> list[tuple[str, str, DecodingSeconds, int]]:
    """(what, how, seconds, answers) of each case."""
    small, plain = SmallPolicy(str(model), device="cpu"), TransformersPolicy(str(model), device="cpu", at_once=32)
    warm = requests(Action.DRAFT, 0.0, count=1)
    code = small.sample(warm)[0].text
    plain.sample(warm)
    cases = {
        "draft, one at a time": [[request] for request in requests(Action.DRAFT, 0.8, count=answers)],
        "repair, one at a time": [
            [request] for request in requests(Action.REPAIR, 0.8, code.replace("tl.exp", "tl.expp"))
        ],
        f"{2 * answers} drafts together": [requests(Action.DRAFT, 0.8, count=2 * answers)],
    }
    ways: dict[str, Callable[[Sequence[Request]], DecodingSeconds]] = {
        "generate": lambda asked: by_generate(plain, asked),
        "a token a step": lambda asked: timed(lambda: plain.sample(asked)),
        "several a step": lambda asked: timed(lambda: small.sample(asked)),
    }
    return [
        (name, how, _together([way(asked) for asked in batches]), sum(map(len, batches)))
        for name, batches in cases.items()
        for how, way in ways.items()
    ]


def _together(took: Sequence[DecodingSeconds]) -> DecodingSeconds:
    return DecodingSeconds(sum(t.wall for t in took), sum(t.used for t in took), sum(t.tokens for t in took))


def loading(model: Path) -> list[str]:
    lines = []
    for module, policy in (
        (TransformersPolicy.__module__, "TransformersPolicy"),
        (SmallPolicy.__module__, "SmallPolicy"),
    ):
        script = LOADING.format(module=module, policy=policy, model=str(model))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        torch_used, used, wall = map(float, done.stdout.split()[-3:])
        lines.append(f"| {policy} | {torch_used:.2f} | {used:.2f} | {wall:.2f} |")
    return lines


def page(model: Path, answers: int) -> list[str]:
    lines = [
        f"## {model.name if model != EMBEDDED_WEIGHTS else 'the embedded policy as it ships'}", "",
        "| opened by | import torch, processor s | all else up to the first token, processor s | whole, wall s |",
        "|---|---|---|---|",
        *loading(model), "",
        "| asked for | how | processor s an answer | wall s an answer | tokens an answer | tokens a processor second |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, how, took, number in measure(model, answers):
        lines.append(
            f"| {name} | {how} | {took.used / number:.3f} | {took.wall / number:.3f} | "
            f"{took.tokens / number:.0f} | "
            f"{took.tokens / took.used:,.0f} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, action="append", help="a model folder; without one the embedded policy")
    parser.add_argument("--answers", type=int, default=4, help="of each kind, one at a time; twice as many together")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "decoding.md")
    asked = parser.parse_args()
    lines = [
        "# Decoding on a CPU", "",
        f"`python -m bench.decoding`, {machine_line('cpu')}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, "
        f"revision {git_revision()}. Temperature "
        "0.8; the last two ways draw the same ids with the same log-probs "
        "(tests/policies/small/test_small_policy.py). The machine was shared with other "
        "work: processor seconds are what compares.", "",
    ]  # fmt: skip
    for model in asked.model or [EMBEDDED_WEIGHTS]:
        lines += page(model, asked.answers)
    asked.out.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
