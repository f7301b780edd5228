"""Turns as a policy and the tools would give them, the same ones for the same numbers."""

import random
import struct

from kernelwright.policies.base import (
    Completion,
    FinishReason,
    Message,
    Request,
    Role,
    Sampling,
    Usage,
)
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import (
    CompileResult,
    Environment,
    Failure,
    Fault,
    KernelResources,
    Mismatch,
    ProfileResult,
    Report,
    Rung,
    Timing,
    WrongElement,
)

REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        "
    "return torch.softmax(x, -1)\n"
)


def start(name="fused_softmax", policy="scripted:answers.jsonl", **options):
    return TrajectoryStart(
        problem=Problem(
            name=name, source=f"# {name}\n{REFERENCE}\nNAME = {name!r}\n", suite="catalogue"
        ),
        policy=policy,
        options=options,
        goal="correct",
        budgets={"turns": 8},
        seed=7,
        program="0.1.0",
    )


def history(turn, trajectory=0):
    """System, user, then an answer and a complaint for every turn before this one."""
    messages = [
        Message(role=Role.SYSTEM, content="You write Triton kernels."),
        Message(role=Role.USER, content=f"Problem {trajectory}"),
    ]
    for before in range(turn):
        messages.append(Message(role=Role.ASSISTANT, content=reply(before, trajectory)))
        messages.append(
            Message(
                role=Role.USER, content=f"Turn {before} of {trajectory} was wrong: mind the mask"
            )
        )
    return tuple(messages)


def request(turn=0, trajectory=0, **sampling):
    return Request(
        messages=history(turn, trajectory),
        sampling=Sampling(temperature=0.7, seed=turn, **sampling),
        adapter="lora/3",
    )


def source(turn, trajectory=0):
    body = "\n".join(
        f"    x{line} = tl.load(x_ptr + offsets_{trajectory}_{turn} + {line})" for line in range(20)
    )
    return f"import triton.language as tl\n\ndef kernel_{trajectory}_{turn}(x_ptr):\n{body}\n"


def reply(turn, trajectory=0):
    return f"Here it is:\n```python\n{source(turn, trajectory)}```\n"


def tokens(turn, trajectory=0, count=200):
    draws = random.Random(f"{trajectory}/{turn}")
    return tuple(draws.randrange(151_936) for _ in range(count))


def logprobs(count, seed=0):
    """As a sampler gives them: float32."""
    draws = random.Random(seed)
    return tuple(
        struct.unpack("<f", struct.pack("<f", -draws.expovariate(2.0)))[0] for _ in range(count)
    )


def prompt_tokens(turn, trajectory=0):
    """Grows by what was said."""
    return tuple(token for before in range(-1, turn) for token in tokens(before, trajectory, 300))


def completion(turn=0, trajectory=0, **changes):
    ids = tokens(turn, trajectory)
    whole = Completion(
        text=reply(turn, trajectory),
        finish=FinishReason.STOP,
        usage=Usage(
            prompt_tokens=300 * (turn + 1),
            completion_tokens=len(ids),
            cached_prompt_tokens=16,
            dollars=0.0125,
            estimated=True,
        ),
        policy="vllm:/models/tiny",
        prompt_token_ids=prompt_tokens(turn, trajectory),
        token_ids=ids,
        logprobs=logprobs(len(ids), turn),
        exact=True,
        revision="sha256:abc",
        adapter_revision="step-40",
        tokenizer_hash="t" * 64,
        chat_template_hash="c" * 64,
        seed=turn,
        latency=1.5,
    )
    return whole.model_copy(update=changes)


def wrong(turn=0, trajectory=0, message="wrong in the last block"):
    mismatch = Mismatch(
        wrong=3,
        total=335,
        first=WrongElement(index=(0, 64), expected=1.0, got=float("nan")),
        hint="look at the mask",
    )
    return Report(
        problem="fused_softmax",
        problem_hash="p" * 64,
        candidate_hash=f"{trajectory:032d}{turn:032d}",
        rung=Rung.INTERPRETED,
        failure=Failure(
            fault=Fault.MISMATCH,
            message=message,
            trace="File candidate.py, line 9",
            mismatch=mismatch,
        ),
        judged_on="cpu",
        environment=ENVIRONMENT,
    )


def right(turn=0, trajectory=0, speedup=1.5, host="here"):
    timing = Timing(
        median=0.05, low=0.049, high=0.051, mean=0.05, std=0.001, minimum=0.048, calls=100
    )
    resources = KernelResources(
        name="kernel", config={"BLOCK": 1024, "other": float("-inf")}, registers=40, seconds=0.2
    )
    return Report(
        problem="fused_softmax",
        problem_hash="p" * 64,
        candidate_hash=f"{trajectory:032d}{turn:032d}",
        rung=Rung.PROFILE,
        correct=True,
        correct_kb=True,
        judged_on="NVIDIA H200",
        compiles=(CompileResult(target="sm_90", kernels=(resources,)),),
        profile=ProfileResult(
            device="NVIDIA H200",
            candidate=timing,
            speedup=speedup,
            speedup_low=speedup - 0.1,
            own_share=1.0,
        ),
        environment=ENVIRONMENT.with_(host=host),
        seconds=2.5,
    )


ENVIRONMENT = Environment(
    evaluator="1", python="3.11", torch="2.13.0", triton="3.9.0", gpu="NVIDIA H200"
)
