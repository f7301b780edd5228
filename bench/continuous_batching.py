"""Our continuous batch beside transformers' `generate_batch`: tokens a second of both on the policy that ships.

    python -m bench.continuous_batching [--device cuda] [--requests 512] [--new-tokens 128] [--seconds 55]
                                        [--out bench/results/continuous_batching.md]

Two workloads, the same prompts for both engines (the compact draft prompts of the catalogue, in turn), sampled at
temperature 1 in the dtype that the policy is used in (bfloat16 on a GPU):

- equal lengths: nothing ends a reply, each has exactly `--new-tokens` tokens;
- drafts: replies end by themselves, as when `rl train --online` draws them, after at most `--new-tokens` tokens.

transformers' engine runs as it chooses by itself and, on a GPU, with CUDA graphs demanded, each time with the log-probs
of the sampled tokens, which training needs and our batch always gives. Each engine answers the same requests twice in
one process; the first call has what is captured, compiled or sized once. The log-probs of some replies are held against
a plain forward pass in float32. A part that would begin after `--seconds` is left out, and the page says so.
"""

from __future__ import annotations

import argparse
import copy
import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.policies.base import PromptForm, Request, Sampling
from kernelwright.rl.training.sft.card import git_revision, machine_line

CHECKED_REPLIES = 16
"""Replies whose log-probs are computed again."""
EQUAL, DRAFTS = "equal lengths", "drafts"


@dataclass(frozen=True)
class Reply:
    """What an engine drew for one prompt."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """One engine on one workload; seconds of the first and of the second call."""

    engine: str
    workload: str
    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    difference: float

    def line(self) -> str:
        """The row of the table: tokens a second of the second call, then of the first."""
        rates = [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]
        again = f"{rates[1]:,.0f}" if len(rates) > 1 else "not run (time limit)"
        return (
            f"| {self.engine} | {self.workload} | {self.tokens[-1]:,} | {again} | {rates[0]:,.0f} "
            f"| {self.difference:.1e} |"
        )


Engine = Callable[[bool], list[Reply]]
"""Answers all requests once; `True`: nothing ends a reply before its limit."""


def main() -> None:
    from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default=str(EMBEDDED_WEIGHTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--places", type=int, default=512, help="rows at once in our batch")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=55.0, help="no part begins later than this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "continuous_batching.md")
    arguments = parser.parse_args()
    for noisy in ("transformers", "ContinuousBatchingLogger"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    lines = measure(arguments, time.monotonic() + arguments.seconds)
    arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(arguments: argparse.Namespace, deadline: float) -> list[str]:
    """The page, printed row by row while it is measured."""
    lines = _head(arguments)
    print("\n".join(lines), flush=True)
    requests = draft_requests(arguments.requests, arguments.new_tokens)
    engines: list[tuple[str, Callable[[], tuple[Engine, str]]]] = [
        ("our continuous batch", lambda: our_batch(arguments, requests)),
        ("`generate_batch`", lambda: generate_batch(arguments, requests, None)),
    ]
    if arguments.device.startswith("cuda"):
        engines.append(("`generate_batch`, CUDA graphs demanded", lambda: generate_batch(arguments, requests, True)))
    for name, opened in engines:
        for line in _rows(name, opened, arguments, deadline):
            print(line, flush=True)
            lines.append(line)
    return lines


def _head(arguments: argparse.Namespace) -> list[str]:
    import torch
    import transformers

    return [
        "# Our continuous batch and transformers' `generate_batch`", "",
        f"`python -m bench.continuous_batching --device {arguments.device} --requests {arguments.requests} "
        f"--new-tokens {arguments.new_tokens}`, {machine_line(arguments.device)}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, revision "
        f"{git_revision()}. {arguments.requests} requests, temperature 1, log-probs of every sampled token; equal "
        f"lengths: {arguments.new_tokens} new tokens each; drafts: replies end by themselves. The last column is the "
        "largest difference of a log-prob from a forward pass in float32.", "",
        "| engine | workload | tokens | tokens a second | in the first call | log-probs off by |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip


def _rows(
    name: str, opened: Callable[[], tuple[Engine, str]], arguments: argparse.Namespace, deadline: float
) -> list[str]:
    if time.monotonic() > deadline:
        return [f"| {name} | not run (time limit) | | | | |"]
    engine, how = opened()
    rows = [_measured(f"{name} ({how})", workload, engine, arguments, deadline) for workload in (EQUAL, DRAFTS)]
    return [row.line() if isinstance(row, Row) else row for row in rows]


def _measured(name: str, workload: str, engine: Engine, arguments: argparse.Namespace, deadline: float) -> Row | str:
    """The engine on the workload, twice where time is left. Raises ValueError where replies are missing."""
    tokens, seconds, replies = [], [], []
    for _ in range(2):
        if time.monotonic() > deadline:
            break
        begun = time.monotonic()
        replies = engine(workload == EQUAL)
        seconds.append(time.monotonic() - begun)
        tokens.append(sum(len(reply.tokens) for reply in replies))
        wanted = arguments.requests * arguments.new_tokens
        if len(replies) != arguments.requests or (workload == EQUAL and tokens[-1] != wanted):
            raise ValueError(
                f"{name}: {len(replies)} replies of {tokens[-1]} tokens, not {arguments.requests} of {wanted}"
            )
    if not tokens:
        return f"| {name} | {workload}: not run (time limit) | | | | |"
    return Row(name, workload, tuple(tokens), tuple(seconds), largest_difference(arguments, replies[:CHECKED_REPLIES]))


def draft_requests(count: int, new_tokens: int) -> list[Request]:
    """Requests for drafts of the catalogue's problems in turn, each with a seed of its own."""
    from kernelwright.agent.problems.finding import catalogue
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.store.models import Action

    prompts = Prompts(PromptForm.COMPACT)
    messages = [prompts.messages(PromptFields(problem=one, action=Action.DRAFT)) for one in catalogue()]
    return [
        Request(messages=messages[place % len(messages)], sampling=Sampling(max_tokens=new_tokens, seed=place))
        for place in range(count)
    ]


def our_batch(arguments: argparse.Namespace, requests: Sequence[Request]) -> tuple[Engine, str]:
    """The running batch behind `rl train --online`, and how its model attends."""
    from kernelwright.policies.local.in_process_policy import InProcessPolicy

    policies = {}
    for endless in (True, False):  # what ends a reply is given to the batch when it is made
        policies[endless] = InProcessPolicy(
            arguments.policy, device=arguments.device, places=arguments.places, continuous=True
        )
        policies[endless].open()
    policies[True]._loaded.ends = frozenset()  # type: ignore[union-attr]

    def answer(endless: bool) -> list[Reply]:
        completions = policies[endless].sample(requests)
        return [
            Reply(tuple(one.prompt_token_ids or ()), tuple(one.token_ids or ()), tuple(one.logprobs or ()))
            for one in completions
        ]

    return answer, f"{arguments.places} places"


def generate_batch(
    arguments: argparse.Namespace, requests: Sequence[Request], graphs: bool | None
) -> tuple[Engine, str]:
    """transformers' engine, kept between calls, and the attention and graphs that it chose (`graphs`: demanded)."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    from kernelwright.policies.local.transformers_policy import load, prompt_ids

    loaded = load(arguments.policy, arguments.device, "auto")
    prompts = [prompt_ids(loaded._tokenizer, request, arguments.policy) for request in requests]
    settings = ContinuousBatchingConfig(return_logprobs=True, use_cuda_graph=graphs, seed=0)
    kept: dict[str, bool] = {}

    def answer(endless: bool) -> list[Reply]:
        generation = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=arguments.new_tokens,
            eos_token_id=-1 if endless else sorted(loaded.ends), pad_token_id=loaded._pad,
        )  # fmt: skip
        if kept.get("endless") is not endless:  # another end token is another manager
            loaded.base.destroy_cached_continuous_batching_manager()
            kept["endless"] = endless
        done = loaded.base.generate_batch(
            prompts,
            generation_config=generation,
            continuous_batching_config=copy.deepcopy(settings),
            persistent_manager=True,
        )
        return [
            Reply(tuple(prompt), tuple(one.generated_tokens), tuple(one.logprobs))
            for prompt, one in zip(prompts, done.values(), strict=True)
        ]

    return answer, f"attention {_attention(loaded.base)}, graphs {'yes' if graphs else 'as it chooses'}"


def _attention(model: Any) -> str:
    """The attention that continuous batching will switch this model to, where it is arguments for none."""
    from transformers.utils import is_flash_attn_2_available

    return "flash" if is_flash_attn_2_available() else f"paged|{model.config._attn_implementation}"


def largest_difference(arguments: argparse.Namespace, replies: Sequence[Reply]) -> float:
    """Of the replies' log-probs from those of a plain forward pass in float32 on the same device."""
    import torch

    model = _in_float32(arguments.policy, arguments.device)
    worst = 0.0
    for reply in replies:
        ids = torch.tensor([reply.prompt + reply.tokens], device=arguments.device)
        with torch.no_grad():
            logps = model(input_ids=ids).logits[0, len(reply.prompt) - 1 : -1].float().log_softmax(-1)
        exact = logps.gather(-1, ids[0, len(reply.prompt) :, None])[:, 0]
        given = torch.tensor(reply.logprobs, device=arguments.device)
        worst = max(worst, float((exact - given).abs().max()))
    return worst


@functools.cache
def _in_float32(policy: str, device: str) -> Any:
    from kernelwright.policies.local.transformers_policy import load

    return load(policy, device, "float32").base


if __name__ == "__main__":
    main()
