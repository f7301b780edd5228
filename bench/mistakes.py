"""Gives `agent` more than a hundred commands that users give by mistake, and tells whether each ends as documented.

    python -m bench.mistakes [--half developed|held-out]

As documented: the exit status, no traceback, and exactly one line on stderr, `agent: ...`, that says what to do (of a
verdict: nothing on stderr). Progress (`[12 s] ...`) and the line at a signal are not counted. The table goes to
bench/results/mistakes.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.mistakes_table import DEVELOPED, FIRST_RUN, GROUPS, HELD_OUT, MISTAKES, Mistake

RESULT = Path(__file__).parent / "results" / "mistakes.md"
MAX_SECONDS = 300.0
RELU = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 128)]
"""
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_pointer, output_pointer, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(output_pointer + offsets, tl.maximum(tl.load(x_pointer + offsets, mask=mask), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        output = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, output, x.numel(), BLOCK=1024)
        return output
"""
HIDING = """import sys
from importlib.machinery import PathFinder

hidden = sys.argv.pop(1)


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == hidden else super().find_spec(name, path, target)


sys.meta_path[:] = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
from kernelwright.agent.__main__ import run

run()
"""


def write_files(folder: Path) -> None:
    """Fills a folder with the files and databases that the mistakes name."""
    texts = {
        "relu.py": RELU,
        "kernel.py": KERNEL,
        "syntax.py": RELU.replace("def forward(self, x):", "def forward(self, x)"),
        "empty.py": "",
        "no_class.py": "import torch\n\nlayers = 3\n",
        "no_inputs.py": RELU.partition("def get_inputs")[0],
        "wrong_inputs.py": RELU.replace("torch.relu(x)", "x @ torch.ones(64, 2)"),
        "no_return.py": RELU.replace("return torch.relu(x)", "torch.relu(x)"),
        "raises.py": RELU + "\nraise RuntimeError('no weights here')\n",
        "two_inputs.py": RELU.replace("self, x", "self, x, y").replace(
            "[torch", "[torch.randn(64, 128), torch"
        ),
        "slow.py": "import time\n\ntime.sleep(30)\n" + RELU,
        "slow_import.py": KERNEL,
        "crlf.py": RELU.replace("\n", "\r\n"),
        "nulls.py": KERNEL + "\0",
        "huge.py": KERNEL + "#" * (3 << 20),
        "folder/relu.py": RELU,
        "bad_folder/no_class.py": "layers = 3\n",
        "bin/agent": f"#!{sys.executable}\nfrom kernelwright.agent.__main__ import run\n\nrun()\n",
        "bin/hiding": f"#!{sys.executable}\n{HIDING}",
        "model/config.json": '{"model_type": "gpt2"}',
    }
    for name in ("folder", "bad_folder", "empty_folder", "model", "bin", "disk"):
        (folder / name).mkdir()
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    for name in ("bin/agent", "bin/hiding"):
        (folder / name).chmod(0o755)
    (folder / "bom.py").write_text(RELU, encoding="utf-8-sig")
    (folder / "latin.py").write_bytes(RELU.replace("64", "64  # h\xf6he").encode("latin-1"))
    (folder / "binary.py").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
    (folder / "loop.py").symlink_to("loop.py")
    _write_databases(folder)


def _write_databases(folder: Path) -> None:
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.agent.problems.finding import find_by_name
    from kernelwright.store.database import Store

    with sqlite3.connect(folder / "foreign.db") as other:
        other.execute("create table songs (name text)")
    for name in ("one", "older", "newer"):
        with Store.open(str(folder / f"{name}.db")) as store:
            trajectory = store.begin(
                Settings(policy="scripted:none").start(find_by_name("fused silu"), "1")
            )
            store.pause(trajectory.id, "interrupted")
    for name, step in (("older", -1), ("newer", 1)):
        with sqlite3.connect(folder / f"{name}.db") as changed:
            version = changed.execute("pragma user_version").fetchone()[0]
            changed.execute(f"pragma user_version = {version + step}")
    content = bytearray((folder / "one.db").read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    (folder / "corrupt.db").write_bytes(content)


class Outcome(NamedTuple):
    """What one command did."""

    status: int
    out: str
    err: str
    seconds: float = 0.0


def run(mistake: Mistake, folder: Path) -> Outcome:
    """Runs one command in bash."""
    started = time.monotonic()
    surroundings = {
        **os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "200",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    surroundings.pop("OPENAI_API_KEY", None)
    done = subprocess.run(
        ["bash", "-c", mistake.command], cwd=folder, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=MAX_SECONDS, check=False,
    )  # fmt: skip
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return Outcome(done.returncode, out, err, time.monotonic() - started)


def faults(mistake: Mistake, outcome: Outcome) -> list[str]:
    """Returns what is not as documented; empty where everything is."""
    progress = re.compile(r"\[\d+ s\] |paus|stopping|skipped")
    lines = [line for line in outcome.err.splitlines() if line and not progress.match(line)]
    answer = outcome.out if mistake.verdict else outcome.err
    checks = {
        f"status {outcome.status}": outcome.status != mistake.status,
        "traceback": "Traceback" in outcome.out + outcome.err,
        "internal error": "internal error" in outcome.err,
        f"{len(lines)} lines on stderr": len(lines) != (0 if mistake.verdict else 1),
        "not by agent": not mistake.verdict
        and not all(line.startswith("agent: ") for line in lines),
        f"does not say {mistake.says!r}": mistake.says not in answer,
    }
    return [fault for fault, wrong in checks.items() if wrong]


def table(outcomes: dict[Mistake, Outcome]) -> str:
    """The report, in Markdown."""
    right = [mistake for mistake, outcome in outcomes.items() if not faults(mistake, outcome)]
    lines = [
        "# Mistakes of a user", "",
        f"`python -m bench.mistakes`, {time.strftime('%Y-%m-%d %H:%M')}, {platform.node()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}. {len(right)} of {len(outcomes)} end as documented: exit status, one line "
        "that says what to do, no traceback.", "", FIRST_RUN, "",
    ]  # fmt: skip
    for group, mistakes in GROUPS.items():
        rows = [(mistake, outcomes[mistake]) for mistake in mistakes if mistake in outcomes]
        lines += [f"## {group}", "", "| command | status | what it says | |", "|---|---|---|---|"]
        lines += [_row(mistake, outcome) for mistake, outcome in rows]
        lines.append("")
    return "\n".join(lines)


def _row(mistake: Mistake, outcome: Outcome) -> str:
    said = [
        line for line in outcome.err.splitlines() if line.startswith("agent: ")
    ] or outcome.out.splitlines()[:1]
    cells = (_cell(f"`{mistake.command}`"), str(outcome.status), _cell(said[-1] if said else ""))
    return f"| {' | '.join(cells)} | {'; '.join(faults(mistake, outcome)) or 'as documented'} |"


def _cell(text: str) -> str:
    short = text if len(text) <= 240 else f"{text[:180]} ... {text[-40:]}"
    return short.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the mistakes, prints what is not as documented, and writes the table where all were run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("developed", "held-out"))
    parser.add_argument("--fast", action="store_true", help="only what takes less than seconds")
    asked = parser.parse_args(arguments)
    chosen = {"developed": DEVELOPED, "held-out": HELD_OUT}.get(asked.half, MISTAKES)
    outcomes: dict[Mistake, Outcome] = {}
    with tempfile.TemporaryDirectory() as place:
        write_files(Path(place))
        for mistake in chosen:
            if asked.fast and mistake.slow:
                continue
            outcomes[mistake] = outcome = run(mistake, Path(place))
            wrong = "; ".join(faults(mistake, outcome))
            print(
                f"{outcome.seconds:5.1f} s  {'WRONG ' + wrong if wrong else 'ok'}  {mistake.command[:120]}",
                flush=True,
            )
            if wrong:
                print("    " + "\n    ".join(outcome.err.splitlines()[-6:]), flush=True)
    if asked.half is None and not asked.fast:
        RESULT.write_text(table(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
