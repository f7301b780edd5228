"""One call as a CUDA graph: what its host code costs is left out of every replay.

For the replayed steps of a candidate and for the reference alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kernelwright.tools.faults import clean_text
from kernelwright.tools.gpu.persistent_memory import give_back_unused
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.numerics.seeds import generators_locked


class CaptureFailed(Exception):
    """The call cannot be captured: it waits for the device, copies between host and device, or allocates outside of
    torch. The message says what was seen.
    """


class Pool:
    """Memory that several graphs use one after the other.

    Keeps the outputs of each apart, for they are held as long as the graph.
    """

    def __init__(self) -> None:
        import torch

        self.handle = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        """On which all of them are captured; they are replayed on the current one."""


class Captured:
    """One call in a graph. Its outputs, and whatever else it returns, are held until `release`."""

    def __init__(self, call: Callable[[], Any], pool: Pool, *, first: bool = True) -> None:
        """Runs `call` once before, for what happens at a first call only, and once in the capture, where nothing
        runs. first: False where the same steps have run on the pool's stream, or make nothing for it. Raises
        CaptureFailed, or what a first call raises.
        """
        import torch

        torch.cuda.synchronize()
        self.lasting = frozenset[int]()
        """Addresses of the memory that the first call's outputs lay in.

        Outputs of the graph that lie there were not allocated by it.
        """
        if first:
            with torch.cuda.stream(pool.stream):
                self.lasting = _storages(call())
            torch.cuda.synchronize()
            give_back_unused()  # of that call: a capture has memory of its own, and frees none for it
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(pool.stream), generators_locked():
            self._graph.capture_begin(pool.handle, capture_error_mode="thread_local")
            try:
                self.outputs = call()
            except Exception as error:
                _abandon(self._graph, pool)
                raise CaptureFailed(_first_line(error)) from error
            try:
                self._graph.capture_end()
            except RuntimeError as error:
                _abandon(self._graph, pool)
                raise CaptureFailed(_first_line(error)) from error
        torch.cuda.synchronize()

    def replay(self) -> None:
        """Replays the graph on the current stream. Returns at once."""
        self._graph.replay()

    def release(self) -> None:
        """Gives the graph's memory back to the pool."""
        self.outputs = None
        self._graph.reset()


def _storages(outputs: Any) -> frozenset[int]:
    return frozenset(t.untyped_storage().data_ptr() for t in tensors_of(outputs) if t.numel())


def _abandon(graph: Any, pool: Pool) -> None:
    """Ends a capture that has failed, for the stream and for torch's allocator, which otherwise believes that one
    is under way for ever.
    """
    import torch

    with contextlib.suppress(RuntimeError):
        graph.capture_end()
        return
    device = torch.cuda.current_device()
    with contextlib.suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(device, pool.handle)
    generator = torch.cuda.default_generators[device]
    with contextlib.suppress(RuntimeError):  # its state believes that it is captured, too
        generator.graphsafe_set_state(generator.clone_state())
    with contextlib.suppress(RuntimeError):  # takes the error that the runtime still keeps
        torch.cuda.synchronize()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return clean_text(lines[0], 200)
