"""What the compiler made of the kernels: resources for one target, and the portability matrix for several."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.show.failure import fault_name
from agent.show.words import BAD, GOOD, LABEL, QUIET, WARN, data, percent, size
from tools.results import CompileResult, KernelResources

MOST = 12
"""Specialisations shown for one target: an autotuned kernel may have a hundred."""


def kernels_view(result: CompileResult) -> RenderableType | None:
    """Registers, spills, shared memory, occupancy and tensor-core use of every specialisation; None where nothing was compiled."""
    if not result.kernels:
        return None
    table = Table(box=None, padding=(0, 1), header_style=LABEL)
    for heading in ("kernel", "config", "registers", "spills", "shared", "occupancy", "tensor cores", "loads"):
        numeric = heading in ("registers", "spills", "shared")
        folds = heading in ("kernel", "config")  # where there is no room: the others are short
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=not folds, overflow="fold")
    for kernel in result.kernels[:MOST]:
        table.add_row(*_row(kernel))
    rest = len(result.kernels) - MOST
    return Group(table, Text(f"and {rest} more specialisations (--json lists all)", style=QUIET)) if rest > 0 else table


def _row(kernel: KernelResources) -> list[Text]:
    return [
        data(kernel.name),
        data(config_text(kernel), QUIET),
        _number(kernel.registers),
        Text(_number(kernel.spills).plain, style=WARN if kernel.spills else ""),
        Text(size(kernel.shared)),
        Text(occupancy_text(kernel)),
        Text(tensor_core_text(kernel)),
        Text(f"{kernel.vector_bits} bit" if kernel.vector_bits else "-"),
    ]


def config_text(kernel: KernelResources) -> str:
    """`BLOCK=1024 num_warps=4`, options that were left out are not guessed."""
    return " ".join(f"{name}={value}" for name, value in kernel.config.items())


def occupancy_text(kernel: KernelResources) -> str:
    """`50 % (registers)`: the share of resident warps and what holds it down."""
    if kernel.occupancy is None:
        return "-"
    limit = f" ({kernel.occupancy_limit})" if kernel.occupancy_limit and kernel.occupancy < 1 else ""
    return percent(kernel.occupancy) + limit


def tensor_core_text(kernel: KernelResources) -> str:
    """`wgmma bf16`; `none` where the kernel computes without them."""
    return " ".join([kernel.tensor_core, *kernel.mma_types]) if kernel.tensor_core else "none"


def matrix_view(results: tuple[CompileResult, ...]) -> Table:
    """One line a target: does it compile there, and at what cost. The largest figure over the kernels is shown."""
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    for heading in ("target", "", "registers", "spills", "shared", "occupancy", "tensor cores", "seconds"):
        table.add_column(
            heading, justify="right" if heading in ("registers", "spills", "shared", "seconds") else "left"
        )
    table.add_column("why not", overflow="fold")
    for result in results:
        table.add_row(*_target_row(result))
    return table


def _target_row(result: CompileResult) -> list[Text]:
    kernels = result.kernels
    tensor = sorted({tensor_core_text(k) for k in kernels if k.tensor_core})
    occupancies = [k.occupancy for k in kernels if k.occupancy is not None]
    return [
        Text(result.target),
        Text("ok", style=GOOD) if result.passed else Text("fails", style=BAD),
        _number(_most(k.registers for k in kernels)),
        _number(_most(k.spills for k in kernels)),
        Text(size(_most(k.shared for k in kernels))),
        Text(percent(min(occupancies, default=None))),
        Text(", ".join(tensor) or "none"),
        Text(f"{result.seconds:.2f}"),
        Text.assemble(fault_name(result.failure), ": ", data(result.failure.message, limit=200))
        if result.failure
        else Text(),
    ]


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _number(value: int | None) -> Text:
    return Text("-" if value is None else str(value))
