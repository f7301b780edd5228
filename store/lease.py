"""Who works on a trajectory, so that two commands on one database never take the same one."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

LEASE_SECONDS = 3600.0
"""How long another host is believed to live after its last write. On the same host the process itself is looked at."""


def new_owner() -> str:
    """host/process/its start/one of its stores."""
    return f"{_host()}/{os.getpid()}/{_started(os.getpid())}/{uuid.uuid4().hex[:8]}"


def is_free(owner: str, lease: float, mine: str, now: float) -> bool:
    """Whether `mine` may take it: nobody has it, I have it, or who had it is dead."""
    if not owner or owner == mine:
        return True
    host, _, rest = owner.partition("/")
    if host != _host():
        return now > lease
    process, started, *_ = [*rest.split("/"), ""]
    return not process.isdigit() or _started(int(process)) != started


def _host() -> str:
    """With the namespace of process numbers: two containers may have one name."""
    try:
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}-{namespace}".replace("/", "_")[:120]


def _started(process: int) -> str:
    """When it began, in ticks since boot (proc(5), field 22), so that a number given again is not mistaken; empty where it is dead."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _lives(process)
    return "" if fields[0] in "ZX" else fields[19]


def _lives(process: int) -> str:
    """Where there is no /proc."""
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
