"""Renders the measurements of a candidate: the compiler's resources for each target, its speed
and the speed of light.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.verdicts.failure import fault_name
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    AdaptiveTable,
    facts_table,
    format_bytes,
    format_counts,
    format_interval,
    format_milliseconds,
    format_percent,
    format_rate,
    format_ratio,
    quoted_text,
)
from kernelwright.tools.report import (
    Clocks,
    CompileResult,
    KernelResources,
    LaunchTime,
    Neighbour,
    ProfileResult,
    Roofline,
)
from kernelwright.tools.timing.card_estimates import LAUNCH_BOUND, CardEstimate

MAX_TABLE_ROWS = 12
"""Maximum number of displayed specialisations per target: an autotuned kernel may have a hundred.
"""


def kernels_view(result: CompileResult) -> RenderableType | None:
    """Renders registers, spills, shared memory, occupancy and tensor-core use of every
    specialisation; None if nothing was compiled.
    """
    if not result.kernels:
        return None
    headings = (
        "kernel",
        "config",
        "registers",
        "spills",
        "shared",
        "occupancy",
        "tensor cores",
        "loads",
    )
    rows = [_row(kernel) for kernel in result.kernels[:MAX_TABLE_ROWS]]
    table = AdaptiveTable(headings, rows, numeric=headings[2:5], wrapped=headings[:2])
    omitted = len(result.kernels) - MAX_TABLE_ROWS
    if omitted <= 0:
        return table
    return Group(table, Text(f"and {omitted} more specialisations (--json lists all)", style=QUIET))


def _row(kernel: KernelResources) -> list[Text]:
    return [
        quoted_text(kernel.name),
        quoted_text(config_text(kernel), QUIET),
        _number(kernel.registers),
        Text(_number(kernel.spills).plain, style=WARN if kernel.spills else ""),
        Text(format_bytes(kernel.shared)),
        Text(occupancy_text(kernel)),
        Text(tensor_core_text(kernel)),
        Text(f"{kernel.vector_bits} bit" if kernel.vector_bits else "-"),
    ]


def config_text(kernel: KernelResources) -> str:
    """Formats `BLOCK=1024 num_warps=4`; options that the launch omits are omitted here."""
    return " ".join(f"{name}={value}" for name, value in kernel.config.items())


def occupancy_text(kernel: KernelResources) -> str:
    """Formats the share of resident warps with the resource that limits it: `50 % (registers)`."""
    if kernel.occupancy is None:
        return "-"
    limit = (
        f" ({kernel.occupancy_limit})" if kernel.occupancy_limit and kernel.occupancy < 1 else ""
    )
    return format_percent(kernel.occupancy) + limit


def tensor_core_text(kernel: KernelResources) -> str:
    """Formats the tensor cores in use: `wgmma bf16`; `none` if the kernel computes without them."""
    return " ".join([kernel.tensor_core, *kernel.mma_types]) if kernel.tensor_core else "none"


def launches_view(launches: tuple[LaunchTime, ...]) -> RenderableType:
    """Renders a line for each launch of the steady state, in order: kernel, grid, time, share of
    the call.
    """
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    for heading in ("launch", "grid", "time", "share"):
        table.add_column(
            heading, justify="right" if heading in ("time", "share") else "left", overflow="fold"
        )
    for launch in launches[:MAX_TABLE_ROWS]:
        grid = " x ".join(map(str, launch.grid))
        table.add_row(
            quoted_text(launch.kernel),
            grid,
            format_milliseconds(launch.ms),
            format_percent(launch.share),
        )
    omitted = len(launches) - MAX_TABLE_ROWS
    if omitted <= 0:
        return table
    return Group(table, Text(f"and {omitted} more launches (--json lists all)", style=QUIET))


def matrix_view(results: tuple[CompileResult, ...]) -> RenderableType:
    """Renders a line for each target: whether the candidate compiles there, and the largest
    figures over its kernels.
    """
    headings = (
        "target",
        "",
        "registers",
        "spills",
        "shared",
        "occupancy",
        "tensor cores",
        "seconds",
        "why not",
    )
    numeric = ("registers", "spills", "shared", "seconds")
    return AdaptiveTable(
        headings, [_target_row(result) for result in results], numeric=numeric, wrapped=("why not",)
    )


def _target_row(result: CompileResult) -> list[Text]:
    kernels = result.kernels
    tensor = sorted({tensor_core_text(k) for k in kernels if k.tensor_core})
    occupancies = [k.occupancy for k in kernels if k.occupancy is not None]
    return [
        Text(result.target),
        Text("ok", style=GOOD) if result.passed else Text("fails", style=BAD),
        _number(_most(k.registers for k in kernels)),
        _number(_most(k.spills for k in kernels)),
        Text(format_bytes(_most(k.shared for k in kernels))),
        Text(format_percent(min(occupancies, default=None))),
        Text(", ".join(tensor) or "none"),
        Text(f"{result.seconds:.2f}"),
        Text.assemble(
            fault_name(result.failure), ": ", quoted_text(result.failure.message, limit=200)
        )
        if result.failure
        else Text(),
    ]


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _number(value: int | None) -> Text:
    return Text("-" if value is None else str(value))


IDLE_THROTTLE_REASON = "gpu_idle"
MEASURED_SEPARATELY = " (measured apart, no part of the time or the speedup)"


def speed_view(profile: ProfileResult) -> RenderableType:
    """Renders time, speedups, speed of light, costs outside the time, GPU time by kernel, clocks
    and hardware counters.
    """
    table = facts_table(
        [
            ("time", format_interval(profile.candidate) if profile.candidate else ""),
            ("host", _host(profile)),
            (
                "set-up",
                f"{format_milliseconds(profile.setup_ms)}, once{MEASURED_SEPARATELY}"
                if profile.setup_ms is not None
                else "",
            ),
            ("speedup", _speedup(profile)),
            ("precision", _precision(profile)),
            ("speed of light", _speed_of_light(profile)),
            ("GPU kernels", _gpu_kernels(_not_launched(profile))),
            (
                "peak memory",
                format_bytes(profile.peak_memory) if profile.peak_memory is not None else "",
            ),
            ("clocks", _clocks(profile.clocks) if profile.clocks else ""),
            ("neighbours", _neighbours(profile.neighbours) if profile.neighbours else ""),
            ("ncu", Text(_counters(profile.ncu))),
            ("note", Text("\n".join(profile.notes), style=QUIET) if profile.notes else ""),
        ]
    )
    return Group(table, launches_view(profile.launches)) if profile.launches else table


def _precision(profile: ProfileResult) -> Text | str:
    """Shows the precision of the candidate beside eager's: a speedup over another precision means
    little.
    """
    precision, eager = profile.precision, profile.eager_precision
    if not precision and not eager:
        return ""
    style = WARN if precision and eager and precision != eager else ""
    return Text.assemble((precision or "unknown", style), f", eager {eager or 'unknown'}")


def _speedup(profile: ProfileResult) -> Text | str:
    if profile.speedup is None:
        return ""
    style = GOOD if profile.speedup >= 1 else WARN
    eager = (
        f" over eager ({format_milliseconds(profile.eager.median)})"
        if profile.eager
        else " over eager"
    )
    bound = (
        f", at least {format_ratio(profile.speedup_low)}" if profile.speedup_low is not None else ""
    )
    parts: list[str | tuple[str, str]] = [(format_ratio(profile.speedup), style), eager + bound]
    if profile.speedup_compiled is not None:
        compiled = f" ({format_milliseconds(profile.compiled.median)})" if profile.compiled else ""
        style = GOOD if profile.speedup_compiled >= 1 else WARN
        bound = (
            f", at least {format_ratio(profile.speedup_compiled_low)}"
            if profile.speedup_compiled_low
            else ""
        )
        parts += [
            "; ",
            (format_ratio(profile.speedup_compiled), style),
            f" over torch.compile{compiled}{bound}",
        ]
    elif profile.speedup_compiled_estimate is not None:
        estimate = f"about {format_ratio(profile.speedup_compiled_estimate)} over torch.compile"
        # Timed by another method than the candidate: an estimate, not a measurement.
        parts += ["; ", (estimate, WARN), " (not comparable: timed by another method)"]
    return Text.assemble(*parts)


def _host(profile: ProfileResult) -> str:
    """Formats the host's time per call without a CUDA graph, for candidate, eager and
    torch.compile.
    """
    measured = (
        ("candidate", profile.host_ms),
        ("eager", profile.eager_host_ms),
        ("torch.compile", profile.compiled_host_ms),
    )
    costs = [f"{name} + {ms * 1e3:.3g} us" for name, ms in measured if ms is not None]
    return f"{', '.join(costs)} on the host per call{MEASURED_SEPARATELY}" if costs else ""


def _speed_of_light(profile: ProfileResult) -> str:
    if profile.roofline is None:
        return format_percent(profile.speed_of_light) if profile.speed_of_light is not None else ""
    return f"{format_percent(profile.speed_of_light)} of {roofline_text(profile.roofline)}"


def roofline_text(roofline: Roofline) -> str:
    """Formats the speed of light: `0.107 ms (memory bound: 512 MiB at 4.8 TB/s)`."""
    if roofline.bound == "compute":
        count = "-" if roofline.operations is None else f"{roofline.operations:.3g}"
        cost = (
            f"{count} operations at {format_rate(roofline.operations_per_second, 'FLOP')} "
            f"{roofline.rate_name}"
        ).rstrip()
    else:
        cost = f"{format_bytes(roofline.bytes)} at {format_rate(roofline.bytes_per_second, 'B')}"
    return (
        f"{format_milliseconds(roofline.milliseconds)} ({roofline.bound or 'memory'} bound: {cost})"
    )


def estimates_view(estimates: Sequence[CardEstimate]) -> Table:
    """Renders the speed of light of a problem on GPUs that this machine lacks."""
    return facts_table(
        ("estimate" if number == 0 else "", line)
        for number, line in enumerate(_estimates(estimates))
    )


def _estimates(estimates: Sequence[CardEstimate]) -> Iterator[str]:
    for estimate in estimates:
        card = (
            f"{estimate.card} ({estimate.stands_for} is not tabulated)"
            if estimate.stands_for
            else estimate.card
        )
        if estimate.roofline.bound == LAUNCH_BOUND:
            moved = format_bytes(estimate.roofline.bytes)
            yield f"{card}: bounded by the launch of a kernel, a few us ({moved} move in less)"
        else:
            yield f"{card}: at least {roofline_text(estimate.roofline)}"
    yield "a bound of the problem by the cards' data sheets, not a time of this kernel"


def _not_launched(profile: ProfileResult) -> dict[str, float]:
    """Returns the GPU kernels without a row in the table of launches."""
    launched = {launch.kernel for launch in profile.launches}
    return {name: ms for name, ms in profile.gpu_kernels.items() if name not in launched}


def _gpu_kernels(kernels: Mapping[str, float], most: int = 4) -> str:
    ordered = sorted(kernels.items(), key=lambda item: -item[1])
    named = [f"{name} {format_milliseconds(ms)}" for name, ms in ordered[:most]]
    return ", ".join(named + ([f"and {len(ordered) - most} more"] if len(ordered) > most else []))


def _clocks(clocks: Clocks) -> Text:
    parts = [
        f"SM {clocks.sm_mhz} MHz" if clocks.sm_mhz is not None else "",
        f"memory {clocks.memory_mhz} MHz" if clocks.memory_mhz is not None else "",
        f"{clocks.temperature} C" if clocks.temperature is not None else "",
        f"{clocks.power_watts:.0f} W" if clocks.power_watts is not None else "",
    ]
    text = Text(", ".join(part for part in parts if part))
    if slowed := [reason for reason in clocks.throttle if reason != IDLE_THROTTLE_REASON]:
        text.append(f"; throttled: {format_counts(dict.fromkeys(slowed, 1))}", style=WARN)
    return text


def _neighbours(neighbours: Sequence[Neighbour]) -> Text:
    """Renders the other GPUs at work, which share power, heat and links with the judging GPU."""
    named = ", ".join(
        f"{neighbour.name} {format_percent(neighbour.busy)} busy" for neighbour in neighbours
    )
    return Text(f"at work meanwhile: {named}", style=WARN)


def _counters(ncu: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in ncu.items())
