"""Keeps the README true: prints its commands for CI, and writes what they really print into its recorded blocks.

python docs/record.py --print 1        # the first shell block, as it stands
python docs/record.py 1                # runs it and records its output in the block marked `<!-- recorded: 1 -->`
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_SHELL = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LAST_LINES = {1: 40, 2: 1}
"""Lines of output that are kept of each block."""


def shell_block(number: int) -> str:
    """The README's shell block, counted from 1."""
    blocks = _SHELL.findall(README.read_text(encoding="utf-8"))
    if not 1 <= number <= len(blocks):
        sys.exit(f"README.md has {len(blocks)} shell blocks, no number {number}")
    return blocks[number - 1]


def record(number: int) -> int:
    """Runs a block in the repository's root and puts the tail of its output into the README. Its exit status."""
    start = time.perf_counter()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", shell_block(number)], cwd=ROOT, capture_output=True, text=True
    )
    took = time.perf_counter() - start
    sys.stdout.write(done.stdout + done.stderr)
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()][-LAST_LINES[number] :]
    gpu = "a GPU" if shutil.which("nvidia-smi") else "no GPU"
    machine = f"{os.cpu_count()} cores ({gpu}, load average {os.getloadavg()[2]:.0f} over 15 minutes)"
    note = f"Recorded {datetime.now(UTC):%Y-%m-%d}, {took:.0f} s on {machine}, exit status {done.returncode}."
    body = "\n".join(["```text", *lines, "```", note])
    text = README.read_text(encoding="utf-8")
    mark = re.compile(rf"(<!-- recorded: {number} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not mark.search(text):
        sys.exit(f"README.md has no block marked <!-- recorded: {number} -->")
    README.write_text(mark.sub(lambda m: f"{m[1]}{body}\n{m[2]}", text), encoding="utf-8")
    return done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, help="which shell block of README.md, counted from 1")
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the block and do not run it")
    given = parser.parse_args()
    if given.only_print:
        sys.stdout.write(shell_block(given.number))
    else:
        sys.exit(record(given.number))


if __name__ == "__main__":
    main()
