"""How many planted mistakes a policy mends: repair rows that `rl data synth` made, asked of a policy as they stand, its
answers judged.

    rl data synth --n 300 --seed 12 --out CORPUS           # a seed that the policy was not trained on
    python -m bench.repairs --data CORPUS [--policy embedded] [--rows 200]

What a policy writes wrongly by itself is another matter: it mostly does not know better (bench/results/rl.md).
"""

from __future__ import annotations

import argparse
import os
import platform
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, required=True)
    add("--policy", default="embedded")
    add("--rows", type=int, default=200)
    add("--workers", type=int, default=2)
    add("--temperature", type=float, default=0.8)
    add(
        "--without-message",
        action="store_true",
        help="as `rl sft --without-message` asks: the broken kernel alone",
    )
    asked = parser.parse_args()
    from kernelwright.rl.training.sft.encoding import without_message

    rows = repairs(asked.data, asked.rows)
    answers = answered(
        asked, [without_message(row) if asked.without_message else row.prompt for row in rows]
    )
    print(table(asked, rows, judged(asked, rows, answers), answers))


def repairs(folder: Path, count: int) -> list[Any]:
    """The first so many, each of another problem."""
    from kernelwright.rl.data.rows import Kind, read_rows

    found = {row.problem: row for row in read_rows(folder) if row.kind is Kind.REPAIR}
    return list(found.values())[:count]


def answered(asked: argparse.Namespace, prompts: list[str]) -> list[str]:
    from kernelwright.policies.base import Message, Request, Role, Sampling
    from kernelwright.policies.opening.open_policy import open_policy
    from kernelwright.tools.markdown.fenced_code import extract_code

    sampling = Sampling(temperature=asked.temperature, seed=0, max_tokens=1024)
    requests = [
        Request(messages=(Message(role=Role.USER, content=prompt),), sampling=sampling)
        for prompt in prompts
    ]
    return [
        extract_code(completion.text) for completion in open_policy(asked.policy).sample(requests)
    ]


def judged(asked: argparse.Namespace, rows: list[Any], answers: list[str]) -> list[Any]:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options
    from kernelwright.tools.problem import Problem

    options = Options(profile=False, torch_compile=False, seconds=30.0)
    problems = [Problem(name=row.problem, source=row.reference, suite="synth") for row in rows]
    with Evaluator("cpu", workers=asked.workers) as evaluator:
        waiting = [evaluator.submit(p, a, options) for p, a in zip(problems, answers, strict=True)]
        return [one.result() for one in waiting]


def table(
    asked: argparse.Namespace, rows: list[Any], reports: list[Any], answers: list[str]
) -> str:
    right = sum(report.correct for report in reports)
    same = sum(
        _parted(row.prompt)[0] == answer.strip() for row, answer in zip(rows, answers, strict=True)
    )
    told = Counter(_parted(row.prompt)[1] for row in rows)
    mended = Counter(
        _parted(row.prompt)[1] for row, report in zip(rows, reports, strict=True) if report.correct
    )
    lines = [
        f"`python -m bench.repairs --data CORPUS --policy {asked.policy} --rows {asked.rows}`, "
        f"{date.today().isoformat()}, {os.cpu_count()} cores, Python {platform.python_version()}.", "",
        f"**{right} of {len(rows)}** planted mistakes mended in one turn at temperature "
        f"{asked.temperature}; {same} answers were the broken kernel again.", "",
        "| what the tools said | rows | mended |", "|---|---|---|",
        *(f"| {kind} | {count} | {mended[kind]} |" for kind, count in told.most_common()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _parted(prompt: str) -> tuple[str, str]:
    """The broken kernel, and the fault that the tools named behind it."""
    lines = prompt.partition("# candidate\n")[2].rstrip().splitlines()
    end = len(lines)
    while end and lines[end - 1].startswith("# "):
        end -= 1
    said = lines[end].removeprefix("# ").partition(":")[0] if end < len(lines) else "nothing"
    return "\n".join(lines[:end]).strip(), said


if __name__ == "__main__":
    main()
