"""The catalogue and the suites as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from agent.show.words import LABEL, QUIET, data
from tools.problem import Problem


def problems_view(problems: Iterable[Problem]) -> Table:
    """One line a problem: its name, its family, what it is, the sizes that the CPU rungs use."""
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    table.add_column("problem", no_wrap=True)
    table.add_column("family", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("on a CPU", overflow="fold")
    for problem in problems:
        sizes = " ".join(f"{name}={value}" for name, value in problem.cpu_sizes.items())
        table.add_row(
            Text(problem.name), Text(problem.family, style=QUIET), data(problem.title), Text(sizes, style=QUIET)
        )
    return table
