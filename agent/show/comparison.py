"""A comparison for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from agent.comparison.tables import Table
from agent.show.words import GOOD, LABEL, QUIET, data


def tables_view(tables: Sequence[Table]) -> RenderableType:
    parts: list[RenderableType] = []
    for table in tables:
        parts += [Text(table.title, style="bold"), _grid(table) if table.rows else Text("none", style=QUIET), Text()]
    return Group(*parts[:-1])


def _grid(table: Table) -> Grid:
    grid = Grid(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in table.head:
        grid.add_column(data(name, limit=60), overflow="fold")
    for row in table.rows:
        grid.add_row(*(_cell(cell, place) for place, cell in enumerate(row)))
    return grid


def _cell(cell: str, place: int) -> Text:
    right = place and ": correct" in cell
    return data(cell, GOOD if right else LABEL if not place else "", 400)
