"""Suggests how to make a correct kernel faster: one suggestion at a time, the most promising
first.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.tools.report import KernelResources, Report

SLOW_SHARE_OF_SPEED_OF_LIGHT = 0.8
"""Share of the speed of light above which little is left to gain."""


def suggestion(report: Report, tried: int = 0) -> str:
    """Returns the next suggestion for the measured kernel.

    tried: number of refinements before this turn; after the last suggestion the first is
    repeated.
    """
    suggestions = list(dict.fromkeys(_fitting(report)))
    return f"Try this: {suggestions[tried % len(suggestions)]}" if suggestions else ""


def _fitting(report: Report) -> Iterator[str]:
    kernels = report.compile.kernels if report.compile else ()
    for kernel in kernels:
        yield from _of_a_kernel(kernel)
    profile = report.profile
    launches = sum(kernel.launches for kernel in kernels)
    if launches > 1:
        yield f"there are {launches} launches a call: fuse them, so that nothing between them goes through memory."
    roofline = profile.roofline if profile else None
    near = profile is not None and (profile.speed_of_light or 0.0) >= SLOW_SHARE_OF_SPEED_OF_LIGHT
    if roofline is not None and roofline.bound == "memory" and not near:
        yield "it is bound by memory: load wide and contiguous, read each input once, and give each program more work."
    if roofline is not None and roofline.bound == "compute" and not near:
        yield "it is bound by arithmetic: larger tiles, tl.dot on the tensor cores, more stages of prefetch."
    yield "tune num_warps and the block size with @triton.autotune over a few configurations keyed by the shapes."
    yield "let each program handle several rows or blocks, so that fewer programs start and more loads are in flight."


def _of_a_kernel(kernel: KernelResources) -> Iterator[str]:
    if kernel.spills:
        yield f"{kernel.name} spills {kernel.spills} bytes a thread: use a smaller block or more warps."
    if kernel.vector_bits is not None and kernel.vector_bits < 128:
        yield (
            f"{kernel.name} loads {kernel.vector_bits} bits at a time: make offsets contiguous, so that loads "
            "of 128 bits can be "
            "used."
        )
    if kernel.occupancy is not None and kernel.occupancy < 0.25:
        limit = f" ({kernel.occupancy_limit})" if kernel.occupancy_limit else ""
        yield (
            f"{kernel.name} fills {kernel.occupancy:.0%} of the multiprocessor{limit}: use smaller tiles or "
            "fewer stages."
        )
