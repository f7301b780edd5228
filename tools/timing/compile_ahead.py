"""torch.compile's work on a reference before anybody waits for it on a GPU: on tensors without data.

Inductor keeps what it has compiled on disk under a hash of the graph, the forms of its inputs and its settings. The
same module compiled with data afterwards finds it there, and what is left are a trace and the launches.
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
    own = graphs.__call__
    graphs.__call__ = _not_run
    try:
        yield
    finally:
        graphs.__call__ = own


def compile_ahead(problem: Problem, device: str) -> str:
    """Compiles the reference's first graph as `torch.compile` will, into Inductor's cache on disk.

    Never raises: returns what was in the way, one line, or nothing. What cannot be compiled ahead (a reference that
    looks at its data) is compiled when it is timed.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernelwright.tools.references.reference import Reference

    try:
        with _nothing_runs(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            reference = Reference(problem, device)
            model, inputs = reference.model(0), reference.arguments(reference.inputs(0))
            with reference.settings():
                torch.compile(model)(*inputs)
    except _Compiled:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""
