"""How much memory a batch over large modules takes on a CPU: the proportional set size of all its processes.

    python -m bench.batch_memory [--modules 30] [--kernelbench CHECKOUT --level 3] [--workers 2] [--most-gib 6] [--out
    bench/results/batch_memory.md]

Without a checkout the modules are of our own writing and of the size of KernelBench's level 3: multilayer perceptrons,
stacks of convolutions with wide heads, residual networks, transformers, recurrent networks, 20 to 140 million weights
each. The answer to each is the module itself with its output passed through one Triton kernel, so that every one is
traced, compiled and judged at all its sizes. Exits with 1 where the batch takes more than `--most-gib`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from bench.near_copies import candidate
from kernelwright.tools.problem import Problem

INTERVAL_SECONDS = 0.5
FORM = '''"""A large module: {title}."""

import torch
import torch.nn as nn
import torch.nn.functional as F

{sizes}
width = {width}


class Model(nn.Module):
    """Module {number} of the memory bench."""

    def __init__(self, width):
        super().__init__()
{init}

    def forward(self, x):
{forward}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return [width]
'''


class Template(NamedTuple):
    """One kind of module."""

    title: str
    sizes: str
    """Module-level integers, a line each."""
    width: int
    """Of its layers, at full size."""
    init: str
    forward: str
    shape: str


TEMPLATES = (
    Template(
        "a perceptron of three wide layers",
        "batch = 64\nfeatures = 4096",
        8192,
        "self.first = nn.Linear(4096, width)\nself.second = nn.Linear(width, width)\n"
        "self.third = nn.Linear(width, 1000)",
        "return self.third(F.relu(self.second(F.relu(self.first(x)))))",
        "batch, features",
    ),
    Template(
        "convolutions with a wide head",
        "batch = 8\nheight = 112",
        4096,
        "self.one = nn.Conv2d(3, 64, 3, padding=1)\nself.two = nn.Conv2d(64, 512, 3, padding=1)\n"
        "self.pool = nn.AdaptiveAvgPool2d((7, 7))\nself.first = nn.Linear(512 * 49, width)\n"
        "self.second = nn.Linear(width, width)\nself.third = nn.Linear(width, 1000)",
        "x = F.max_pool2d(F.relu(self.one(x)), 2)\nx = self.pool(F.relu(self.two(x))).flatten(1)\n"
        "return self.third(F.relu(self.second(F.relu(self.first(x)))))",
        "batch, 3, height, height",
    ),
    Template(
        "residual blocks of convolutions",
        "batch = 8\nheight = 56",
        512,
        "self.stem = nn.Conv2d(3, width, 3, stride=4, padding=1)\n"
        "self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(8))\n"
        "self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(8))\n"
        "self.head = nn.Linear(width, 1000)",
        "x = self.stem(x)\nfor block, norm in zip(self.blocks, self.norms):\n    x = x + F.relu(norm(block(x)))\n"
        "return self.head(x.mean(dim=(2, 3)))",
        "batch, 3, height, height",
    ),
    Template(
        "blocks of attention and perceptrons",
        "batch = 4\nlength = 128",
        1024,
        "self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True)"
        " for _ in range(4))",
        "for block in self.blocks:\n    x = block(x)\nreturn x",
        "batch, length, width",
    ),
    Template(
        "a recurrent network of several layers",
        "batch = 8\nlength = 16",
        1280,
        "self.cells = nn.LSTM(512, width, 4, batch_first=True)\nself.head = nn.Linear(width, 512)",
        "return self.head(self.cells(x)[0][:, -1])",
        "batch, length, 512",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--modules", type=int, default=30)
    add("--kernelbench", type=Path)
    add("--level", type=int, default=3)
    add("--workers", type=int, default=2)
    add("--most-gib", type=float, default=6.0)
    add("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = chosen(asked, Path(folder))
        peak, seconds, told = measured(asked, problems, Path(folder))
    text = page(asked, problems, peak, seconds, told)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if peak <= asked.most_gib * 2**30 else 1)


def chosen(asked: argparse.Namespace, folder: Path) -> list[Problem]:
    from kernelwright.agent.problems.finding import load_suite

    if asked.kernelbench:
        return load_suite("kernelbench", asked.kernelbench, asked.level)[: asked.modules]
    place = folder / "modules"
    place.mkdir()
    for number in range(asked.modules):
        (place / f"module_{number:02}.py").write_text(module(number), encoding="utf-8")
    return load_suite(str(place))


def module(number: int) -> str:
    """The text of one module: a template in its turn, a little wider or narrower than the last of its kind."""
    kind = TEMPLATES[number % len(TEMPLATES)]
    return FORM.format(
        title=kind.title,
        number=number,
        sizes=kind.sizes,
        width=kind.width + 64 * (number // len(TEMPLATES) - 2),
        init=_indented(kind.init),
        forward=_indented(kind.forward),
        shape=kind.shape,
    )


def _indented(lines: str) -> str:
    return "\n".join(f"        {line}" for line in lines.splitlines())


def measured(asked: argparse.Namespace, problems: list[Problem], folder: Path) -> tuple[int, float, str]:
    """The most bytes at once, the seconds, and what the batch printed of its verdicts."""
    parts = [{"when": _mark(problem), "answers": [f"```python\n{candidate(problem, 'unchanged')}\n```"]}
    for problem in problems]  # fmt: skip
    (folder / "script.json").write_text(json.dumps({"parts": parts}), encoding="utf-8")
    names = [problem.name for problem in problems]
    what = [f"kernelbench:{n.removeprefix('kernelbench:')}" for n in names] if asked.kernelbench else []
    line = [
        sys.executable, "-m", "kernelwright.agent", "batch", *(what or [str(folder / "modules")]),
        *(["--path", str(asked.kernelbench)] if asked.kernelbench else []),
        "--policy", f"scripted:{folder / 'script.json'}", "--device", "cpu", "--own-work", "report", "--turns", "1",
        "--workers", str(asked.workers), "--db", str(folder / "runs.db"), "--out", str(folder / "out"), "--json",
    ]  # fmt: skip
    begun, peak, shown = time.monotonic(), 0, 0.0
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as batch:
        while batch.poll() is None:
            own = proportional(batch.pid)
            held = sum(map(proportional, tree(batch.pid)))
            peak = max(peak, held)
            if time.monotonic() - shown > 20:
                shown = time.monotonic()
                print(
                    f"{shown - begun:6.0f} s  {held / 2**30:5.2f} GiB, of it the judging process {own / 2**30:5.2f}",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(INTERVAL_SECONDS)
        out, err = batch.communicate()
    if batch.returncode not in (0, 1):
        sys.exit(f"the batch failed: {err[-600:]}")
    figures = json.loads(out)["report"]["groups"][0]["figures"]
    told = f"{round(figures['correct']['value'] * len(problems))} of {len(problems)} judged correct"
    return peak, time.monotonic() - begun, told


def _mark(problem: Problem) -> str:
    """A part of the reference that only its prompt holds."""
    return problem.source.split("class Model(", 1)[1][:300]


def tree(pid: int) -> Iterator[int]:
    """This process and all below it."""
    yield pid
    try:
        children = [int(p) for task in os.listdir(f"/proc/{pid}/task") for p in
        Path(f"/proc/{pid}/task/{task}/children").read_text().split()]  # fmt: skip
    except OSError:
        return
    for child in children:
        yield from tree(child)


def proportional(pid: int) -> int:
    """Bytes of one process, what it shares with others in parts; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def page(asked: argparse.Namespace, problems: list[Problem], peak: int, seconds: float, told: str) -> str:
    suite = f"KernelBench level {asked.level}" if asked.kernelbench else "modules of our own"
    return (
        "# Memory of a batch over large modules\n\n"
        f"`python -m bench.batch_memory {' '.join(a for a in sys.argv[1:] if not a.startswith('/'))}`, "
        f"{os.cpu_count()} cores, no GPU, {platform.python_version()}, {date.today()}.\n\n"
        "| suite | problems | workers | judged | peak | seconds |\n| --- | --- | --- | --- | --- | --- |\n"
        f"| {suite} | {len(problems)} | {asked.workers} | {told} | {peak / 2**30:.2f} GiB | {seconds:.0f} |"
    )


if __name__ == "__main__":
    main()
