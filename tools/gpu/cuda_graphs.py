"""Captures a call as a CUDA graph, whose replays exclude the host code's time. For candidate and
reference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kernelwright.tools.faults import clean_text
from kernelwright.tools.gpu.persistent_memory import give_back_unused
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.numerics.seeds import generators_locked


class CaptureFailed(Exception):
    """Raised if a call cannot be captured: it synchronises, copies between host and device, or
    allocates outside of torch.

    The message holds the first line of the driver's or torch's error.
    """


class Pool:
    """Memory shared by several graphs that are replayed in turn.

    The outputs of each graph are separate, since they live as long as the graph.
    """

    def __init__(self) -> None:
        import torch

        self.handle = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream()
        """Stream of all captures; replays use the current stream."""


class Captured:
    """A call in a graph. Its outputs and other results are held until `release`."""

    def __init__(self, call: Callable[[], Any], pool: Pool, *, first: bool = True) -> None:
        """Runs the call once, for the effects of first calls, then captures it. Raises
        CaptureFailed, and errors of the first run.

        first: False if the same steps have run on the pool's stream, or allocate nothing for it.
        """
        import torch

        torch.cuda.synchronize()
        self.lasting = frozenset[int]()
        """Addresses of the memory of the first run's outputs.

        Outputs of the graph at such an address were not allocated by the graph.
        """
        if first:
            with torch.cuda.stream(pool.stream):
                self.lasting = _storages(call())
            torch.cuda.synchronize()
            give_back_unused()  # of that call: a capture has memory of its own, and frees none for it
        self._graph = torch.cuda.CUDAGraph()
        # Without the lock the judge drew numbers on the same GPU during a capture, and correct problems failed.
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
        """Replays the graph on the current stream, asynchronously."""
        self._graph.replay()

    def release(self) -> None:
        """Returns the graph's memory to the pool."""
        self.outputs = None
        self._graph.reset()


def _storages(outputs: object) -> frozenset[int]:
    return frozenset(t.untyped_storage().data_ptr() for t in tensors_of(outputs) if t.numel())


def _abandon(graph: Any, pool: Pool) -> None:
    """Ends a failed capture, for the stream and for torch's allocator, which would otherwise stay
    in capture mode."""
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
