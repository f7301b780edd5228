"""Defines `torch.compile(model, backend="kernelwright")` (entry point `torch_dynamo_backends`).

A graph with a judged kernel in the database of the current folder runs this kernel. All other
graphs, and calls with gradients, go to Inductor. With `KERNELWRIGHT_RECORD=1` graphs without a
kernel are written as problems to `kernelwright_problems/` for `agent batch`; another value names
the folder.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.problem import Problem

log = logging.getLogger(__name__)
RUNS_DATABASE = Path(".kernelwright") / "runs.db"
"""The default database of `agent solve` and `agent batch`."""
RECORD_VARIABLE = "KERNELWRIGHT_RECORD"
RECORD_FOLDER = "kernelwright_problems"
Compiled = Callable[..., Any]


def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Compiled:
    """Returns a function for a graph: a kernel of the database, or the code compiled by Inductor."""
    from torch._inductor.compile_fx import compile_fx

    record = os.environ.get(RECORD_VARIABLE, "0")
    # Without either nothing is read or written, so that compiling starts as fast as Inductor's.
    if record != "0" or RUNS_DATABASE.exists():
        kernel = _kernel_for(graph, inputs, record)
        if kernel is not None:
            return kernel
    return cast("Compiled", compile_fx(graph, list(inputs), **options))


def _kernel_for(graph: torch.fx.GraphModule, inputs: Sequence[Any], record: str) -> Compiled | None:
    """Returns the graph's kernel; None without one. With recording on, writes the graph as a
    problem first.
    """
    from kernelwright.agent.compiling_graphs.graph_problem import graph_problem

    if _wants_gradients(inputs):
        return None
    problem = graph_problem(graph, inputs)
    if problem is None:
        return None
    source = _stored_kernel(problem, _card(inputs))
    if source is not None:
        log.info("%s runs a judged kernel", problem.name)
        return _loaded(problem, source, graph)
    if record != "0":
        _record(problem, Path(RECORD_FOLDER if record == "1" else record))
    return None


def _wants_gradients(inputs: Sequence[Any]) -> bool:
    import torch

    return torch.is_grad_enabled() and any(
        getattr(value, "requires_grad", False) for value in inputs
    )


def _card(inputs: Sequence[Any]) -> str:
    """Returns the name of the tensors' GPU; "cpu" for CPU tensors."""
    import torch

    device = next((value.device for value in inputs if value.device.type == "cuda"), None)
    return torch.cuda.get_device_name(device) if device is not None else "cpu"


def _stored_kernel(problem: Problem, card: str) -> str | None:
    """Returns the fastest correct kernel judged on this GPU; None without one.

    A kernel judged on a CPU runs in Triton's interpreter only, which is used by tests alone.
    """
    if not RUNS_DATABASE.exists() or not _has_problem(problem.hash):
        return None
    if card == "cpu" and os.environ.get("TRITON_INTERPRET", "0") == "0":
        return None
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.store.records import CandidateFilter, Order

    with open_store(str(RUNS_DATABASE), readonly=True) as store:
        criteria = CandidateFilter(problem_hash=problem.hash, correct=True, judged_on=card)
        for order in (Order.FASTEST, Order.OLDEST):
            for entry in store.candidates(criteria, order=order, limit=1):
                return store.turn(entry.candidate.id).source
    return None


def _has_problem(problem_hash: str) -> bool:
    """Returns whether the database has a problem. SQLite alone: the store's own imports take half a second."""
    connection = sqlite3.connect(f"file:{RUNS_DATABASE}?mode=ro", uri=True)
    try:
        row = connection.execute(
            "SELECT 1 FROM trajectory WHERE problem_hash = ? LIMIT 1", (problem_hash,)
        )
        return row.fetchone() is not None
    except sqlite3.OperationalError as error:
        log.warning("%s is not read: %s", RUNS_DATABASE, error)
        return False
    finally:
        connection.close()


def _loaded(problem: Problem, source: str, graph: torch.fx.GraphModule) -> Compiled:
    """Returns a function calling the kernel with contiguous tensors of the compiled shapes."""
    import importlib.util
    import tempfile

    # Triton reads a kernel's text from its file.
    path = Path(tempfile.mkdtemp(prefix="kernelwright_")) / problem.name
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew()

    def run(*values: torch.Tensor) -> Any:
        import torch

        if torch.is_autocast_enabled(values[0].device.type) or _wants_gradients(values):
            return graph(*values)
        outputs = model(*[value.contiguous() for value in values])
        return outputs if isinstance(outputs, tuple | list) else (outputs,)

    return run


def _record(problem: Problem, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / problem.name
    if not path.exists():
        path.write_text(problem.source, encoding="utf-8")
        log.info("%s is written for agent batch", path)
