"""What one plug pays for texts under each preset, by its own entry point, in the environment of its framework.

    python bench/plug_rewards.py PLUG URL PROBLEM TEXTS

TEXTS is a JSON file of texts by name. Prints JSON: preset -> name -> reward, null for a sample that must not train.
bench/reward_presets.py starts it; nothing of this repository but the plug is imported.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

from kernelwright_client import PRESET_WEIGHTS, JudgeClient, code_of

Pays = Callable[[str, str], "float | None"]
"""Judges a reply under a preset."""


def client(url: str, problem: str) -> Pays:
    judge = JudgeClient(url)
    return lambda reply, preset: judge.score(problem, code_of(reply)).reward(preset).total


def trl(url: str, problem: str) -> Pays:
    from kernelwright_trl import KernelReward

    judge = JudgeClient(url)
    return lambda reply, preset: asyncio.run(KernelReward(judge, preset)([reply], [problem]))[0]


def verl(url: str, problem: str) -> Pays:
    from kernelwright_verl import compute_score

    def pays(reply: str, preset: str) -> float | None:
        settings = {"judge_url": url, "unscored": "nan", "weights": preset}
        told = asyncio.run(compute_score("kernelwright", reply, problem, **settings))
        return None if math.isnan(told["score"]) else told["score"]

    return pays


def openenv(url: str, problem: str) -> Pays:
    from kernelwright_openenv import KernelAction
    from kernelwright_openenv.environment import KernelEnvironment

    def pays(reply: str, preset: str) -> float | None:
        environment = KernelEnvironment(JudgeClient(url), preset)
        environment.reset(problem=problem)
        return environment.step(KernelAction(code=reply)).reward

    return pays


def skyrl(url: str, problem: str) -> Pays:
    import skyrl_gym

    import kernelwright_skyrl

    def pays(reply: str, preset: str) -> float | None:
        row = {"reward_spec": {"method": "rule", "ground_truth": problem}, "max_turns": 1}
        config = {"judge_url": url, "weights": preset}
        environment = skyrl_gym.make(kernelwright_skyrl.ENVIRONMENT, env_config=config, extras=row)
        try:
            return environment.step(reply)["reward"]
        except kernelwright_skyrl.Unscored:
            return None

    return pays


def verifiers(url: str, problem: str) -> Pays:
    import verifiers.v1 as vf
    from verifiers.v1.errors import TaskError
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import Trace, TraceTask

    from kernelwright_verifiers import KernelTask
    from kernelwright_verifiers.taskset import KernelTaskConfig, KernelTaskset, KernelTasksetConfig

    config = KernelTasksetConfig(
        id="kernelwright-verifiers", problems=[problem], task=KernelTaskConfig(judge_url=url)
    )
    [first] = KernelTaskset(config)

    def pays(reply: str, preset: str) -> float | None:
        task = KernelTask(first.data, KernelTaskConfig(judge_url=url, weights=preset))
        told = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo(config=vf.AgentConfig(), name="agent", trainable=True)
        trace = Trace(task=told, state=state_cls(type(task))(), agent=agent, root_reply=reply)
        try:
            asyncio.run(task.score(trace))
        except TaskError:
            return None
        return trace.reward

    return pays


def nemo(url: str, problem: str) -> Pays:
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf

    import kernelwright_nemo
    from kernelwright_nemo.server import KernelResourcesServerConfig, KernelVerifyRequest

    [row] = kernelwright_nemo.rows(JudgeClient(url), [problem])

    def pays(reply: str, preset: str) -> float | None:
        config = KernelResourcesServerConfig(
            host="127.0.0.1", port=0, entrypoint="app.py", name="kernelwright", domain="coding", judge_url=url,
            weights=preset,
        )  # fmt: skip
        head = BaseServerConfig(host="127.0.0.1", port=1)
        server = kernelwright_nemo.KernelResourcesServer(
            config=config,
            server_client=ServerClient(
                head_server_config=head, global_config_dict=OmegaConf.create({})
            ),
        )
        content = [{"type": "output_text", "text": reply, "annotations": []}]
        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        response = {
            "id": "r", "created_at": 0.0, "model": "scripted", "object": "response", "output": [message],
            "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        request = KernelVerifyRequest.model_validate({**row, "response": response})
        told = asyncio.run(server.verify(request))
        return None if told.mask_sample else told.reward

    return pays


PLUGS = {
    function.__name__: function for function in (client, trl, verl, openenv, skyrl, verifiers, nemo)
}


def main() -> None:
    """Prints what the plug pays."""
    plug, url, problem, texts = sys.argv[1:]
    pays = PLUGS[plug](url, problem)
    candidates = json.loads(Path(texts).read_text(encoding="utf-8"))
    rewards: dict[str, dict[str, float | None]] = {preset: {} for preset in PRESET_WEIGHTS}
    for preset in PRESET_WEIGHTS:
        for name, text in candidates.items():
            # A crash is judged anew each time, which takes seconds.
            if preset == "default" or not name.startswith("crash"):
                rewards[preset][name] = pays(text, preset)
    print(json.dumps(rewards))


if __name__ == "__main__":
    main()
