"""Runs a problem's text as a script without arguments: `argparse` at its top reads none of this command's."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator

SCRIPT = "problem.py"
"""The name under which a text finds itself in `sys.argv`."""


@contextlib.contextmanager
def no_program_arguments() -> Iterator[None]:
    """A context in which `sys.argv` holds the name of a script and nothing else."""
    before = sys.argv
    sys.argv = [SCRIPT]
    try:
        yield
    finally:
        sys.argv = before


def drop_program_arguments() -> None:
    """Leaves in `sys.argv` the name of a script and nothing else, for a process that runs other people's text only."""
    sys.argv = [SCRIPT]


def refusal_by_argparse(end: SystemExit) -> str:
    """Returns the message with which a parser of arguments ended the program; empty where something else did."""
    import argparse

    for frame, _ in traceback.walk_tb(end.__traceback__):
        if (
            isinstance(frame.f_locals.get("self"), argparse.ArgumentParser)
            and frame.f_code.co_name == "error"
        ):
            return str(frame.f_locals.get("message", ""))
    return ""
