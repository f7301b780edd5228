"""Runs a text of Python behind the walls of a judge: behind_walls.py TEXT HIDDEN OWN ALL THREADS MEMORY WALLS."""

import os
import sys

from kernelwright.agent.judging.walls.bounds import JudgeBounds
from kernelwright.agent.judging.walls.first_process import be_subreaper
from kernelwright.agent.judging.walls.walled_judge import (
    WalledPaths,
    run_behind_walls,
    user_without_files,
)

text, hidden, *numbers, walls = sys.argv[1:]
bounds = JudgeBounds(*map(int, numbers))


def run():
    """Becomes the text's process."""
    os.execv(sys.executable, [sys.executable, "-c", text])


if walls != "none":
    user = user_without_files() if walls == "namespaces" else None
    run_behind_walls(WalledPaths([hidden], []), bounds, run, user)
be_subreaper(run, bounds)
