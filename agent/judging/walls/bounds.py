"""Resource bounds of a walled judge with all its processes, and the exit code for each exceeded bound."""

from __future__ import annotations

import os
from typing import NamedTuple

from kernelwright.tools.sandbox.inside.usage_watch import Bound
from kernelwright.tools.sandbox.limits import Limits

OWN_PROCESSES = 160
"""Processes at once of the judge and its references, those of candidates' sandboxes not counted. A judge at work has
about ten.
"""
THREADS_OF_A_PROCESSOR = 32
"""Threads per processor that the libraries of a judge start."""
MEMORY_SHARE = 0.75
"""Share of this machine's memory."""
SCARCE_SHARE, LARGE_SHARE = 0.08, 0.25
"""Below the first share of available memory on this machine, a judge may use at most the second."""
MAX_TEMPORARY_BYTES = 8 << 30
"""Maximum size of the file system at /tmp, in bytes."""
TEMPORARY_SHARE = 0.125
"""Size of the file system at /tmp, as a share of this machine's memory; at most
MAX_TEMPORARY_BYTES.
"""
TEMPORARY_FILES = 200_000
"""Maximum number of files in the file system at /tmp."""
FULL_SHARE = 0.95
"""Used share of the file system at /tmp from which on the bound counts as exceeded."""
FIRST_EXIT_CODE = 80
"""Exit code for the first bound; each further bound has the next number."""
EXIT_CODES = {bound: FIRST_EXIT_CODE + number for number, bound in enumerate(Bound)}
"""Exit code of a walled judge for each exceeded bound."""


class JudgeBounds(NamedTuple):
    """Resource bounds of a walled judge."""

    own_processes: int
    """Processes of the judge and its references."""
    processes: int
    """All processes, those of candidates' sandboxes included."""
    threads: int
    """All processes and threads together, limited by the kernel."""
    memory: int
    """Bytes of private memory of all processes together."""
    memory_when_scarce: int
    """Bytes of private memory of all processes together, while memory on this machine is scarce."""
    scarce_memory: int
    """Bytes available on this machine below which its memory is scarce."""


def machine_memory() -> int:
    """Returns the bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def bounds_of_judge(capacity: int) -> JudgeBounds:
    """Returns the bounds of a judge. capacity: verdicts side by side."""
    candidates = capacity * Limits().processes
    threads = OWN_PROCESSES + candidates + THREADS_OF_A_PROCESSOR * (os.cpu_count() or 1)
    machine = machine_memory()
    return JudgeBounds(
        own_processes=OWN_PROCESSES,
        processes=OWN_PROCESSES + candidates,
        threads=threads,
        memory=int(MEMORY_SHARE * machine),
        memory_when_scarce=int(LARGE_SHARE * machine),
        scarce_memory=int(SCARCE_SHARE * machine),
    )


def exceeded_bound(exit_code: int | None) -> Bound | None:
    """Returns the exceeded bound behind a walled judge's exit code; None for any other exit code."""
    return next((bound for bound, code in EXIT_CODES.items() if code == exit_code), None)
