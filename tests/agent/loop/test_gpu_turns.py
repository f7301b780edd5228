"""A policy on the judge's own GPU is asked only while nothing is judged there, and nobody seeds a generator
meanwhile.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from kernelwright.agent.loop.gpu_turns import GpuSharingPolicy, share_gpu
from kernelwright.policies.base import Capabilities, Message, Request, Role
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.tools.numerics.seeds import seeded


class OnGpu(ScriptedPolicy):
    """Says that it computes there, and calls `during` while it does."""

    def __init__(self, device: str, during=lambda: None) -> None:
        super().__init__(["answer"])
        self._where, self._during = device, during

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities.with_(device=self._where)

    def sample(self, requests):
        self._during()
        return super().sample(requests)


class Tools:
    def __init__(self, device: str) -> None:
        self.device, self.held = device, threading.Lock()

    @contextmanager
    def alone_on_the_gpu(self):
        with self.held:
            yield


@pytest.mark.parametrize(
    ("policy", "tools", "turns"),
    [("cuda", "cuda:0", True), ("cuda:1", "cuda:1", True), ("cuda:1", "cuda:0", False), ("cpu", "cuda:0", False),
    ("", "cuda:0", False), ("cuda", "cpu", False)],
)  # fmt: skip
def test_who_computes_on_the_judges_gpu_takes_turns_with_it(policy, tools, turns):
    asked = share_gpu(OnGpu(policy), Tools(tools))
    assert isinstance(asked, GpuSharingPolicy) is turns


def test_it_is_asked_while_nothing_is_judged_and_nothing_seeded():
    tools, seen = Tools("cuda:0"), []

    def draw() -> None:
        with seeded(1):
            pass

    def during() -> None:
        seen.append(tools.held.locked())
        drawn = threading.Thread(target=draw, daemon=True)
        drawn.start()
        drawn.join(0.3)
        seen.append(drawn.is_alive())

    policy = share_gpu(OnGpu("cuda", during), tools)
    assert (
        policy.sample(
            [Request(messages=(Message(role=Role.USER, content="?"),), thread="one", turn=0)]
        )[0].text
        == "answer"
    )
    assert seen == [True, True], "held, and whoever wanted to seed waits"
    assert not tools.held.locked()
