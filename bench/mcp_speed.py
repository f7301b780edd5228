"""How soon the MCP server answers: a tool list and a `compile`, over stdio and over HTTP.

    python -m bench.mcp_speed [--calls 20] [--out bench/results/mcp_speed.md]

A real server process on the CPU, its first verdict made before anything is counted; every compile is of another text,
so that no answer is remembered. Prints a Markdown table and ends with exit code 1 where a limit is missed: 1 s for the
tool list, 0.5 s for a compile (the median).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

ROOT = Path(__file__).parents[1]
KERNEL = (ROOT / "tests" / "kernels" / "good" / "fused_softmax.py").read_text(encoding="utf-8")
LIST_SECONDS, COMPILE_SECONDS = 1.0, 0.5
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def command(folder: str, *more: str) -> list[str]:
    return [
        "-m",
        "kernelwright.agent",
        "mcp",
        "--device",
        "cpu",
        "--db",
        f"{folder}/verdicts.db",
        *more,
    ]


@contextmanager
def http_server(folder: str) -> Iterator[str]:
    """The URL of a server process on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, *command(folder, "--transport", "http", "--port", str(port))]
    server = subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait(20)


async def seconds_of(call: Callable[[int], Awaitable[Any]], calls: int) -> list[float]:
    taken = []
    for number in range(calls):
        begun = time.monotonic()
        await call(number)
        taken.append(time.monotonic() - begun)
    return taken


async def measured(server: Any, calls: int) -> dict[str, list[float]]:
    """Seconds of each call, by what was asked."""

    async def compile_another(number: int) -> None:
        source = f"{KERNEL}\nNUMBER = {number}\n"
        answer = await client.call_tool("compile", {"problem": "fused softmax", "source": source})
        assert answer.structured_content is not None
        assert answer.structured_content["outcome"] == "compiled"

    begun = time.monotonic()
    async with Client(server) as client:
        await client.list_tools()
        first = time.monotonic() - begun
        await compile_another(-1)
        begun_calls = {
            "tool list, warm": await seconds_of(
                lambda _: client.list_tools(cache_mode="bypass"), calls
            ),
            "compile, warm": await seconds_of(compile_another, calls),
        }
    return {"start and first tool list": [first], **begun_calls}


def table(taken: dict[str, dict[str, list[float]]]) -> str:
    head = ["| transport | asked | calls | median s | largest s |", "|---|---|---|---|---|"]
    rows = [
        f"| {transport} | {asked} | {len(all_of)} | {statistics.median(all_of):.3f} | {max(all_of):.3f} |"
        for transport, measurements in taken.items()
        for asked, all_of in measurements.items()
    ]
    where = (
        f"`python -m bench.mcp_speed`, {os.cpu_count()} cores, no GPU, {date.today().isoformat()}"
    )
    load = f"load average {os.getloadavg()[0]:.1f}"
    return "\n".join(
        ["# How soon agent mcp answers", "", *head, *rows, "", f"{where}, {load}.", ""]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stdio = StdioServerParameters(command=sys.executable, args=command(folder), env=ENVIRONMENT)
        taken = {"stdio": asyncio.run(measured(stdio, asked.calls))}
        with http_server(folder) as url:
            taken["http"] = asyncio.run(measured(url, asked.calls))
    told = table(taken)
    print(told)
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(told, encoding="utf-8")
    late = [
        f"{transport}: {what}"
        for transport, measurements in taken.items()
        for what, limit in (("tool list, warm", LIST_SECONDS), ("compile, warm", COMPILE_SECONDS))
        if statistics.median(measurements[what]) > limit
    ]
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
