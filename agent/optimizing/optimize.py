"""Optimizes a model: cuts it into regions, solves each, and keeps the kernels that are right and,
on a GPU, faster than eager PyTorch and torch.compile.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.agent.exporting.package import require_new_folder
from kernelwright.agent.exporting.packaged_kernel import PackagedKernel, packaged_turn
from kernelwright.agent.loop.stopping import StopReason
from kernelwright.agent.optimizing.capture import ModuleCall, captured_calls
from kernelwright.agent.optimizing.checking import (
    MAX_INTERPRETED_BYTES,
    WholeCheck,
    compare_models,
    interpreted,
)
from kernelwright.agent.optimizing.choosing import regions_below
from kernelwright.agent.optimizing.model_package import (
    load_optimized,
    load_package,
    write_model_package,
)
from kernelwright.agent.optimizing.region import Region
from kernelwright.agent.optimizing.result import OptimizationResult, RegionResult, launches_of
from kernelwright.agent.optimizing.timing import Times, time_models, time_region
from kernelwright.agent.runtime.databases import open_store
from kernelwright.errors import InputError
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    import torch

    from kernelwright.agent.solve.solving import Solved
    from kernelwright.tools.problem import Problem

Solve = Callable[["Problem", Path, float], "Solved"]
"""Solves a problem within this number of seconds, and writes the kernel's file."""
MIN_SECONDS = 5.0
"""Least seconds of the budget for which another region is begun."""


@dataclass
class Optimization:
    """State of a model's optimization: regions, results, and the kernels kept so far."""

    model: torch.nn.Module
    inputs: Any
    name: str
    solve: Solve
    database: str | None
    deadline: float
    """Time of the monotonic clock after which no region is begun."""
    say: Callable[[str], None]
    on_gpu: bool
    calls: dict[str, ModuleCall] = field(default_factory=dict)
    kernels: list[PackagedKernel] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    """The regions of `kernels`, in the same order."""
    rows: list[RegionResult] = field(default_factory=list)

    def run(self) -> None:
        """Solves regions until none is left or the budget is spent."""
        self.say("running the model")
        self.calls = captured_calls(self.model, self.inputs)
        queue = regions_below(self.calls, [""], self.say)
        total = sum(region.bytes_moved * region.calls for region in queue) or 1
        while queue:
            region = queue.pop(0)
            row = self._row(region, total)
            seconds = self.deadline - time.monotonic()
            if seconds < MIN_SECONDS:
                self.rows.append(row.with_(reason="not tried: the budget is spent"))
                continue
            number = len(self.rows) + 1
            self.say(
                f"region {number} of {number + len(queue)}: {region.name}, {len(region.paths)} modules; "
                f"{len(self.kernels)} kernels so far, {seconds:.0f} s of the budget left"
            )
            row = self._tried(region, row, seconds)
            self.rows.append(row)
            if not row.kept:
                queue += self._smaller(region)

    def _row(self, region: Region, total: int) -> RegionResult:
        return RegionResult(
            name=region.name,
            modules=region.paths,
            calls=region.calls,
            launches_before=region.launches,
            bytes_moved=region.bytes_moved,
            share=region.bytes_moved * region.calls / total,
        )

    def _tried(self, region: Region, row: RegionResult, seconds: float) -> RegionResult:
        """Solves a region, times the kernel on a GPU, and keeps a winning kernel."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                solved = self.solve(region.problem, Path(folder) / "kernel_triton.py", seconds)
            except (InputError, ValueError, InfrastructureError) as error:
                return row.with_(reason=_first_line(error))
        if solved.stop_reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        row = row.with_(trajectory_id=solved.trajectory_id)
        if not solved.correct or solved.candidate_id is None:
            return row.with_(reason=_reason(solved))
        try:
            with open_store(self.database, readonly=True) as store:
                kernel = packaged_turn(store, store.turn(solved.candidate_id))
        except InputError as error:
            return row.with_(reason=_first_line(error))
        kernel = kernel.model_copy(update={"name": self._distinct_name(region.name)})
        region = region.with_(name=kernel.name)
        times = self._times(region, kernel)
        row = row.with_(launches_after=launches_of(kernel.report), times=times, name=kernel.name)
        if self.on_gpu and not times.wins:
            return row.with_(reason="right, and not faster than eager PyTorch and torch.compile")
        self.kernels.append(kernel)
        self.regions.append(region)
        return row.with_(kept=True)

    def _distinct_name(self, name: str) -> str:
        names = {kernel.name for kernel in self.kernels}
        number, distinct = 2, name
        while distinct in names:
            distinct, number = f"{name}_{number}", number + 1
        return distinct

    def _times(self, region: Region, kernel: PackagedKernel) -> Times:
        if not self.on_gpu:
            return Times()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "region"
            write_model_package(path, f"{region.name}_region", [kernel], [region])
            [patched] = load_package(path).regions.REGIONS
            return time_region(self.calls[region.paths[0]], patched.patch)

    def _smaller(self, region: Region) -> list[Region]:
        """Returns the untried regions inside a region without a kernel."""
        tried_paths = {path for row in self.rows for path in row.modules}
        inside = regions_below(self.calls, region.paths, self.say)
        return [r for r in inside if not tried_paths & set(r.paths)]


def optimize_model(
    model: torch.nn.Module,
    inputs: Any,
    solve: Solve,
    *,
    name: str,
    folder: Path,
    database: str | None = None,
    seconds: float = float("inf"),
    gradients: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[torch.nn.Module, OptimizationResult]:
    """Returns a copy of the model with kernels, and the result of each region.

    The copy has the same state_dict. Its package is written to `folder`. Raises InputError if the
    folder exists or the model is in training mode.
    """
    start = time.monotonic()
    require_new_folder(folder)
    if model.training:
        raise InputError("the model is in training mode: call model.eval() first")
    on_gpu = any(tensor.is_cuda for tensor in (*model.parameters(), *_leaves(inputs)))
    state = Optimization(
        model=model,
        inputs=inputs,
        name=name,
        solve=solve,
        database=database,
        deadline=start + seconds,
        say=say,
        on_gpu=on_gpu,
    )
    state.run()
    optimized, check, times = _assembled(state, folder, gradients)
    if check.done and not check.correct:
        raise InfrastructureError(
            f"the whole model differs with its kernels by {check.largest_difference}: "
            f"each region was judged right, so please file this; the package is in {folder}"
        )
    result = OptimizationResult(
        model=name,
        device=_device_name(on_gpu),
        regions=_with_time_shares(state.rows, times),
        check=check,
        times=times,
        package=str(folder) if state.kernels else None,
        database=database or "",
        seconds=time.monotonic() - start,
        notes=() if on_gpu else ("nothing was timed: there is no GPU for this model",),
    )
    return optimized, result


def _assembled(
    state: Optimization, folder: Path, gradients: bool
) -> tuple[torch.nn.Module, WholeCheck, Times]:
    """Writes the package, loads the package into a copy of the model, checks and times the whole."""
    optimized = copy.deepcopy(state.model)
    if not state.kernels:
        return optimized, WholeCheck(done=False, note="no region has a kernel"), Times()
    package = f"{state.name}_optimized"
    write_model_package(folder, package, state.kernels, state.regions)
    load_optimized(optimized, folder)
    state.say("checking the whole model")
    if state.on_gpu:
        check = compare_models(state.model, optimized, state.inputs, gradients)
        state.say("timing the whole model")
        return optimized, check, time_models(state.model, optimized, state.inputs)
    return optimized, _checked_by_interpreter(state, gradients), Times()


def _checked_by_interpreter(state: Optimization, gradients: bool) -> WholeCheck:
    """Compares the models on a CPU, with the kernels in Triton's interpreter."""
    moved = sum(region.bytes_moved * region.calls for region in state.regions)
    if moved > MAX_INTERPRETED_BYTES:
        return WholeCheck(done=False, note="too large for Triton's interpreter: run it on a GPU")
    with tempfile.TemporaryDirectory() as temporary:
        # A package of another name: that of the result stays uninterpreted.
        folder = Path(temporary) / "interpreted"
        write_model_package(folder, f"{state.name}_interpreted", state.kernels, state.regions)
        with interpreted(folder):
            copied = load_optimized(copy.deepcopy(state.model), folder)
            return compare_models(state.model, copied, state.inputs, gradients)


def _with_time_shares(rows: Sequence[RegionResult], whole: Times) -> tuple[RegionResult, ...]:
    shared: list[RegionResult] = []
    for row in rows:
        eager = row.times.eager
        share = row.calls * eager / whole.eager if eager and whole.eager else row.share
        shared.append(row.with_(share=share))
    return tuple(shared)


def _device_name(on_gpu: bool) -> str:
    import torch

    return torch.cuda.get_device_name() if on_gpu else "cpu"


def _leaves(inputs: Any) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]


def _reason(solved: Solved) -> str:
    failure = solved.report.explanation if solved.report is not None else ""
    return f"no kernel: {_first_line(failure or solved.message or solved.stop_reason.value)}"


def _first_line(text: object) -> str:
    return " ".join(str(text).split())[:200]
