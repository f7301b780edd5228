"""Describes the result of TUNE to a policy: the configuration that won, the resource that bounds it, and the launches
to look at next.
"""

from __future__ import annotations

from kernelwright.tools.report import KernelResources, LaunchTime, Report, clean_text

MIN_SHARE_OF_PEAK_WHEN_BOUND = 0.8
"""The share of the speed of light from which on a kernel is bound by the resource that the roofline names."""
LOW_OCCUPANCY_SHARE = 0.25
MAX_SHORT_KERNEL_MS = 0.01
"""A call that takes less is mostly launching."""
MAX_OTHER_LAUNCHES = 2
"""Launches that are named beside the longest."""


def tuning_lines(report: Report) -> list[str]:
    """Writes the lines on tuning for a report with a profile; none for one without."""
    profile = report.profile
    if profile is None or profile.candidate is None:
        return []
    kernels = {kernel.name: kernel for kernel in (report.compile.kernels if report.compile else ())}
    launches = sorted(profile.launches, key=lambda one: one.ms or 0.0, reverse=True)
    lines = ["Its numbers have been tuned on this GPU: change the code, not the numbers."]
    if launches and launches[0].kernel in kernels:
        lines.append(
            f"The best configuration of {_named(launches[0])} is {_configuration(kernels[launches[0].kernel])}."
        )
    lines.append(f"It is bound by {limiting_resource(report)}.")
    if (
        profile.speed_of_light is not None
        and profile.roofline is not None
        and profile.roofline.milliseconds
    ):
        gap = profile.candidate.median - profile.roofline.milliseconds
        lines.append(
            f"The speed of light is {profile.roofline.milliseconds:.4g} ms, {gap:.4g} ms less."
        )
    following = [one for one in launches[1 : 1 + MAX_OTHER_LAUNCHES] if one.ms]
    if following:
        told = ", then ".join(f"{_named(one)} ({_share(one)})" for one in following)
        lines.append(f"Next by time: {told}.")
    return lines


def limiting_resource(report: Report) -> str:
    """bytes, operations, occupancy or latency, in words; what the measurement allows to say."""
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
    if (
        longest is not None
        and longest.occupancy is not None
        and longest.occupancy < LOW_OCCUPANCY_SHARE
    ):
        held = (
            f", held by {clean_text(longest.occupancy_limit, 40)}"
            if longest.occupancy_limit
            else ""
        )
        return f"occupancy: {longest.occupancy:.0%} of the multiprocessor{held}"
    return f"latency, before {bytes_or_operations.partition(':')[0]}: neither is used up"


def _longest(report: Report) -> KernelResources | None:
    profile = report.profile
    if profile is None or report.compile is None or not profile.launches:
        return None
    name = max(profile.launches, key=lambda one: one.ms or 0.0).kernel
    return next((kernel for kernel in report.compile.kernels if kernel.name == name), None)


def _named(launch: LaunchTime) -> str:
    return clean_text(launch.kernel, 80)


def _configuration(kernel: KernelResources) -> str:
    shown = [
        (n, v) for n, v in kernel.config.items() if n.isupper() or n in ("num_warps", "num_stages")
    ]
    return (
        clean_text(", ".join(f"{name} {value}" for name, value in shown), 300)
        or "without a number of its own"
    )


def _share(launch: LaunchTime) -> str:
    share = f", {launch.share:.0%} of the call" if launch.share is not None else ""
    return f"{launch.ms:.4g} ms{share}"
