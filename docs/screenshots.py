"""Draws docs/report.png, the HTML report of a run, and docs/service*.png, the page of the judge service.

python docs/screenshots.py       # needs Chromium and the extra `serve`; two minutes on two cores

The run is that of docs/picture.py; the service judges the same three answers and kernels of the tests. Its page is
drawn by the browser of the tests (tests/agent/serving/browser.py), whose width may be that of a phone.
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
ROLLOUTS = 9
"""Texts without a kernel that the service judges, too."""
PHONE_HEIGHT = 1400


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


def pictures_of_service(folder: Path) -> None:
    """Starts a service, has it judge right and wrong kernels, and draws its page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = (
        "--no-token",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--port",
        str(port),
        "--store",
        "verdicts.db",
    )
    command = [sys.executable, "-m", "kernelwright.agent", "serve", *options]
    server = subprocess.Popen(command, cwd=folder, env=environment())
    address = f"http://127.0.0.1:{port}"
    try:
        await_server(port)
        broken = judge_candidates(address)
        draw_page(address, broken, folder / "profile")
    finally:
        server.terminate()
        server.wait()


def judge_candidates(address: str) -> str:
    """Has the service judge the answers of the run and good kernels, and returns the verdict that does not compile."""
    sys.path.insert(0, str(ROOT / "src"))
    from kernelwright import JudgeClient
    from kernelwright.tools.markdown.fenced_code import extract_code

    replies = runpy.run_path(str(ROOT / "docs" / "picture.py"))["answers"]()
    silu = (ROOT / "tests" / "kernels" / "good" / "fused_silu.py").read_text()
    with JudgeClient(address) as client:
        submitted = [
            client.submit("fused_silu", extract_code(reply), group="step-1/silu", sizes=2)
            for reply in replies
        ]
        for number in range(ROLLOUTS):
            text = f"import triton\nimport triton.language as tl\nROLLOUT = {number}\n"
            submitted.append(client.submit("row_sum", text, group=f"step-{number % 3}/sum"))
        for name in SERVED:
            kernel = (ROOT / "tests" / "kernels" / "good" / f"{name}.py").read_text()
            submitted.append(client.submit(name, kernel, group=f"step-2/{name}", sizes=2))
        broken = client.submit(
            "fused_silu", silu.replace("tl.store(", "tl.stor("), group="step-2/fused_silu", sizes=2
        )
        for verdict in [*submitted, broken]:
            verdict.result()
    return broken.verdict_id


def draw_page(address: str, verdict_id: str, profile: Path) -> None:
    """Draws the page, one verdict, and the page on a phone."""
    browser_module = runpy.run_path(str(ROOT / "tests" / "agent" / "serving" / "browser.py"))
    with browser_module["running_browser"](profile) as browser:
        browser.resize((1000, 900))
        browser.open(address, "document.querySelectorAll('#verdicts tbody a').length > 5")
        browser.wait("document.querySelector('#trend rect')")
        browser.picture(ROOT / "docs" / "service.png", 1500)
        browser.resize(browser_module["PHONE"])
        browser.open(address, "document.querySelector('#trend rect')")
        browser.picture(ROOT / "docs" / "service_phone.png", PHONE_HEIGHT)
        browser.resize((1000, 900))
        browser.open(
            f"{address}/#verdict={verdict_id}", "document.querySelector('#candidate .marked')"
        )
        browser.picture(ROOT / "docs" / "service_verdict.png")


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
    """Draws every picture."""
    if not CHROMIUM.is_file():
        sys.exit(f"{CHROMIUM} is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        picture_of_report(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        pictures_of_service(Path(folder))


if __name__ == "__main__":
    main()
