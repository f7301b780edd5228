"""Renders the reason why a candidate is not correct: the fault, the line with its caret, the
mismatch and a hint.
"""

from __future__ import annotations

import math

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.words import BAD, LABEL, QUIET, WARN, facts_table, quoted_text
from kernelwright.tools.report import Failure, Mismatch, Rung, SourceLine

MIN_EXCERPT_COLUMNS = 20
"""Least number of characters of a displayed source line on a narrow screen."""


def failure_view(failure: Failure, ended_at: Rung | None = None) -> RenderableType:
    """Renders the fault's name and message (and the rung that it ended), then all further
    details.
    """
    parts: list[RenderableType] = [_headline(failure, ended_at)]
    if failure.where:
        parts.append(_indented(SourceExcerpt(failure.where)))
    if failure.mismatch:
        repeats_message = bool(failure.mismatch.hint) and failure.mismatch.hint in failure.message
        parts.append(
            _indented(
                mismatch_view(
                    failure.mismatch.with_(hint="") if repeats_message else failure.mismatch
                )
            )
        )
    if failure.trace:
        parts.append(_indented(quoted_text(failure.trace.rstrip(), QUIET)))
    return Group(*parts)


def fault_name(failure: Failure) -> str:
    """Formats a fault's name: `cheat (cache)`, `out of bounds`."""
    name = failure.fault.replace("_", " ")
    return f"{name} ({failure.cheat})" if failure.cheat else name


def _headline(failure: Failure, ended_at: Rung | None) -> Text:
    location = f"ended at {ended_at}: " if ended_at is not None else ""
    return Text.assemble(location, (fault_name(failure), BAD), ": ", quoted_text(failure.message))


class SourceExcerpt:
    """A source line, `  12 | x = tl.load(p`, with a caret below if the column is known.

    A line wider than the screen is shortened to the part around the caret: wrapped, the caret
    would stand under another part of the text.
    """

    def __init__(self, source_line: SourceLine) -> None:
        self._source_line = source_line

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gutter = f"{self._source_line.line} | "
        text, column = self._source_line.text.replace("\t", " "), self._source_line.column
        if column is None:
            yield Text.assemble((gutter, QUIET), quoted_text(text))
            return
        text, column = shorten_around(
            text, max(column, 0), max(options.max_width - len(gutter), MIN_EXCERPT_COLUMNS)
        )
        yield Text.assemble((gutter, QUIET), quoted_text(text), no_wrap=True)
        yield Text(f"{' ' * (len(gutter) + column)}^", style=BAD, no_wrap=True)


def shorten_around(text: str, column: int, width: int) -> tuple[str, int]:
    """Returns at most `width` characters of a line around `column` (from 0), and the column's
    position there.

    An ellipsis marks an omitted part on either side.
    """
    if len(text) <= width and column < width:
        return text, column
    # The window is centred on the column, but does not reach beyond either end of the line.
    first = max(0, min(column - width // 2, max(len(text), column + 1) - width))
    shown = text[first : first + width]
    if first:
        shown = f"…{shown[1:]}"
    if first + width < len(text):
        shown = f"{shown[:-1]}…"
    return shown, column - first


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return (
        f"{ratio:.3g} of eager's own RMS error"
        if math.isfinite(ratio)
        else "eager's own error is zero"
    )


def mismatch_view(mismatch: Mismatch) -> RenderableType:
    """Renders the number of wrong elements, their pattern, and the first and the worst of them."""
    rows: list[tuple[str, object]] = [
        ("wrong", _count(mismatch)),
        ("pattern", Text((mismatch.pattern or "").replace("_", " "), style=WARN)),
        ("look at", quoted_text(mismatch.hint)),
        (
            "max error",
            "" if mismatch.max_error is None else f"{mismatch.max_error:.3g} from float64",
        ),
        ("error ratio", _ratio(mismatch.error_ratio)),
    ]
    elements = [("first", mismatch.first)] if mismatch.first else []
    elements += [("worst", element) for element in mismatch.worst]
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    for heading in ("", "index", "expected", "got"):
        table.add_column(heading, justify="left" if heading in ("", "index") else "right")
    for name, element in elements:
        table.add_row(
            name,
            ", ".join(str(i) for i in element.index),
            f"{element.expected:.6g}",
            f"{element.got:.6g}",
        )
    return Group(facts_table(rows), *([table] if elements else []))


def _count(mismatch: Mismatch) -> str:
    share = mismatch.wrong / mismatch.total if mismatch.total else 0.0
    output = f", output {mismatch.output}" if mismatch.output else ""
    draw = f", inputs `{mismatch.draw}`" if mismatch.draw else ""
    return f"{mismatch.wrong:,} of {mismatch.total:,} elements ({share:.3%}){output}{draw}"


def _indented(view: RenderableType) -> RenderableType:
    return Padding(view, (0, 0, 0, 2))
