"""Real inference servers, started on loopback from an environment of their own.

docs/reference/policies.md says how to make it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_START_SECONDS = 240
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "NO_PROXY": "127.0.0.1",
}


def vllm_python() -> Path:
    """KERNELWRIGHT_VLLM_PYTHON, or the environment `venv-vllm` beside the checkout; skips where there is none."""
    named = os.environ.get("KERNELWRIGHT_VLLM_PYTHON")
    python = Path(named) if named else ROOT.parent / "venv-vllm" / "bin" / "python"
    if not python.exists():
        pytest.skip(
            f"no vLLM environment: {python} does not exist "
            "(set KERNELWRIGHT_VLLM_PYTHON, see docs/reference/policies.md)"
        )
    return python


def environment() -> dict[str, str]:
    return {**os.environ, **_QUIET, "PYTHONPATH": str(ROOT / "src")}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Waits until the server is healthy; ends it and its workers."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env=environment(), start_new_session=True
        )
    try:
        _wait_until_healthy(process, port, log)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(500)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(
        f"the server did not start; its last words: {log.read_text(errors='replace')[-1500:]}"
    )
