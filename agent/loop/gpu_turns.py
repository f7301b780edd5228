"""Gives the GPU in turns to the tools and to a policy that computes in this process on the same
GPU.

A kernel timed beside a working policy would seem slower. And while a policy captures a CUDA graph
no other thread may draw random numbers: the GPU's generator is shared by all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kernelwright.policies.base import Completion, Policy, Request
from kernelwright.policies.forwarding import Forwarding


class MeasuresAlone(Protocol):
    """Interface of `tools.pipeline.Evaluator`: lends the GPU to one user at a time."""

    @property
    def device(self) -> str:
        """Name of the device: cpu, or cuda:N."""
        ...

    def alone_on_the_gpu(self) -> AbstractContextManager[None]:
        """Context manager: while entered, no candidate runs and nothing is timed on the GPU."""
        ...


def share_gpu(policy: Policy, tools: MeasuresAlone) -> Policy:
    """Wraps a policy that computes on the tools' GPU; returns any other policy unchanged."""
    policy_device = policy.capabilities.device
    shares = policy_device.startswith("cuda") and _index(policy_device) == _index(tools.device)
    return GpuSharingPolicy(policy, tools) if shares else policy


def _index(device: str) -> int | None:
    """Returns the index of a GPU from its name; `cuda` means `cuda:0`. None: not a GPU."""
    kind, _, index = device.partition(":")
    return int(index or 0) if kind == "cuda" else None


class GpuSharingPolicy(Forwarding):
    """A policy that samples only while the tools leave the GPU idle."""

    def __init__(self, policy: Policy, tools: MeasuresAlone) -> None:
        super().__init__(policy)
        self._tools = tools

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Samples from the policy while nothing else runs on the GPU; restores the state of
        torch's generators.
        """
        from kernelwright.tools.numerics.seeds import generators_locked

        with self._tools.alone_on_the_gpu(), generators_locked():
            return self.policy.sample(requests)
