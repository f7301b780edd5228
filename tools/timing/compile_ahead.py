"""Compiles a reference by torch.compile in advance, without a GPU, on tensors without data.

Inductor caches compiled code on disk, under a hash of the graph, its inputs' layouts and its
settings. Compiling the same module with data later finds the code in the cache, so that only a
trace and the launches remain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kernelwright.tools.problem import Problem


class _Compiled(Exception):
    """A graph has been compiled, and is not run."""


def _not_run(*_: object) -> None:
    raise _Compiled


@contextlib.contextmanager
def _nothing_runs() -> Iterator[None]:
    """A compiled graph is not called: its kernels would be given tensors that have no address."""
    from torch._inductor.output_code import CompiledFxGraph

    graphs: Any = CompiledFxGraph
    original_call = graphs.__call__
    graphs.__call__ = _not_run
    try:
        yield
    finally:
        graphs.__call__ = original_call


def compile_ahead(problem: Problem, device: str) -> str:
    """Compiles the reference's first graph as `torch.compile` will, into Inductor's cache on
    disk.

    Never raises: returns the reason of a failure in one line, or an empty string. A reference
    which reads its data cannot be compiled ahead and is compiled when timed.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernelwright.tools.references.reference import Reference

    try:
        with _nothing_runs(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            reference = Reference(problem, device)
            model = reference.model(0)
            inputs = reference.arguments(reference.inputs(0))
            with reference.settings():
                torch.compile(model)(*inputs)
    except _Compiled:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""
