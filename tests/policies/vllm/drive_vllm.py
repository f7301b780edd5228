"""Run with the vLLM environment's own Python: `python drive_vllm.py MODEL ADAPTER`. One JSON line for each outcome."""

from __future__ import annotations

import json
import sys

from kernelwright.policies.base import Message, PolicyError, Request, Role, Sampling
from kernelwright.policies.opening.open_policy import open_policy


def ask(text: str, **sampling: object) -> Request:
    return Request(
        messages=(Message(role=Role.USER, content=text),),
        sampling=Sampling(**{"max_tokens": 16, **sampling}),
    )


def main(model: str, adapter: str) -> None:
    policy = open_policy(
        f"vllm:{model}", engine={"dtype": "float32", "enforce_eager": True, "max_model_len": 512}
    )
    requests = [
        ask("add", seed=1),
        ask("add", seed=1),
        ask("add", seed=1, temperature=0.7),
        ask("add", seed=1).with_(adapter=adapter),
        ask("add", seed=2, temperature=1.5, max_tokens=10_000),
        ask("add", seed=1, top_p=0.9),
        ask("add"),
    ]
    for completion in policy.sample(requests):
        print(completion.model_dump_json(), flush=True)
    for refused in (ask("mask " * 600), ask("add").with_(adapter=model)):
        try:
            policy.sample([refused])
        except PolicyError as error:
            print(json.dumps({"refused": str(error), "trouble": error.trouble}), flush=True)
    policy.close()
    print(json.dumps({"closed": True}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
