"""Numbers as people say them, and text from candidates as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from tools.results import Timing, clean_text

GOOD, BAD, QUIET, LABEL, WARN = "bold green", "bold red", "dim", "cyan", "yellow"


def milliseconds(value: float | None) -> str:
    """Milliseconds in the unit that reads best: 31.2 us, 1.204 ms, 2.10 s."""
    if value is None:
        return "-"
    if value < 0.1:
        return f"{value * 1000:.3g} us"
    return f"{value:.4g} ms" if value < 1000 else f"{value / 1000:.3g} s"


def interval(timing: Timing) -> str:
    """The median with its confidence interval and how many calls it rests on."""
    calls = f"{timing.calls} call{'' if timing.calls == 1 else 's'}"
    return f"{milliseconds(timing.median)} ({milliseconds(timing.low)} to {milliseconds(timing.high)}, 95 %, {calls})"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.3g} %"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3g}x"


def size(count: float | None) -> str:
    """Bytes, binary units."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def rate(value: float | None, unit: str) -> str:
    """Decimal: 4.8 TB/s, 989 TFLOP/s."""
    if value is None:
        return "-"
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}/s"
    return f"{value:.3g} {unit}/s"


def counted(census: Mapping[str, int], most: int = 6) -> str:
    """`softmax_kernel x2, add_kernel`; the largest first, the rest counted."""
    ordered = sorted(census.items(), key=lambda item: (-item[1], item[0]))
    named = [name if count == 1 else f"{name} x{count}" for name, count in ordered[:most]]
    rest = len(ordered) - most
    return ", ".join(named + ([f"and {rest} more"] if rest > 0 else []))


def data(text: object, style: str = "", limit: int = 2000) -> Text:
    """Text that someone else wrote: no markup, no control characters."""
    return Text(clean_text(text, limit), style=style)


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Two columns: what, and what is known of it. Rows whose value is empty are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        shown = value if isinstance(value, Text | Table) else Text("" if value is None else str(value))
        if isinstance(shown, Table) or shown.plain:
            table.add_row(label, shown)
    return table
