"""Notices that a verdict has ended the CUDA context of the judge's process, before another verdict uses it.

References run in the judge's process. A device-side assertion of one (an index out of bounds, say) ends the context for
good: every later call to CUDA in this process fails, whoever makes it. Candidates run in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kernelwright.agent.judging.pool import JudgeEnded
from kernelwright.tools.options import Lane

DEAD_MESSAGE = "an earlier verdict of this judge ended the context of its GPU"


class DeviceWatch:
    """The lanes of a GPU judge, with a look at the device whenever a verdict leaves the GPU's lane."""

    def __init__(
        self, lanes: Callable[[Lane], AbstractContextManager[None]], is_dead: Callable[[], bool]
    ) -> None:
        """lanes: gives the context manager of a lane. is_dead: says whether the device can be used no more."""
        self._lanes, self._look = lanes, is_dead
        self.is_dead = False
        """Whether this process can use its GPU no more."""

    @contextmanager
    def __call__(self, lane: Lane) -> Iterator[None]:
        """Holds a lane. Raises JudgeEnded for the GPU's lane once the device is dead."""
        with self._lanes(lane):
            if lane is not Lane.GPU:
                yield
                return
            if self.is_dead:
                raise JudgeEnded(DEAD_MESSAGE)
            try:
                yield
            finally:
                # Still in the lane: no other verdict comes between the death and its discovery.
                self.is_dead = self._look()


def is_context_dead(device: str) -> bool:
    """Returns whether CUDA in this process fails for good. Waits until the device has done everything."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False
