"""Keeps README and tutorials true: prints commands of the README for CI, and records the output of commands.

python docs/record.py --print 1        # the README's shell block before the mark `<!-- recorded: 1 -->`, as it stands
python docs/record.py 1                # runs it and records its output after that mark
python docs/record.py docs/tutorials/first-kernel.md        # runs the page in an empty folder, records what follows
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_RECORDED = re.compile(
    r"^```bash\n(?P<code>(?:(?!^```).)*?)^```\n\n<!-- recorded: (?P<number>\d+) -->$",
    re.DOTALL | re.MULTILINE,
)
"""A shell block of the README whose output is recorded after it."""
LAST_LINES = {1: 14, 2: 1}
"""How many lines of output the README shows of each recorded block, the last ones."""
README_COLUMNS = "120"
MAX_LINES_OF_A_PAGE = 24
"""Lines of output that are kept of one block of a page."""
COLUMNS_OF_A_PAGE = "140"
_STEP = re.compile(
    r'^```(?P<language>bash|python)(?: title="(?P<file>[^"]+)")?\n(?P<code>.*?)^```$'
    r"(?P<output>\n\n```text\n.*?^```$(?:\n\n\(\d+ cores[^)]*\)$)?)?",
    re.DOTALL | re.MULTILINE,
)
"""A block of code, and the output with the note on the machine that may follow it."""


def recorded_blocks() -> dict[int, str]:
    """Returns the README's shell blocks whose output is recorded, by the number of their mark."""
    text = README.read_text(encoding="utf-8")
    return {int(block["number"]): block["code"] for block in _RECORDED.finditer(text)}


def shell_block(number: int) -> str:
    """Returns the README's shell block before the mark with this number; ends the program where there is none."""
    blocks = recorded_blocks()
    if number not in blocks:
        sys.exit(
            f"README.md has no shell block before <!-- recorded: {number} -->; it has {sorted(blocks)}"
        )
    return blocks[number]


def record(number: int, installed: bool) -> int:
    """Runs a block in the repository's root and puts the tail of its output into the README. Its exit status.

    installed: the environment is there, and the commands that install it are left out, which the note says.
    """
    start = time.perf_counter()
    steps = shell_block(number).split(" && ")
    run = [step for step in steps if not (installed and re.search(r"-m venv|pip install", step))]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", " && ".join(run)], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"COLUMNS": README_COLUMNS},
    )  # fmt: skip
    took = time.perf_counter() - start
    sys.stdout.write(done.stdout + done.stderr)
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    lines = lines[-LAST_LINES[number] :]
    without = " without the installation" if len(run) < len(steps) else ""
    note = (
        f"Recorded {datetime.now(UTC):%Y-%m-%d}, {took:.0f} s{without} on {_machine()}, exit "
        f"status {done.returncode}."
    )
    body = "\n".join(["```text", *lines, "```", note])
    text = README.read_text(encoding="utf-8")
    mark = re.compile(rf"(<!-- recorded: {number} -->\n).*?(<!-- end -->)", re.DOTALL)
    README.write_text(mark.sub(lambda m: f"{m[1]}{body}\n{m[2]}", text), encoding="utf-8")
    return done.returncode


def _machine() -> str:
    gpu = "a GPU" if shutil.which("nvidia-smi") else "no GPU"
    return f"{os.cpu_count()} cores ({gpu}, load average {os.getloadavg()[2]:.0f} over 15 minutes)"


def record_page(page: Path) -> int:
    """Runs a page's shell blocks in order, in an empty folder with its files, and writes what each prints into the
    text block after it. Blocks that need what is not here are left as they are. Returns the last exit status.
    """
    status = 0
    with tempfile.TemporaryDirectory() as folder:

        def recorded(step: re.Match[str]) -> str:
            nonlocal status
            code, output = step["code"], step["output"]
            if step["file"]:
                Path(folder, step["file"]).write_text(code, encoding="utf-8")
            if step["language"] != "bash" or code.startswith("# Needs"):
                return step[0]
            status, lines = _run_in(folder, code)
            if not output:
                return step[0]
            rest = ["...", lines[-1]] if len(lines) > MAX_LINES_OF_A_PAGE else []
            body = "\n".join(["```text", *lines[:MAX_LINES_OF_A_PAGE], *rest, "```"])
            note = (
                f"\n\n({_machine().replace(' (', ', ').rstrip(')')}, {datetime.now(UTC):%Y-%m-%d})"
            )
            return (
                step[0].removesuffix(output)
                + f"\n\n{body}"
                + (note if output.endswith(")") else "")
            )

        text = _STEP.sub(recorded, page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    return status


def _run_in(folder: str, code: str) -> tuple[int, list[str]]:
    """Returns the exit status and the lines on stdout of a shell text, run in a folder with this environment's
    commands.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": COLUMNS_OF_A_PAGE}
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode, [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", help="number of a recorded shell block of README.md, or the path of a page"
    )
    parser.add_argument(
        "--print", action="store_true", dest="only_print", help="print the block and do not run it"
    )
    parser.add_argument(
        "--installed", action="store_true", help="leave out what installs the environment"
    )
    given = parser.parse_args()
    if not given.what.isdigit():
        sys.exit(record_page(Path(given.what)))
    if given.only_print:
        sys.stdout.write(shell_block(int(given.what)))
    else:
        sys.exit(record(int(given.what), given.installed))


if __name__ == "__main__":
    main()
