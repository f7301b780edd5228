"""The speed of light of a problem on a GPU, put beside a measured time; and the floor under which
no honest time can lie.
"""

from __future__ import annotations

from kernelwright.tools.hardware.gpus import Gpu
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Cheat, Failed, Failure, Fault, ProfileResult
from kernelwright.tools.timing.roofline import (
    Structure,
    Work,
    count_work,
    floor_ms,
    roofline,
    structure_of,
)

MIN_SHARE_OF_FLOOR = 0.9
"""Faster than this share of the floor is a fault: the clock, the counts and the peaks have their own errors."""

_work_by_problem: dict[tuple[str, str], Work | None] = {}


def work_of(problem: Problem) -> Work | None:
    """Counts the work of a problem once, without a GPU; None if the reference cannot run on meta
    tensors.

    Tensors without influence at small sizes do not count as bytes to move. The floor does not
    rely on this: an element that matters at small sizes may never be read by a clever kernel at
    large sizes.
    """
    key = (problem.name, problem.hash)
    if key not in _work_by_problem:
        try:
            work = count_work(problem)
            _work_by_problem[key] = (
                work.with_(bytes=count_work(problem, Structure(unused=unused)).bytes, unused=unused)
                if (unused := _unused_tensors(problem))
                else work
            )
        except (ProblemError, RuntimeError, TypeError, ValueError):
            _work_by_problem[key] = None
    return _work_by_problem[key]


def _unused_tensors(problem: Problem) -> tuple[str, ...]:
    """Returns inputs and weights without influence on the output, found at small sizes on the
    CPU; empty if no small size fits.
    """
    from kernelwright.tools.references.reference import Reference
    from kernelwright.tools.references.small_sizes import shrink

    small = shrink(problem)
    if not small.fits or small.flat:
        return ()
    return structure_of(Reference(problem.with_sizes(small.sizes), "cpu")).unused


def add_speed_of_light(problem: Problem, result: ProfileResult, gpu: Gpu | None) -> ProfileResult:
    """Adds the roofline and the share of the speed of light. Raises Failed for an impossible
    time.

    gpu: tools.hardware.gpus.Gpu of the device.
    """
    work = work_of(problem)
    if work is None or gpu is None or result.candidate is None:
        return result
    line = roofline(work, gpu.bytes_per_second, gpu.rates)
    share = line.milliseconds / result.candidate.median if line.milliseconds else None
    floor = floor_ms(work, gpu.bytes_per_second, gpu.rates, gpu.l2_bytes or 0)
    if result.candidate.median < MIN_SHARE_OF_FLOOR * floor:
        message = (
            f"{result.candidate.median:.4g} ms a call, but moving {work.floor_bytes} bytes alone takes "
            f"{floor:.4g} ms on this GPU: the time is "
            "impossible"
        )
        raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.TOO_FAST, message=message))
    return result.with_(roofline=line, speed_of_light=share, clocks=gpu.clocks)
