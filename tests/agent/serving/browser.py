"""A real browser: headless Chromium over its DevTools protocol in two pipes. Nothing leaves this machine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
    "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
READING, WRITING = 3, 4
"""The descriptors from which Chromium reads commands and to which it writes answers."""
PATIENCE_SECONDS = 120.0
DESKTOP, PHONE = (1200, 900), (390, 844)
"""Width and height in pixels."""


class Browser:
    """One page of a running browser."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers, self._number, self._buffer = commands, answers, 0, b""
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends one command and returns its result; events are passed over."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._answers.fileno(), 2**20)
            assert part, "the browser is gone"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def resize(self, size: tuple[int, int]) -> None:
        """Gives the page a width and a height, as a phone's where it is narrow."""
        width, height = size
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def open(self, address: str, shown: str) -> None:
        """Loads an address, and waits until an expression of JavaScript is true there."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        self.wait(shown)

    def run(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Waits until an expression is true. One that fails, as before the page is loaded, is not."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.run(
            f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        ):
            assert time.monotonic() < deadline, (expression, self.run("document.body.innerText"))
            time.sleep(0.05)

    def text(self) -> str:
        """Returns the text that a reader sees."""
        return self.run("document.body.innerText")

    def picture(self, file: Path, height: int | None = None) -> None:
        """Writes a picture of the page, as high as the page where no height is given."""
        height = height or self.run("document.documentElement.scrollHeight")
        width = self.run("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def running_browser(profile: Path) -> Iterator[Browser]:
    """Starts a browser with an empty profile in that folder, and ends it."""
    command_reader, command_writer = os.pipe()
    answer_reader, answer_writer = os.pipe()
    process = subprocess.Popen(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}"], stderr=subprocess.DEVNULL,
        preexec_fn=_renumber(command_reader, answer_writer), pass_fds=(READING, WRITING),
    )  # fmt: skip
    os.close(command_reader)
    os.close(answer_writer)
    with os.fdopen(command_writer, "wb") as commands, os.fdopen(answer_reader, "rb") as answers:
        try:
            yield Browser(commands, answers)
        finally:
            process.kill()
            process.wait()


def _renumber(reader: int, writer: int) -> Callable[[], None]:
    """Returns what gives the two pipes the numbers that Chromium expects, in the child before it starts."""

    def renumber() -> None:
        free_reader, free_writer = os.dup(reader), os.dup(writer)
        os.dup2(free_reader, READING)
        os.dup2(free_writer, WRITING)

    return renumber
