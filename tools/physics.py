"""The speed of light of a problem on a GPU, put beside a measured time; and the floor under which no honest time can lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.problem import Problem, ProblemError
from tools.results import Cheat, Failed, Failure, Fault, ProfileResult
from tools.roofline import Work, count, floor_ms, roofline

if TYPE_CHECKING:
    from tools.checks import Checks

FLOOR_SHARE = 0.9
"""Faster than this share of the floor is a fault: the clock, the counts and the peaks have their own errors."""

_known: dict[tuple[str, str], Work | None] = {}


def work_of(problem: Problem) -> Work | None:
    """Counted once a problem; None where the reference does not run on meta tensors."""
    key = (problem.name, problem.hash)
    if key not in _known:
        try:
            _known[key] = count(problem)
        except (ProblemError, RuntimeError, TypeError, ValueError):
            _known[key] = None
    return _known[key]


def light(problem: Problem, checks: Checks, result: ProfileResult, gpu: Any) -> ProfileResult:
    """Adds roofline and share of speed-of-light. gpu: tools.gpus.Gpu of the device. Raises Failed where the time is impossible."""
    work = work_of(problem)
    if work is None or gpu is None or result.candidate is None:
        return result
    line = roofline(work, gpu.bytes_per_second, gpu.rates)
    share = line.milliseconds / result.candidate.median if line.milliseconds else None
    floor = floor_ms(work, gpu.bytes_per_second, gpu.rates, gpu.l2_bytes or 0)
    if result.candidate.median < FLOOR_SHARE * floor:
        message = f"{result.candidate.median:.4g} ms a call, but moving {work.floor_bytes} bytes alone takes {floor:.4g} ms on this GPU: the time is impossible"
        raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.PHYSICS, message=message))
    return result.with_(roofline=line, speed_of_light=share, clocks=gpu.clocks)
