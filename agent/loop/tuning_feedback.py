"""Describes the result of TUNE to a policy: the best configuration, the limiting resource, and
the next launches by time.
"""

from __future__ import annotations

from kernelwright.tools.report import KernelResources, LaunchTime, Report, clean_text

MIN_SHARE_OF_PEAK_WHEN_BOUND = 0.8
"""Share of the speed of light from which on a kernel is bound by the resource that the roofline
names.
"""
LOW_OCCUPANCY_SHARE = 0.25
"""Occupancy below which the feedback names the limiting resource, 0 to 1."""
MAX_SHORT_KERNEL_MS = 0.01
"""Milliseconds below which a call is mostly launch overhead."""
MAX_OTHER_LAUNCHES = 2
"""Maximum number of launches listed beside the longest."""


def tuning_lines(report: Report) -> list[str]:
    """Writes the lines on tuning for a report with a profile; none for a report without a
    profile.
    """
    profile = report.profile
    if profile is None or profile.candidate is None:
        return []
    kernels = {kernel.name: kernel for kernel in (report.compile.kernels if report.compile else ())}
    launches = sorted(profile.launches, key=lambda launch: launch.ms or 0.0, reverse=True)
    lines = ["Its numbers have been tuned on this GPU: change the code, not the numbers."]
    if launches and launches[0].kernel in kernels:
        lines.append(
            f"The best configuration of {_named(launches[0])} is {_configuration(kernels[launches[0].kernel])}."
        )
    lines.append(f"It is bound by {limiting_resource(report)}.")
    roofline = profile.roofline
    if profile.speed_of_light is not None and roofline is not None and roofline.milliseconds:
        gap = profile.candidate.median - roofline.milliseconds
        lines.append(f"The speed of light is {roofline.milliseconds:.4g} ms, {gap:.4g} ms less.")
    following = [launch for launch in launches[1 : 1 + MAX_OTHER_LAUNCHES] if launch.ms]
    if following:
        next_launches = ", then ".join(
            f"{_named(launch)} ({_share(launch)})" for launch in following
        )
        lines.append(f"Next by time: {next_launches}.")
    return lines


def limiting_resource(report: Report) -> str:
    """Names the limiting resource in words: bytes, operations, occupancy or latency."""
    profile = report.profile
    roofline = profile.roofline if profile else None
    if profile is None or roofline is None or profile.candidate is None:
        return "what is not known: there is no roofline for it"
    bytes_or_operations = (
        "bytes: memory traffic" if roofline.bound == "memory" else "operations: arithmetic"
    )
    if (profile.speed_of_light or 0.0) >= MIN_SHARE_OF_PEAK_WHEN_BOUND:
        return bytes_or_operations
    longest = _longest(report)
    if profile.candidate.median < MAX_SHORT_KERNEL_MS:
        return "latency: the call is as short as a launch"
    occupancy = longest.occupancy if longest is not None else None
    if longest is not None and occupancy is not None and occupancy < LOW_OCCUPANCY_SHARE:
        limit = longest.occupancy_limit
        limited_by = f", held by {clean_text(limit, 40)}" if limit else ""
        return f"occupancy: {occupancy:.0%} of the multiprocessor{limited_by}"
    return f"latency, before {bytes_or_operations.partition(':')[0]}: neither is used up"


def _longest(report: Report) -> KernelResources | None:
    profile = report.profile
    if profile is None or report.compile is None or not profile.launches:
        return None
    name = max(profile.launches, key=lambda launch: launch.ms or 0.0).kernel
    return next((kernel for kernel in report.compile.kernels if kernel.name == name), None)


def _named(launch: LaunchTime) -> str:
    return clean_text(launch.kernel, 80)


def _configuration(kernel: KernelResources) -> str:
    numbers = []
    for name, value in kernel.config.items():
        if name.isupper() or name in ("num_warps", "num_stages"):
            numbers.append(f"{name} {value}")
    return clean_text(", ".join(numbers), 300) or "without a number of its own"


def _share(launch: LaunchTime) -> str:
    share = f", {launch.share:.0%} of the call" if launch.share is not None else ""
    return f"{launch.ms:.4g} ms{share}"
