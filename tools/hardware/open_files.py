"""Open files of a judging process: shared memory, pipes and sockets, dozens for each candidate at
work.

Most systems allow a process 1,024 unless it asks for more.
"""

from __future__ import annotations

import resource

WANTED_OPEN_FILES = 1 << 16
"""The limit of open files that a process asks for. 64 candidates at once need a twentieth of it."""


def raise_open_files_limit() -> None:
    """Raises the process's limit on open files as far as the system allows, at most to
    WANTED_OPEN_FILES.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(WANTED_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
