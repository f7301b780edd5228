"""A policy that computes in this process on the GPU that the tools measure on: the two take turns.

Timed beside a policy at work a kernel would seem slower than it is; and while a policy captures a CUDA graph nobody may
draw from the GPU's generator, which is one for all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kernelwright.policies.base import Completion, Policy, Request
from kernelwright.policies.forwarding import Forwarding


class MeasuresAlone(Protocol):
    """tools.pipeline.Evaluator."""

    @property
    def device(self) -> str:
        """cpu, or cuda:N."""
        ...

    def alone_on_the_gpu(self) -> AbstractContextManager[None]:
        """While it is entered, no candidate runs and nothing is timed on the GPU."""
        ...


def share_gpu(policy: Policy, tools: MeasuresAlone) -> Policy:
    """The policy itself where it computes elsewhere."""
    own = policy.capabilities.device
    return (
        GpuSharingPolicy(policy, tools)
        if own.startswith("cuda") and _number(own) == _number(tools.device)
        else policy
    )


def _number(device: str) -> int | None:
    """Returns the number of a GPU by its name; `cuda` is `cuda:0`."""
    kind, _, number = device.partition(":")
    return int(number or 0) if kind == "cuda" else None


class GpuSharingPolicy(Forwarding):
    """Asks only while the tools leave the GPU alone."""

    def __init__(self, policy: Policy, tools: MeasuresAlone) -> None:
        super().__init__(policy)
        self._tools = tools

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Samples as the policy does, while nothing else runs on the GPU; torch's generators are left as they were."""
        from kernelwright.tools.numerics.seeds import generators_locked

        with self._tools.alone_on_the_gpu(), generators_locked():
            return self.policy.sample(requests)
