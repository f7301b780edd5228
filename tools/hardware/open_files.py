"""Raises the limit on open files of a judging process: each running candidate needs dozens of
shared memories, pipes and sockets.

Most systems allow 1,024 per process by default.
"""

from __future__ import annotations

import resource

WANTED_OPEN_FILES = 1 << 16
"""Requested limit on open files. 64 candidates at once need a twentieth of this number."""


def raise_open_files_limit() -> None:
    """Raises the process's limit on open files as far as the system allows, at most to
    WANTED_OPEN_FILES.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(WANTED_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
