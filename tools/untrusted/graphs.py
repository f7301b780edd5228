"""CUDA graphs where there is no GPU: what is asked for between capture and its end is kept, and done again at every replay.

As on a GPU nothing is launched and nothing is written during the capture; operators that make tensors run once, for their outputs are what a replay fills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[], Any]
_recording: list[Graph] = []
"""The graph that is being captured, if any."""


class Graph:
    """Stands in for torch.cuda.CUDAGraph."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.steps: list[Step] = []

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self.steps.clear()
        _recording[:] = [self]

    def capture_end(self) -> None:
        _recording.clear()

    def replay(self) -> None:
        for step in self.steps:
            step()

    def reset(self) -> None:
        self.steps.clear()

    def pool(self) -> tuple[int, int]:
        return (0, 0)


class Capture:
    """Stands in for the context manager torch.cuda.graph."""

    def __init__(self, cuda_graph: Graph, *_: Any, **__: Any) -> None:
        self.graph = cuda_graph

    def __enter__(self) -> None:
        self.graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self.graph.capture_end()


def install() -> None:
    """Once a process, before the candidate's text is read."""
    replaced = {"CUDAGraph": Graph, "graph": Capture, "graph_pool_handle": lambda: (0, 0)}
    for name, stand_in in replaced.items():
        setattr(torch.cuda, name, stand_in)


def capturing() -> bool:
    return bool(_recording)


def keep(step: Step) -> None:
    """For the replay: a launch, or an operator."""
    _recording[-1].steps.append(step)


def writes(func: Any) -> bool:
    """Whether an operator writes into what it is given, and so waits for the replay."""
    return bool(func._schema.is_mutable)


def written(args: Any, kwargs: dict[str, Any]) -> Any:
    """What such an operator gives back."""
    return kwargs["out"] if "out" in kwargs else args[0]


def keep_filling(made: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Every replay fills again what an operator made during the capture."""
    if isinstance(made, torch.Tensor) and not func.is_view:
        keep(lambda: made.copy_(func(*args, **kwargs)))
