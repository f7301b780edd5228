"""How fast it is: the candidate beside eager and torch.compile, and beside the speed of light."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.text import Text

from agent.show.words import GOOD, QUIET, WARN, counted, facts, interval, milliseconds, percent, rate, size, times
from tools.results import Clocks, ProfileResult, Roofline

IDLE = "gpu_idle"


def speed_view(profile: ProfileResult) -> RenderableType:
    """Time, speedups, speed of light, where the GPU time went, the clocks it was measured at, hardware counters."""
    return facts(
        [
            ("time", interval(profile.candidate) if profile.candidate else ""),
            ("speedup", _speedup(profile)),
            ("speed of light", _speed_of_light(profile)),
            ("GPU kernels", _gpu_kernels(profile.gpu_kernels)),
            ("peak memory", size(profile.peak_memory) if profile.peak_memory is not None else ""),
            ("clocks", _clocks(profile.clocks) if profile.clocks else ""),
            ("ncu", Text(_counters(profile.ncu))),
            ("note", Text("\n".join(profile.notes), style=QUIET) if profile.notes else ""),
        ]
    )


def _speedup(profile: ProfileResult) -> Text | str:
    if profile.speedup is None:
        return ""
    style = GOOD if profile.speedup >= 1 else WARN
    eager = f" over eager ({milliseconds(profile.eager.median)})" if profile.eager else " over eager"
    bound = f", at least {times(profile.speedup_low)}" if profile.speedup_low is not None else ""
    parts: list[str | tuple[str, str]] = [(times(profile.speedup), style), eager + bound]
    if profile.speedup_compiled is not None:
        compiled = f" ({milliseconds(profile.compiled.median)})" if profile.compiled else ""
        style = GOOD if profile.speedup_compiled >= 1 else WARN
        parts += ["; ", (times(profile.speedup_compiled), style), f" over torch.compile{compiled}"]
    return Text.assemble(*parts)


def _speed_of_light(profile: ProfileResult) -> str:
    if profile.roofline is None:
        return percent(profile.speed_of_light) if profile.speed_of_light is not None else ""
    return f"{percent(profile.speed_of_light)} of {roofline_text(profile.roofline)}"


def roofline_text(roofline: Roofline) -> str:
    """`0.107 ms (memory bound: 512 MiB at 4.8 TB/s)`."""
    if roofline.bound == "compute":
        count = "-" if roofline.operations is None else f"{roofline.operations:.3g}"
        cost = f"{count} operations at {rate(roofline.operations_per_second, 'FLOP')} {roofline.rate_name}".rstrip()
    else:
        cost = f"{size(roofline.bytes)} at {rate(roofline.bytes_per_second, 'B')}"
    return f"{milliseconds(roofline.milliseconds)} ({roofline.bound or 'memory'} bound: {cost})"


def _gpu_kernels(kernels: Mapping[str, float], most: int = 4) -> str:
    ordered = sorted(kernels.items(), key=lambda item: -item[1])
    named = [f"{name} {milliseconds(ms)}" for name, ms in ordered[:most]]
    return ", ".join(named + ([f"and {len(ordered) - most} more"] if len(ordered) > most else []))


def _clocks(clocks: Clocks) -> Text:
    known = [
        f"SM {clocks.sm_mhz} MHz" if clocks.sm_mhz is not None else "",
        f"memory {clocks.memory_mhz} MHz" if clocks.memory_mhz is not None else "",
        f"{clocks.temperature} C" if clocks.temperature is not None else "",
        f"{clocks.power_watts:.0f} W" if clocks.power_watts is not None else "",
    ]
    text = Text(", ".join(part for part in known if part))
    if slowed := [reason for reason in clocks.throttle if reason != IDLE]:
        text.append(f"; throttled: {counted(dict.fromkeys(slowed, 1))}", style=WARN)
    return text


def _counters(ncu: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in ncu.items())
