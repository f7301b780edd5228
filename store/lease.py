"""Leases of trajectories, so that two commands on one database never work on the same one."""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path

LEASE_SECONDS = 3600.0
"""Time after its last write for which a process of another host counts as alive. On the same host the process itself is
looked up.
"""


_OPEN: set[str] = set()
"""The owners of this process whose stores are open.

One that closed holds nothing, also where a full disk kept it from writing so.
"""


def new_owner() -> str:
    """host/process/its start/one of its stores. It lives until `retire`, or its process ends."""
    owner = f"{_host()}/{os.getpid()}/{_started(os.getpid())}/{uuid.uuid4().hex[:8]}"
    _OPEN.add(owner)
    return owner


def retire(owner: str) -> None:
    """Frees what a closed store holds."""
    _OPEN.discard(owner)


def is_free(owner: str, lease: float, mine: str, now: float) -> bool:
    """Whether `mine` may take the trajectory: it has no owner, `mine` owns it, or its owner is dead or has closed."""
    if not owner or owner == mine:
        return True
    host, _, rest = owner.partition("/")
    if host != _host():
        return now > lease
    process, started, *_ = [*rest.split("/"), ""]
    if not process.isdigit() or _started(int(process)) != started:
        return True
    return int(process) == os.getpid() and owner not in _OPEN


def is_worked_on(owner: str, lease: float) -> bool:
    """Whether a process that is alive holds the trajectory."""
    return not is_free(owner, lease, "", time.time())


def _host() -> str:
    """Returns the host's name with the namespace of its process numbers: two containers may have one name."""
    try:
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}-{namespace}".replace("/", "_")[:120]


def _started(process: int) -> str:
    """Returns when a process began, in ticks since boot (proc(5), field 22), so that a number given again is not
    mistaken; empty where it is dead.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _lives(process)
    return "" if fields[0] in "ZX" else fields[19]


def _lives(process: int) -> str:
    """Says whether a process lives, where there is no /proc."""
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
