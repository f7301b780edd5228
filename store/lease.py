"""Leases of trajectories: two commands on one database never work on the same trajectory."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path

LEASE_SECONDS = 3600.0
"""Seconds after the last write during which a process on another host counts as alive.

Processes on this host are looked up instead.
"""


_OPEN: set[str] = set()
"""Owners of open stores in this process.

A closed store holds no lease, even if a full disk prevented the release from being written.
"""


def new_owner() -> str:
    """Returns a new owner name `host/process/start time/store`, valid until `retire` or the end
    of the process.
    """
    owner = f"{_host()}/{os.getpid()}/{_started(os.getpid())}/{uuid.uuid4().hex[:8]}"
    _OPEN.add(owner)
    return owner


def retire(owner: str) -> None:
    """Frees all leases of a closed store."""
    _OPEN.discard(owner)


def is_free(owner: str, lease: float, mine: str, now: float) -> bool:
    """Returns whether `mine` may take a trajectory: no owner, owned by `mine`, or the owner is
    dead or closed.
    """
    if not owner or owner == mine:
        return True
    host, _, process_key = owner.partition("/")
    # Processes of other hosts cannot be looked up: their lease decides.
    if host != _host():
        return now > lease
    process, started, *_ = [*process_key.split("/"), ""]
    # Dead, or its process id now belongs to another process.
    if not process.isdigit() or _started(int(process)) != started:
        return True
    # An owner in this very process is free once its store was closed.
    return int(process) == os.getpid() and owner not in _OPEN


def is_worked_on(owner: str, lease: float) -> bool:
    """Returns whether a live process holds the trajectory."""
    return not is_free(owner, lease, "", time.time())


def _host() -> str:
    """Returns the host name and its process-id namespace: two containers may have equal host
    names.
    """
    try:
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}-{namespace}".replace("/", "_")[:120]


def _started(process: int) -> str:
    """Returns the start time of a process in ticks since boot (proc(5), field 22), which
    distinguishes reused process ids; empty for a dead process.
    """
    try:
        # Field 2 is the command in parentheses and may contain blanks: split after the last ")".
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _lives(process)
    # States Z (zombie) and X (dead) hold no lease.
    return "" if fields[0] in "ZX" else fields[19]


def _lives(process: int) -> str:
    """Returns "alive" for a live process on systems without /proc; otherwise an empty string."""
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
