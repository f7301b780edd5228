"""A real server process over either transport, and candidates that do not compile, are wrong, and are right."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "tests" / "kernels"
RIGHT = (KERNELS / "good" / "fused_silu.py").read_text()
STARTS_SECONDS = 400.0
TOOLS = (
    "problem_list", "problem_show", "compile", "interpret", "check", "bench", "profile", "submit",
    "result", "cancel", "history",
)  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def command(folder: Path, *more: str) -> list[str]:
    return [
        "-m",
        "kernelwright.agent",
        "mcp",
        "--device",
        "cpu",
        "--db",
        str(folder / "verdicts.db"),
        *more,
    ]


@contextmanager
def http_server(folder: Path, *more: str) -> Iterator[str]:
    """The URL of a server of its own process, which is ended as a user ends it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, *command(folder, "--transport", "http", "--port", str(port), *more)],
        env=environment(), cwd=folder, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _wait_for(port, server)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait(500)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTS_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"no server at port {port}: exit status {server.poll()}")


@pytest.fixture
def stdio(tmp_path):
    """`stdio(*options)` is a client that starts its own server; the same folder has the same history."""

    def client(*more: str) -> Client:
        return Client(
            StdioServerParameters(
                command=sys.executable,
                args=command(tmp_path, *more),
                env=environment(),
                cwd=str(tmp_path),
            )
        )

    return client
