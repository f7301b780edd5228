"""Traps round the sandbox: what an exploit reaches for outside its walls, and whether it got there.

Everything planted is harmless, marked `kernelwright-canary` and taken away again.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import site
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType

from bench.judge_suites import ROOT

CANARY = Path("/tmp/kernelwright-canary")
WRITTEN = "kernelwright-canary-written"
PORT = 47811
"""Loopback, where connects_to_the_network calls."""
DAEMON = "kw-exploit"
"""The name that exploits give to processes that they leave behind."""
GRACE = 5.0
"""Seconds."""
SHOUT = "ESCAPED:"
"""What an exploit prints when it got where it must not."""


class Traps:
    """A context manager: set on entry, taken away on exit. `sprung` says what was reached since the last look."""

    def __enter__(self) -> Traps:
        CANARY.mkdir(mode=0o777, exist_ok=True)
        CANARY.chmod(0o777)
        (CANARY / "runs.db").write_text("SQLite format 3: not for you\n")
        (CANARY / "secret.txt").write_text("not for you\n")
        (CANARY / "kernelwright-other-candidate.py").write_text("# another candidate\n")
        self._listeners = [listen for listen in (_loopback(), _abstract()) if listen]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for listener in self._listeners:
            listener.close()
        for path in written():
            path.unlink()
        for pid in left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(CANARY, ignore_errors=True)

    def sprung(self, output: str = "") -> list[str]:
        """Files written outside, connections made, processes left, shouts in the output. What is found is cleared."""
        found = [line.strip() for line in output.splitlines() if line.startswith(SHOUT)]
        for path in written():
            found.append(f"wrote {path}")
            path.unlink()
        for listener in self._listeners:
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                found.append("connected to a trap's socket")
        if left := _still_there():
            found.append(f"left {len(left)} processes behind")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found


def written() -> list[Path]:
    """Canary files in the places that exploits try to write."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    temporary = Path(tempfile.gettempdir())
    packages = [Path(p) for p in (*site.getsitepackages(), site.getusersitepackages())]
    caches = [
        home / ".triton" / "cache",
        Path("/root/.triton/cache"),
        temporary / f"torchinductor_{os.getuid()}",
    ]
    roots = [CANARY, home, ROOT, ROOT / "tools", temporary, Path("/root"), *packages, *caches]
    paths = {root / name for root in roots for name in (WRITTEN, f"{WRITTEN}.pth")}
    return sorted(path for path in paths if _exists(path))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def left_behind() -> set[int]:
    """Processes that carry the exploits' name and are not dead yet."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and (entry / "comm").read_text().strip() == DAEMON
                and not _dead(entry)
            ):
                found.add(int(entry.name))
    return found


def _dead(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")


def _still_there() -> set[int]:
    """Those that outlive the grace in which a killed namespace empties itself."""
    left = left_behind()
    deadline = time.monotonic() + GRACE
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left &= left_behind()
    return left


def _loopback() -> socket.socket | None:
    try:
        listener = socket.create_server(("127.0.0.1", PORT))
    except OSError:
        return None
    listener.setblocking(False)
    return listener


def _abstract() -> socket.socket | None:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind("\0kernelwright-canary")
    except OSError:
        listener.close()
        return None
    listener.listen()
    listener.setblocking(False)
    return listener
