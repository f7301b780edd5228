"""The scheduling priority of a session of processes.

Linux may share processors out between sessions first (autogroup, man 7 sched): a process's niceness then counts against
the processes of its own session only, and every new session begins at niceness 0. What a judge starts in sessions of
their own, as sandboxes and candidates, is to stay behind whoever the judge itself stays behind.

The kernel may refuse a change, to who is not root and asks twice within a tenth of a second; then nothing changes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def lower_session(niceness: int) -> None:
    """Makes this process nicer by so much, and gives its session that niceness."""
    os.nice(niceness)
    _set(niceness)


def session_keeps_priority_of(process: int) -> None:
    """Gives this process's session the niceness of another process's session, which started it."""
    _set(_niceness(str(process)))


def enter_session() -> None:
    """Begins a session whose niceness is that of the one before. Raises OSError as os.setsid does."""
    before = _niceness("self")
    os.setsid()
    _set(before)


def _niceness(process: str) -> int:
    """0 also where this kernel does not group by session."""
    try:
        return int(Path(f"/proc/{process}/autogroup").read_text().rpartition("nice ")[2])
    except (OSError, ValueError):
        return 0


def _set(niceness: int) -> None:
    if niceness > 0:
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(niceness))
