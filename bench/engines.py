"""How fast what can sample a policy does it, and whether its log-probs are the model's: prints a row of the table in
docs/reference/policies.md.

    python -m bench.engines transformers | running | vllm [--policy DIR] [--engine '{"dtype": "bfloat16"}'] [--threads
    2]

64 drafts of four problems of the catalogue at temperature 1, asked for twice (the second is the figure), then eight one
after the other. vLLM wants its own environment.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from kernelwright.policies.base import Completion, PromptForm, Request, Sampling

PROBLEMS = ("fused softmax", "fused silu", "add", "layer norm")
SAMPLES = 16
HELD = 32
"""Completions whose log-probs are computed again."""


def main() -> None:
    from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("transformers", "running", "vllm"))
    parser.add_argument("--policy", default=str(EMBEDDED_WEIGHTS))
    parser.add_argument("--engine", type=json.loads, default={}, help="vLLM's own arguments, as JSON")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    measure(asked)


def measure(asked: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(asked.threads)
    policy, requests = _opened(asked), _requests()
    begun = time.monotonic()
    policy.sample(requests[:2])
    first = time.monotonic() - begun
    rates = [_rate(policy, [requests]) for _ in range(2)]
    single = _rate(policy, [[request] for request in requests[:8]])
    off = _largest_difference(asked.policy, policy.sample(requests)[:HELD])
    print(
        f"| {asked.kind} {json.dumps(asked.engine) if asked.engine else ''} | {rates[1]:,.0f} "
        f"({rates[0]:,.0f} in the first call) | {single:.0f} | "
        f"{first:.0f} s | {off:.1e} |"
    )
    policy.close()


def _opened(asked: argparse.Namespace) -> Any:
    if asked.kind == "vllm":
        from kernelwright.policies.vllm.engine_policy import VLLMPolicy

        return VLLMPolicy(asked.policy, engine=asked.engine)
    if asked.kind == "running":
        from kernelwright.policies.local.in_process_policy import InProcessPolicy

        return InProcessPolicy(asked.policy, device="cpu")
    from kernelwright.policies.local.transformers_policy import TransformersPolicy

    return TransformersPolicy(asked.policy, device="cpu", at_once=len(PROBLEMS) * SAMPLES)


def _requests() -> list[Request]:
    from kernelwright.agent.problems.finding import find_by_name
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.store.models import Action

    prompts = Prompts(PromptForm.COMPACT)
    messages = [prompts.messages(PromptFields(problem=find_by_name(name), action=Action.DRAFT)) for name in PROBLEMS]
    return [Request(messages=m, sampling=Sampling(max_tokens=256, seed=s)) for m in messages for s in range(SAMPLES)]


def _rate(policy: Any, calls: list[list[Request]]) -> float:
    """Tokens a second over the calls, one after the other."""
    begun = time.monotonic()
    tokens = sum(len(completion.token_ids or ()) for call in calls for completion in policy.sample(call))
    return tokens / (time.monotonic() - begun)


def _largest_difference(folder: str, completions: list[Completion]) -> float:
    """Of the log-probs that were given from those of a plain forward pass in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    worst = 0.0
    for one in completions:
        prompt, reply = list(one.prompt_token_ids or ()), list(one.token_ids or ())
        with torch.no_grad():
            logps = model(input_ids=torch.tensor([prompt + reply])).logits[0].log_softmax(-1)
        known = [float(logps[len(prompt) + place - 1, token]) for place, token in enumerate(reply)]
        worst = max(worst, *(abs(a - b) for a, b in zip(known, one.logprobs or (), strict=True)))
    return worst


if __name__ == "__main__":
    main()
