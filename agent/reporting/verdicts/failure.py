"""Renders the reason why a candidate is not correct: the fault, the line with its caret, the mismatch and where to
look.
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
"""Characters of a source line that are shown however narrow the screen is."""


def failure_view(failure: Failure, ended_at: Rung | None = None) -> RenderableType:
    """The fault's name and message (and the rung that it ended), then whatever is known beyond them."""
    parts: list[RenderableType] = [_headline(failure, ended_at)]
    if failure.where:
        parts.append(_indented(SourceExcerpt(failure.where)))
    if failure.mismatch:
        said = bool(failure.mismatch.hint) and failure.mismatch.hint in failure.message
        parts.append(
            _indented(mismatch_view(failure.mismatch.with_(hint="") if said else failure.mismatch))
        )
    if failure.trace:
        parts.append(_indented(quoted_text(failure.trace.rstrip(), QUIET)))
    return Group(*parts)


def fault_name(failure: Failure) -> str:
    """`cheat (cache)`, `out of bounds`."""
    name = failure.fault.replace("_", " ")
    return f"{name} ({failure.cheat})" if failure.cheat else name


def _headline(failure: Failure, ended_at: Rung | None) -> Text:
    where = f"ended at {ended_at}: " if ended_at is not None else ""
    return Text.assemble(where, (fault_name(failure), BAD), ": ", quoted_text(failure.message))


class SourceExcerpt:
    """`  12 | x = tl.load(p` and, where the column is known, a caret under it.

    A line that is wider than the screen is shortened to the part around the caret, for the caret would otherwise stand
    under another line's text.
    """

    def __init__(self, where: SourceLine) -> None:
        self._where = where

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gutter = f"{self._where.line} | "
        text, column = self._where.text.replace("\t", " "), self._where.column
        if column is None:
            yield Text.assemble((gutter, QUIET), quoted_text(text))
            return
        text, column = shorten_around(
            text, max(column, 0), max(options.max_width - len(gutter), MIN_EXCERPT_COLUMNS)
        )
        yield Text.assemble((gutter, QUIET), quoted_text(text), no_wrap=True)
        yield Text(f"{' ' * (len(gutter) + column)}^", style=BAD, no_wrap=True)


def shorten_around(text: str, column: int, width: int) -> tuple[str, int]:
    """Returns at most `width` characters of a line with `column` (from 0) among them, and the column's place there.

    An ellipsis stands for what is left out on either side.
    """
    if len(text) <= width and column < width:
        return text, column
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
    where = f", output {mismatch.output}" if mismatch.output else ""
    draw = f", inputs `{mismatch.draw}`" if mismatch.draw else ""
    return f"{mismatch.wrong:,} of {mismatch.total:,} elements ({share:.3%}){where}{draw}"


def _indented(view: RenderableType) -> RenderableType:
    return Padding(view, (0, 0, 0, 2))
