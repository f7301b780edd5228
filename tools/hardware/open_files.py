"""Open files of a judging process: shared memory, pipes and sockets, dozens for each candidate at work.

Most systems allow a process 1,024 unless it asks for more.
"""

from __future__ import annotations

import resource

WANTED_OPEN_FILES = 1 << 16
"""The limit of open files that a process asks for. 64 candidates at once need a twentieth of it."""


def raise_open_files_limit() -> None:
    """Raises this process's own limit to what the system allows it, at most to WANTED."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(WANTED_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
