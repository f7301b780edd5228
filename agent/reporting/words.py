"""Formats numbers for people, and quotes text of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kernelwright.tools.report import Timing, clean_text

GOOD, BAD, QUIET, LABEL, WARN = "bold green", "bold red", "dim", "cyan", "yellow"


def format_milliseconds(value: float | None) -> str:
    """Formats milliseconds in the most readable unit: 31.2 us, 1.204 ms, 2.10 s."""
    if value is None:
        return "-"
    if value < 0.1:
        return f"{value * 1000:.3g} us"
    return f"{value:.4g} ms" if value < 1000 else f"{value / 1000:.3g} s"


def format_interval(timing: Timing) -> str:
    """Formats the median with its confidence interval and the number of calls."""
    calls = f"{timing.calls} call{'' if timing.calls == 1 else 's'}"
    median, low, high = (
        format_milliseconds(value) for value in (timing.median, timing.low, timing.high)
    )
    return f"{median} ({low} to {high}, 95 %, {calls})"


def format_percent(share: float | None) -> str:
    """Formats a share as a percentage; `-` if None."""
    return "-" if share is None else f"{share * 100:.3g} %"


def format_ratio(ratio: float | None) -> str:
    """Formats a ratio as `1.23x`; `-` if None."""
    return "-" if ratio is None else f"{ratio:.3g}x"


def format_bytes(count: float | None) -> str:
    """Formats a number of bytes in binary units."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def format_rate(value: float | None, unit: str) -> str:
    """Formats a rate with decimal prefixes: 4.8 TB/s, 989 TFLOP/s."""
    if value is None:
        return "-"
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}/s"
    return f"{value:.3g} {unit}/s"


def number_of(count: int, noun: str) -> str:
    """Formats a count with its noun: `1 problem`, `2,000 problems`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_counts(census: Mapping[str, int], most: int = 6) -> str:
    """Formats counts, the largest first, with the number of omitted names: `softmax_kernel x2,
    add_kernel`.
    """
    ordered = sorted(census.items(), key=lambda item: (-item[1], item[0]))
    named = [name if count == 1 else f"{name} x{count}" for name, count in ordered[:most]]
    omitted = len(ordered) - most
    return ", ".join(named + ([f"and {omitted} more"] if omitted > 0 else []))


def quoted_text(text: object, style: str = "", limit: int = 2000) -> Text:
    """Returns text from outside as rich text: without markup, without control characters."""
    return Text(clean_text(text, limit), style=style)


def facts_table(rows: Iterable[tuple[str, object]]) -> Table:
    """Makes a table of two columns, labels and values. Rows with an empty value are omitted."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        shown = (
            value if isinstance(value, Text | Table) else Text("" if value is None else str(value))
        )
        if isinstance(shown, Table) or shown.plain:
            table.add_row(label, shown)
    return table


MIN_PROSE_COLUMNS = 16
"""Least width of a table's wrapped column with longer text, in columns."""


class AdaptiveTable:
    """A table that becomes a list of records if the terminal is too narrow.

    The table is drawn if no cell and no heading would be broken inside a word and every column of
    prose is wide enough to read. Otherwise each row is drawn as its first cell, and below it
    `heading value` for every other non-empty cell.
    """

    def __init__(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Text]],
        *,
        numeric: Iterable[str] = (),
        wrapped: Iterable[str] = (),
    ) -> None:
        """numeric: headings of columns aligned to the right. wrapped: headings of columns that
        may be broken between words.
        """
        self._headings, self._rows = headings, rows
        self._numeric, self._wrapped = frozenset(numeric), frozenset(wrapped)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths(options.max_width)
        if widths is not None:
            yield self._table(widths)
        else:
            for row in self._rows:
                yield from self._record(row)

    def _widths(self, columns: int) -> list[int] | None:
        """Returns the columns' widths, without a blank of padding on both sides; None if the table
        does not fit into `columns`.

        Every column gets its least width; the spare columns are shared among the wrapped columns,
        in proportion to their missing width. Example: 40 columns for least widths 10 and 16 and
        whole widths 10 and 50 leave 40 - 26 - 4 = 10 spare: 10 and 26.
        """
        whole: list[int] = []
        least: list[int] = []
        for name, cells in zip(self._headings, self._columns(), strict=True):
            column = [Text(name), *cells]
            width = max(cell.cell_len for cell in column)
            whole.append(width)
            if name in self._wrapped:
                width = min(width, max(MIN_PROSE_COLUMNS, *map(_longest_word, column)))
            least.append(width)
        # Each column has a blank on both sides.
        spare, lacking = columns - sum(least) - 2 * len(least), sum(whole) - sum(least)
        if spare < 0:
            return None
        # Each column gets the same share of the width that it lacks.
        share = min(1.0, spare / lacking) if lacking else 0.0
        return [low + int((high - low) * share) for low, high in zip(least, whole, strict=True)]

    def _columns(self) -> list[tuple[Text, ...]]:
        return list(zip(*self._rows, strict=True)) if self._rows else [()] * len(self._headings)

    def _table(self, widths: Sequence[int]) -> Table:
        table = Table(box=None, padding=(0, 1), header_style=LABEL)
        for name, width in zip(self._headings, widths, strict=True):
            justify: JustifyMethod = "right" if name in self._numeric else "left"
            table.add_column(
                name,
                justify=justify,
                width=width,
                no_wrap=name not in self._wrapped,
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*row)
        return table

    def _record(self, row: Sequence[Text]) -> Iterable[RenderableType]:
        parts = []
        for name, cell in zip(self._headings[1:], row[1:], strict=True):
            if cell:
                parts.append(Text(" ").join([Text(name, style=LABEL), cell]) if name else cell)
        yield Padding(row[0], (0, 0, 0, 1))
        yield Padding(Text("  ").join(parts), (0, 0, 0, 3))


def _longest_word(text: Text) -> int:
    """Returns the length of the longest word, in columns of the terminal."""
    return max((Text(word).cell_len for word in text.plain.split()), default=0)
