"""Where things are shown: results on stdout, and on stderr one line of what is going on, taken away at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 140
"""Columns where stdout is a file or a pipe: a table that is cut at 80 is of no use there."""


def console() -> Console:
    """For results: as wide as the terminal, where there is one."""
    from rich.console import Console

    found = Console()
    return found if found.is_terminal else Console(width=max(found.width, WIDTH))


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Gives a function that says the current step. It says nothing where `quiet`, or where stderr is not a terminal."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda step: None
        return
    with console.status("starting") as status:
        yield lambda step: status.update(escape(step))
