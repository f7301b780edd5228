"""`rl data inductor`: torch.compile over references, and what Inductor writes for them.

On a GPU the whole of it runs. Without one Inductor's Triton code generation is options for CPU tensors
(`cpu_backend="triton"`) with a driver that
stands in: the code is written and caught, and what would launch it fails, which is expected. References are run as they
stand.
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
    """Rows of all references in `out`. Raises InputError where `out` is there, or Inductor wrote nothing at all."""
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

        found = list(rows())
    if not found:
        reasons = "; ".join(f"{n} x {reason}" for reason, n in skipped.items())
        raise InputError(
            f"Inductor wrote no Triton for any reference ({reasons}): use --device cuda:0 on a machine with a GPU"
        )
    return ImportResult(rows=write_rows(out, found), skipped=skipped)


def compile_with_inductor(problem: Problem, device: str) -> tuple[list[str], str]:
    """Every output_code that torch.compile writes for one reference, and why there is none. In a process of its own."""
    import torch
    import torch._inductor.config as settings
    from torch._inductor.graph import GraphLowering

    logging.getLogger("torch._inductor").setLevel(logging.CRITICAL)
    caught: list[str] = []
    GraphLowering.save_output_code = staticmethod(caught.append)
    settings.compile_threads, settings.fx_graph_cache, settings.triton.unique_kernel_names = (
        1,
        False,
        True,
    )
    if device == "cpu":
        settings.cpu_backend = "triton"
        _stand_in()
    torch._dynamo.reset()
    try:
        _run(problem, device)
    except (
        Exception
    ) as error:  # whatever a reference or Inductor raises: what was written before counts
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
    """A driver for a GPU that is not there: Inductor asks for one before it writes."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    driver.set_active(StandInDriver(GPUTarget("cuda", 90, 32)))


class StandInDriver:
    """The methods of a Triton driver that Inductor calls while it writes code."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """The target that code is written for, as Triton's drivers name it."""
        return self._target

    def get_current_device(self) -> int:
        """The number of the one device that is pretended, 0."""
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        """The number of the default stream, 0."""
        return 0

    def get_benchmarker(self) -> Any:
        """A function that runs nothing and says one millisecond for each quantile (the median and two by default)."""
        return lambda call, quantiles=None, **_: [1.0] * len(quantiles or (0.5,))
