"""`rl data inductor`: runs torch.compile on references and collects Inductor's output.

Everything runs on a GPU if there is one. Without a GPU, Inductor's Triton code generation is
enabled for CPU tensors (`cpu_backend="triton"`) with a stand-in driver: the code is generated and
captured, and its launch fails as expected. References are executed unsandboxed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.formats import ImportResult, count_skipped
from kernelwright.rl.data.importing.inductor import INDUCTOR_LICENCE, rows_of
from kernelwright.rl.data.rows import Row, write_rows
from kernelwright.rl.workers.worker_pool import process_pool
from kernelwright.tools.problem import Problem


def collect_kernels(
    problems: Sequence[Problem], out: Path, device: str, say: Callable[[str], None]
) -> ImportResult:
    """Writes the rows of all references to `out`. Raises InputError if `out` exists, or Inductor
    wrote nothing.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already: give a new folder with --out")
    skipped: dict[str, int] = {}
    with process_pool(1) as pool:

        def rows() -> Iterator[Row]:
            for number, problem in enumerate(problems, 1):
                say(f"{number} of {len(problems)}: {problem.name}")
                codes, trouble = pool.submit(compile_with_inductor, problem, device).result()
                if trouble:
                    count_skipped(skipped, trouble)
                for code in codes:
                    facts = {
                        "problem": problem.name,
                        "reference": problem.source,
                        "family": problem.family,
                    }
                    yield from rows_of(code, "", problem.name, INDUCTOR_LICENCE, skipped, **facts)

        kernel_rows = list(rows())
    if not kernel_rows:
        reasons = "; ".join(f"{n} x {reason}" for reason, n in skipped.items())
        raise InputError(
            f"Inductor wrote no Triton for any reference ({reasons}): use --device cuda:0 on a machine with a GPU"
        )
    return ImportResult(rows=write_rows(out, kernel_rows), skipped=skipped)


def compile_with_inductor(problem: Problem, device: str) -> tuple[list[str], str]:
    """Returns every output_code written by torch.compile for a reference, and the reason if there
    is none. Runs in its own process.
    """
    import torch
    import torch._inductor.config as settings
    from torch._inductor.graph import GraphLowering

    logging.getLogger("torch._inductor").setLevel(logging.CRITICAL)
    caught: list[str] = []
    GraphLowering.save_output_code = staticmethod(caught.append)
    settings.compile_threads = 1
    settings.fx_graph_cache = False
    settings.triton.unique_kernel_names = True
    if device == "cpu":
        settings.cpu_backend = "triton"
        _stand_in()
    torch._dynamo.reset()
    try:
        _run(problem, device)
    except Exception as error:
        # A reference or Inductor may raise anything; code captured before the error counts.
        if not caught:
            return [], f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    return caught, ""


def _run(problem: Problem, device: str) -> None:
    import torch

    from kernelwright.tools.references.reference import Reference

    small = problem.with_sizes(problem.cpu_sizes) if device == "cpu" else problem
    reference = Reference(small, device)
    model, inputs = reference.model(0), reference.arguments(reference.inputs(0))
    with torch.no_grad():
        torch.compile(model)(*inputs)


def _stand_in() -> None:
    """Activates the driver of an absent GPU: Inductor needs a driver to write code."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    driver.set_active(StandInDriver(GPUTarget("cuda", 90, 32)))


class StandInDriver:
    """The methods of a Triton driver called by Inductor during code generation."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """Returns the target of the generated code, as Triton's drivers name it."""
        return self._target

    def get_current_device(self) -> int:
        """Returns 0, the number of the pretended device."""
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        """Returns 0, the number of the default stream."""
        return 0

    def get_benchmarker(self) -> Any:
        """Returns a function that runs nothing and reports one millisecond for each quantile (the
        median and two by default).
        """
        return lambda call, quantiles=None, **_: [1.0] * len(quantiles or (0.5,))
