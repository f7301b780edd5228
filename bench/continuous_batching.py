"""Our continuous batch beside transformers' `generate_batch` and vLLM: tokens a second, on the policy that ships.

    python -m bench.continuous_batching [--device cuda] [--requests 512] [--new-tokens 128] [--seconds 55]
                                        [--engines ours generate_batch] [--out bench/results/continuous_batching.md]
    python -m bench.continuous_batching --device cpu --threads 1 --requests 128 --places 128 --seconds 1500
                                        --engines ours vllm ours --vllm-python ../venv-vllm/bin/python --out FILE

Two workloads, the same prompts for both engines (the compact draft prompts of the catalogue, in turn), sampled at
temperature 1 in the dtype that the policy is used in (bfloat16 on a GPU):

- equal lengths: nothing ends a reply, each has exactly `--new-tokens` tokens;
- drafts: replies end by themselves, as when `rl train --online` draws them, after at most `--new-tokens` tokens.

transformers' engine runs as it chooses by itself and, on a GPU, with CUDA graphs demanded, each time with the log-probs
of the sampled tokens, which training needs and our batch always gives. Each engine answers the same requests twice in
one process; the first call has what is captured, compiled or sized once. The log-probs of some replies are held against
a plain forward pass in float32. A part that would begin after `--seconds` is left out, and the page says so.

vLLM needs an environment of its own (docs/reference/policies.md): its part of the measurement runs in the Python that
`--vllm-python` names, and sends its rows back as JSON. On a CPU it computes in float32, as ours does there. An engine
may be named twice, to see what other work on the machine did to the figures; the last lines of the page are ratios, of
tokens a second and of tokens a processor second (of the process and all below it), which other work hardly changes.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from kernelwright.policies.base import PromptForm, Request, Sampling
from kernelwright.rl.training.sft.card import git_revision, machine_line

ROOT = Path(__file__).parents[1]
CHECKED_REPLIES = 16
"""Replies whose log-probs are computed again."""
MEMORY_SHARE = {"cpu": 0.25, "cuda": 0.3}
"""Of the device's memory, for vLLM: by itself it takes 0.92, and refuses to start where that is not free, as beside a
process in which our own batch has run.
"""
EQUAL, DRAFTS = "equal lengths", "drafts"


@dataclass(frozen=True)
class Reply:
    """What an engine drew for one prompt."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Row:
    """One engine on one workload; tokens and seconds of the first and of the second call."""

    engine: str
    workload: str
    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    processor_seconds: tuple[float, ...]
    difference: float

    def rates(self) -> list[float]:
        """Tokens a second of each call."""
        return [tokens / seconds for tokens, seconds in zip(self.tokens, self.seconds, strict=True)]

    def processor_rate(self) -> float:
        """Tokens a processor second of the last call."""
        return self.tokens[-1] / max(self.processor_seconds[-1], 1e-9)

    def line(self) -> str:
        """The row of the table: tokens a second of the second call, of the first, and a processor second."""
        rates = self.rates()
        again = f"{rates[1]:,.0f}" if len(rates) > 1 else "not run (time limit)"
        return (
            f"| {self.engine} | {self.workload} | {self.tokens[-1]:,} | {again} | {rates[0]:,.0f} "
            f"| {self.processor_rate():,.0f} | {self.difference:.1e} |"
        )


@dataclass(frozen=True)
class Engine:
    """An engine that is ready to answer the requests of the measurement."""

    answer: Callable[[bool], list[Reply]]
    """Answers all requests once; `True`: nothing ends a reply before its limit."""
    how: str
    """How it runs, for the table."""
    close: Callable[[], None]
    """Ends what it started: a process that vLLM's engine is left in does not end."""


def main() -> None:
    from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default=str(EMBEDDED_WEIGHTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--places", type=int, default=512, help="rows at once in our batch")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=55.0, help="no part begins later than this")
    parser.add_argument("--engines", nargs="+", choices=sorted(ENGINES), default=["ours", "generate_batch", "graphs"])
    parser.add_argument("--vllm-python", type=Path, help="the Python of an environment that has vLLM")
    parser.add_argument("--threads", type=int, help="threads of torch on a CPU, for each engine")
    parser.add_argument("--json", action="store_true", help="print rows as JSON, and write no page")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "continuous_batching.md")
    arguments = parser.parse_args()
    if "vllm" in arguments.engines and not arguments.json and arguments.vllm_python is None:
        parser.error("vLLM runs in an environment of its own: name its Python with --vllm-python")
    if arguments.threads:
        import torch

        torch.set_num_threads(arguments.threads)
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # for processes of an engine
    for noisy in ("transformers", "ContinuousBatchingLogger"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    deadline = time.monotonic() + arguments.seconds
    if arguments.json:
        requests = draft_requests(arguments.requests, arguments.new_tokens)
        rows = [row for name in arguments.engines for row in _rows(name, arguments, requests, deadline)]
        print(json.dumps([dataclasses.asdict(row) if isinstance(row, Row) else row for row in rows]))
        return
    arguments.out.write_text("\n".join(measure(arguments, deadline)) + "\n", encoding="utf-8")


def measure(arguments: argparse.Namespace, deadline: float) -> list[str]:
    """The page, printed row by row while it is measured."""
    lines = _head(arguments)
    print("\n".join(lines), flush=True)
    requests = draft_requests(arguments.requests, arguments.new_tokens)
    measured: list[Row] = []
    for name in arguments.engines:
        if name == "graphs" and not arguments.device.startswith("cuda"):
            continue
        if name == "vllm":
            rows = _rows_of_another_python(arguments, deadline)
        else:
            rows = _rows(name, arguments, requests, deadline)
        for row in rows:
            measured += [row] if isinstance(row, Row) else []
            lines.append(row.line() if isinstance(row, Row) else row)
            print(lines[-1], flush=True)
    return lines + ratios(measured)


def ratios(rows: Sequence[Row]) -> list[str]:
    """Our rate over each other engine's on the same workload: the mean of our rows over theirs, of the second calls."""
    said: dict[str, None] = {}
    for row in rows:
        own = [r for r in rows if r.workload == row.workload and r.engine.startswith(OURS)]
        theirs = [r for r in rows if r.workload == row.workload and r.engine == row.engine]
        if own and not row.engine.startswith(OURS):
            wall = mean(r.rates()[-1] for r in own) / mean(r.rates()[-1] for r in theirs)
            processor = mean(r.processor_rate() for r in own) / mean(r.processor_rate() for r in theirs)
            line = (
                f"- Ours over {row.engine}, {row.workload}: {wall:.2f} by the clock, {processor:.2f} a processor second"
            )
            said[line] = None
    return ["", *said] if said else []


def _rows_of_another_python(arguments: argparse.Namespace, deadline: float) -> list[Row | str]:
    """vLLM's rows, measured by this script in vLLM's own environment. Raises CalledProcessError where it fails."""
    left = max(0.0, deadline - time.monotonic())
    options = {
        "--policy": arguments.policy, "--device": arguments.device, "--requests": arguments.requests,
        "--places": arguments.places, "--new-tokens": arguments.new_tokens, "--seconds": left,
        **({"--threads": arguments.threads} if arguments.threads else {}),
    }  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    done = subprocess.run(
        [str(arguments.vllm_python), "-m", "bench.continuous_batching", "--json", "--engines", "vllm", *words],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [row if isinstance(row, str) else _row(row) for row in json.loads(done.stdout.splitlines()[-1])]


def _row(told: dict[str, Any]) -> Row:
    fields: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    return Row(**fields)


def _head(arguments: argparse.Namespace) -> list[str]:
    import torch
    import transformers

    return [
        "# Our continuous batch beside other engines", "",
        f"`python -m bench.continuous_batching --device {arguments.device} --requests {arguments.requests} "
        + (f"--threads {arguments.threads} " if arguments.threads else "")
        + f"--places {arguments.places} --new-tokens {arguments.new_tokens} --engines {' '.join(arguments.engines)}`, "
        f"{machine_line(arguments.device)}, load average {os.getloadavg()[0]:.1f} at the start, "
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, revision {git_revision()}. "
        f"{arguments.requests} requests, temperature 1, log-probs of every sampled token; equal "
        f"lengths: {arguments.new_tokens} new tokens each; drafts: replies end by themselves. The last column is the "
        "largest difference of a log-prob from a forward pass in float32.", "",
        "| engine | workload | tokens | tokens a second | in the first call | a processor second | log-probs off by |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip


def _rows(name: str, arguments: argparse.Namespace, requests: Sequence[Request], deadline: float) -> list[Row | str]:
    title, opened = ENGINES[name]
    if time.monotonic() > deadline:
        return [f"| {title} | not run (time limit) | | | | | |"]
    engine = opened(arguments, requests)
    try:
        return [
            _measured(f"{title} ({engine.how})", workload, engine, arguments, deadline) for workload in (EQUAL, DRAFTS)
        ]
    finally:
        engine.close()


def _measured(name: str, workload: str, engine: Engine, arguments: argparse.Namespace, deadline: float) -> Row | str:
    """The engine on the workload, twice where time is left. Raises ValueError where replies are missing."""
    tokens, seconds, processor_seconds, replies = [], [], [], []
    for _ in range(2):
        if time.monotonic() > deadline:
            break
        begun, used = time.monotonic(), processor_seconds_used()
        replies = engine.answer(workload == EQUAL)
        seconds.append(time.monotonic() - begun)
        processor_seconds.append(processor_seconds_used() - used)
        tokens.append(sum(len(reply.tokens) for reply in replies))
        wanted = arguments.requests * arguments.new_tokens
        if len(replies) != arguments.requests or (workload == EQUAL and tokens[-1] != wanted):
            raise ValueError(
                f"{name}: {len(replies)} replies of {tokens[-1]} tokens, not {arguments.requests} of {wanted}"
            )
    if not tokens:
        return f"| {name} | {workload}: not run (time limit) | | | | | |"
    difference = largest_difference(arguments, replies[:CHECKED_REPLIES])
    return Row(name, workload, tuple(tokens), tuple(seconds), tuple(processor_seconds), difference)


def processor_seconds_used() -> float:
    """Returns the processor seconds of this process and of all that are alive below it: vLLM computes in processes of
    its own.
    """
    import psutil

    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


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


def our_batch(arguments: argparse.Namespace, requests: Sequence[Request]) -> Engine:
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

    def close() -> None:
        for policy in policies.values():
            policy.close()

    return Engine(answer, f"{arguments.places} places", close)


def generate_batch(arguments: argparse.Namespace, requests: Sequence[Request], graphs: bool | None) -> Engine:
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

    how = f"attention {_attention(loaded.base)}, graphs {'yes' if graphs else 'as it chooses'}"
    return Engine(answer, how, loaded.base.destroy_cached_continuous_batching_manager)


def vllm_engine(arguments: argparse.Namespace, requests: Sequence[Request]) -> Engine:
    """vLLM's engine in this process, as the policy `vllm:PATH` runs it, but without room for adapters, as ours."""
    import vllm

    from kernelwright.policies.vllm.engine_policy import VLLMPolicy

    share = MEMORY_SHARE[arguments.device.partition(":")[0]]
    settings = {"enable_lora": False, "max_num_seqs": arguments.places, "gpu_memory_utilization": share}
    policy = VLLMPolicy(arguments.policy, engine=settings)
    policy.open()
    parameters_of, endless_now = policy._parameters, False

    def parameters(sampling: Sampling, prompt_tokens: int) -> Any:
        made = parameters_of(sampling, prompt_tokens)
        made.ignore_eos = endless_now
        return made

    policy._parameters = parameters  # type: ignore[method-assign]

    def answer(endless: bool) -> list[Reply]:
        nonlocal endless_now
        endless_now = endless
        return [
            Reply(tuple(one.prompt_token_ids or ()), tuple(one.token_ids or ()), tuple(one.logprobs or ()))
            for one in policy.sample(requests)
        ]

    how = f"{vllm.__version__}, {policy._engine.llm_engine.model_config.dtype}, {arguments.places} places"
    return Engine(answer, how, policy.close)


def _attention(model: Any) -> str:
    """The attention that continuous batching will switch this model to, where it is arguments for none."""
    from transformers.utils import is_flash_attn_2_available

    return "flash" if is_flash_attn_2_available() else f"paged|{model.config._attn_implementation}"


def largest_difference(arguments: argparse.Namespace, replies: Sequence[Reply]) -> float:
    """Returns the largest difference of the replies' log-probs from those of a plain forward pass in float32 on the
    same device.
    """
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


OURS = "our continuous batch"
ENGINES: dict[str, tuple[str, Callable[[argparse.Namespace, Sequence[Request]], Engine]]] = {
    "ours": (OURS, our_batch),
    "generate_batch": ("`generate_batch`", functools.partial(generate_batch, graphs=None)),
    "graphs": ("`generate_batch`, CUDA graphs demanded", functools.partial(generate_batch, graphs=True)),
    "vllm": ("vLLM", vllm_engine),
}


if __name__ == "__main__":
    main()
