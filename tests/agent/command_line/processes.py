"""Processes that a test looks for, and waits for."""

import contextlib
import os
import time
from pathlib import Path


def processes_in(folder: Path) -> list[str]:
    """Processes whose environment, command line or working folder names a folder, zombies left out."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            traces = (
                (place / "environ").read_bytes()
                + (place / "cmdline").read_bytes()
                + os.fsencode((place / "cwd").readlink())
            )
            if os.fsencode(folder) in traces:
                found.append(place.name)
    return found


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def wait_until_gone(folder: Path, seconds: float) -> None:
    """No process has anything to do with the folder any more."""
    deadline = time.monotonic() + seconds
    while left := processes_in(folder):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.1)
