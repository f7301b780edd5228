"""Draws docs/report.png, the HTML report of a run, and docs/service.png, the page of the judge service.

python docs/screenshots.py       # needs Chromium and the extra `serve`; two minutes on two cores

The run is that of docs/picture.py; the service judges the same three answers and a kernel of the tests.
"""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = Path("/usr/bin/chromium")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
PAGE_MILLISECONDS = 6000
"""Time that the page has to fetch and draw."""
SERVER_SECONDS = 120
SERVED = ("fused_softmax", "fused_silu", "row_sum")
"""Problems whose good kernels the service judges beside the answers."""


def take_picture(address: str, picture: Path, height: int, profile: Path) -> None:
    """Writes a picture of a page, 1000 pixels wide."""
    options = [
        f"--user-data-dir={profile}",
        f"--window-size=1000,{height}",
        f"--screenshot={picture}",
    ]
    command = [
        str(CHROMIUM),
        *QUIET,
        f"--virtual-time-budget={PAGE_MILLISECONDS}",
        *options,
        address,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=SERVER_SECONDS)


def agent(folder: Path, *arguments: str) -> None:
    """Runs a command of `agent` of this checkout in a folder."""
    command = [sys.executable, "-m", "kernelwright.agent", *arguments]
    subprocess.run(command, cwd=folder, env=environment(), check=False, stdout=subprocess.DEVNULL)


def environment() -> dict[str, str]:
    """Returns the variables under which the commands of this checkout are found."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def picture_of_report(folder: Path) -> None:
    """Runs the scripted answers of docs/picture.py and draws the report of that run."""
    script = runpy.run_path(str(ROOT / "docs" / "picture.py"))
    script["run_answers"](folder)
    agent(folder, "report", "1", "--html", "--db", "runs.db", "--out", "report.html")
    take_picture(
        (folder / "report.html").as_uri(), ROOT / "docs" / "report.png", 1000, folder / "profile"
    )


def picture_of_service(folder: Path) -> None:
    """Starts a service, has it judge right and wrong kernels, and draws its page."""
    answers = runpy.run_path(str(ROOT / "docs" / "picture.py"))["answers"]()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "serve",
        "--no-token",
        "--device",
        "cpu",
        "--port",
        str(port),
    ]
    server = subprocess.Popen([*command, "--store", "verdicts.db"], cwd=folder, env=environment())
    address = f"http://127.0.0.1:{port}"
    try:
        await_server(port)
        for name in SERVED:
            kernel = ROOT / "tests" / "kernels" / "good" / f"{name}.py"
            agent(
                folder,
                "check",
                str(kernel),
                "--problem",
                name.replace("_", " "),
                "--server",
                address,
            )
        for number, answer in enumerate(answers):
            (folder / f"answer_{number}.md").write_text(answer, encoding="utf-8")
            agent(
                folder,
                "check",
                f"answer_{number}.md",
                "--problem",
                "fused silu",
                "--server",
                address,
            )
        take_picture(address, ROOT / "docs" / "service.png", 900, folder / "profile")
    finally:
        server.terminate()
        server.wait()


def await_server(port: int) -> None:
    """Returns when the service listens; raises TimeoutError where it does not in two minutes."""
    end = time.monotonic() + SERVER_SECONDS
    while time.monotonic() < end:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError(f"nothing listens on port {port} after {SERVER_SECONDS} s")


def main() -> None:
    """Draws both pictures."""
    if not CHROMIUM.is_file():
        sys.exit(f"{CHROMIUM} is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        picture_of_report(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        picture_of_service(Path(folder))


if __name__ == "__main__":
    main()
