"""Renders `agent doctor`: the machine, and each trouble with its fix."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    facts_table,
    format_bytes,
    format_rate,
)
from kernelwright.agent.runtime.doctor import MachineTrouble, Severity
from kernelwright.tools.hardware.gpus import Gpu
from kernelwright.tools.hardware.machine_info import Layer, Machine, OfflineTarget

STYLES = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: QUIET}


def machine_view(machine: Machine, troubles: tuple[MachineTrouble, ...]) -> RenderableType:
    """Renders the facts, then the troubles; "nothing is wrong" if there are none."""
    installed = [f"{name} {version}" for name, version in machine.versions.items() if version]
    missing = [name for name, version in machine.versions.items() if not version]
    table = facts_table(
        [
            (
                "host",
                f"{machine.host}, {machine.system}, {machine.cpus} CPUs, {format_bytes(machine.memory_bytes)}",
            ),
            ("python", machine.python),
            ("installed", ", ".join(installed)),
            ("not installed", Text(", ".join(missing), style=QUIET)),
            *[(f"cuda:{gpu.index}", _gpu(gpu)) for gpu in machine.gpus],
            *([] if machine.gpus else [("GPU", "none")]),
            ("driver", _driver(machine)),
            ("ncu", _ncu(machine)),
            ("targets", _targets(machine.targets)),
            ("isolation", _marks(machine.layers)),
            (
                "disk",
                "\n".join(
                    f"{disk.path}: {format_bytes(disk.free_bytes)} free" for disk in machine.disks
                ),
            ),
        ]
    )
    return Group(table, Text(), _troubles(troubles))


def _gpu(gpu: Gpu) -> Text:
    clocks = gpu.clocks
    lines = [
        f"{gpu.name} ({gpu.uuid}), {gpu.target}, {gpu.multiprocessors} SMs, {format_bytes(gpu.memory_bytes)}, L2 "
        f"{format_bytes(gpu.l2_bytes)}",
        f"memory {format_rate(gpu.bytes_per_second, 'B')}; "
        + (
            ", ".join(f"{name} {format_rate(value, 'OP')}" for name, value in gpu.rates.items())
            or "peak rates unknown"
        ),
    ]
    if clocks:
        lines.append(
            f"SM {clocks.sm_mhz} of {gpu.max_sm_mhz} MHz, memory {clocks.memory_mhz} MHz, {clocks.temperature} C"
            + (f", {', '.join(clocks.throttle)}" if clocks.throttle else "")
        )
    return Text("\n".join(lines))


def _driver(machine: Machine) -> str:
    if machine.driver is None:
        return ""
    return f"{machine.driver}" + (f" (CUDA up to {machine.cuda})" if machine.cuda else "")


def _ncu(machine: Machine) -> str:
    if machine.ncu.path is None:
        return "not found"
    permitted = {
        True: ", counters permitted",
        False: ", counters for administrators only",
        None: "",
    }
    return machine.ncu.path + permitted[machine.ncu.permitted]


def _targets(targets: tuple[OfflineTarget, ...]) -> Text:
    """Renders the targets for which kernels can be compiled here; without any, the reason."""
    if targets and not any(target.available for target in targets):
        return Text(f"none: {targets[0].reason}", style=BAD)
    return _marks(targets)


def _marks(parts: tuple[Layer, ...] | tuple[OfflineTarget, ...]) -> Text:
    """Lists the names; a missing part is marked in words, too, for terminals without colours."""
    return Text(", ").join(
        Text(part.name, style=GOOD) if part.available else Text(f"{part.name} (missing)", style=BAD)
        for part in parts
    )


def _troubles(troubles: tuple[MachineTrouble, ...]) -> RenderableType:
    if not troubles:
        return Text("nothing is wrong", style=GOOD)
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    table.add_column("")
    table.add_column("what", overflow="fold")
    table.add_column("what to do", overflow="fold")
    for trouble in troubles:
        table.add_row(
            Text(trouble.severity, style=STYLES[trouble.severity]),
            Text(trouble.what),
            Text(trouble.fix),
        )
    return table
