"""Real servers: the command `agent serve` in a process of its own, on a free port of loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("fastapi", reason="pip install kernelwright[serve]")

GOOD = Path(__file__).parents[2] / "kernels" / "good" / "fused_silu.py"
ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
SECONDS = 400.0


class RunningServer:
    """One `agent serve`: its address, its process and what it said on stderr."""

    def __init__(self, folder: Path, *arguments: str, makes_token: bool = False) -> None:
        """makes_token: the server makes a token of its own, which its address holds; else it needs none."""
        if not makes_token and "--token-file" not in arguments:
            arguments = ("--no-token", *arguments)
        source = Path(__file__).parents[3] / "src"
        command = [
            sys.executable,
            "-m",
            "kernelwright.agent",
            "serve",
            "--device",
            "cpu",
            "--workers",
            "1",
        ]
        self.folder = folder
        self.process = subprocess.Popen(
            [*command, "--port", "0", *arguments], cwd=folder, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(source)}, start_new_session=True,
        )  # fmt: skip
        self.said: list[str] = []
        self._told = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._told.wait(SECONDS), "the server did not begin"
        assert self.process.poll() is None or not self.url, "".join(self.said)

    @property
    def url(self) -> str:
        return next((line.split()[-1] for line in self.said if "http://" in line), "")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            self._told.set()
        self._told.set()

    def stop(self, number: int = signal.SIGINT) -> int:
        """The exit status."""
        self.process.send_signal(number)
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return status

    def processes(self) -> list[int]:
        """Returns the ids of all processes below the server, without its own."""
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def judge(self) -> int:
        """Returns the id of the judge's process. Waits while one judge replaces another."""
        deadline = time.monotonic() + SECONDS
        while len(judges := self._judges()) != 1:
            assert time.monotonic() < deadline, f"the judges' processes are {judges}"
            time.sleep(0.05)
        return judges[0]

    def _judges(self) -> list[int]:
        judges = []
        # A judge behind walls is the grandchild of the process that the server starts.
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "kernelwright.agent.judging.judge_process" in child.cmdline():
                    judges.append(child.pid)
        return judges

    @contextlib.contextmanager
    def frozen_judge(self) -> Iterator[int]:
        """Stops a judge that is ready by SIGSTOP: a verdict that it begins stays `running`, whatever the load.

        The judge goes on at the end of the block, where it still lives. A judge that is silent for 90 s is ended.
        """
        import httpx2

        deadline = time.monotonic() + SECONDS
        while httpx2.get(f"{self.url}/v1/health", timeout=SECONDS).json()["judges_ready"] < 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        judge = self.judge()
        os.kill(judge, signal.SIGSTOP)
        try:
            yield judge
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(judge, signal.SIGCONT)


@pytest.fixture
def serve(tmp_path) -> Iterator[Callable[..., RunningServer]]:
    """`serve(*arguments)` begins a server in this test's folder; all end with the test."""
    begun: list[RunningServer] = []

    def started(*arguments: str) -> RunningServer:
        begun.append(RunningServer(tmp_path, *arguments))
        return begun[-1]

    yield started
    for server in begun:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    """One for many tests: alice and bob may ask."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "tokens.txt").write_text(f"alice {ALICE}\nbob {BOB}  # a comment\n")
    found = RunningServer(folder, "--token-file", "tokens.txt")
    yield found
    assert found.stop() == 130


@pytest.fixture
def http(server):
    """Asks as alice."""
    import httpx2

    headers = {"Authorization": f"Bearer {ALICE}"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=SECONDS) as client:
        yield client


@pytest.fixture(scope="session")
def right_code() -> str:
    return GOOD.read_text()


@pytest.fixture(scope="session")
def text_only() -> Callable[[object], str]:
    """`text_only(k)`: programs that differ, and that reading the text alone refuses."""
    return lambda k: f"import triton\nimport triton.language as tl\nNUMBER = {k!r}\n"


@pytest.fixture(scope="session")
def hangs(right_code) -> Callable[[object], str]:
    """`hangs(k)`: programs that differ, and whose host code never ends."""
    return lambda k: f"{right_code}\nNUMBER = {k!r}\nwhile True:\n    pass\n"


@pytest.fixture(scope="session")
def submission() -> Callable[..., dict[str, object]]:
    """`submission(code, **fields)`: the body of one, on the fused SiLU, at few sizes."""

    def made(code: str, name: str = "fused_silu", **fields: object) -> dict[str, object]:
        return {"problem": {"name": name}, "candidate": code, "options": {"sizes": 1}, **fields}

    return made
