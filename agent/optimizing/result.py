"""The result of optimizing a model, as values."""

from __future__ import annotations

from kernelwright.agent.optimizing.checking import WholeCheck
from kernelwright.agent.optimizing.timing import Times
from kernelwright.tools.report import Report, Value


class RegionResult(Value):
    """Result of a region: its kernel, times and outcome."""

    name: str
    modules: tuple[str, ...]
    """Paths of the region's modules."""
    calls: int
    launches_before: int
    """Kernels of a call in eager PyTorch, at least."""
    launches_after: int | None = None
    """Kernels and computing operators of a call with the kernel; None without a kernel."""
    bytes_moved: int
    """Bytes moved by eager PyTorch in a call."""
    share: float = 0.0
    """Share of the time of the model, or without a GPU of the bytes of all regions; 0 to 1."""
    kept: bool = False
    reason: str = ""
    """Reason why the region stays unchanged; empty for a kept kernel."""
    times: Times = Times()
    trajectory_id: int | None = None


class OptimizationResult(Value):
    """Result of `agent optimize`."""

    model: str
    device: str
    regions: tuple[RegionResult, ...]
    check: WholeCheck
    times: Times = Times()
    package: str | None = None
    """Folder of the package; None without a kernel."""
    database: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """Number of regions with a kernel."""
        return sum(region.kept for region in self.regions)


def launches_of(report: Report) -> int | None:
    """Returns the kernels and computing operators of a candidate's call; None if unknown."""
    censuses = [report.own_work.census] if report.own_work is not None else []
    censuses += [compiled.census for compiled in report.compiles]
    for census in censuses:
        count = sum(census.launches.values()) + sum(census.compute_ops.values())
        if count:
            return count
    return None
