"""Calls that a kernel file was not judged on: is each answer right, or does the file say no?

    python -m bench.contracts [--only NAME ...] [--set developed|picked] [--out bench/results/contracts.md]

`agent solve` writes a file for every problem. In a process of its own, under TRITON_INTERPRET=1, its `ModelNew` and the
reference are then called alike: with transposed, sliced, expanded and offset tensors, other types, more dimensions,
one input longer than the others, `.train()`, `.half()`, gradients. A call is right where both answer alike, raises
where the file refuses it in one line, and wrong everywhere else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from bench.contract_problems import DEVELOPED, PICKED, Case

RESULT = Path(__file__).parent / "results" / "contracts.md"
Outcomes = dict[str, str]
"""What became of each call: `right`, `raises: MESSAGE`, `wrong: HOW`."""


def write_kernel(case: Case, folder: Path) -> Path | None:
    """Runs `agent solve`; returns the file that it wrote, None where it found no correct kernel."""
    problem = case.problem
    if case.source:
        problem = f"{case.name}.py"
        (folder / problem).write_text(case.source, encoding="utf-8")
    policy: list[str] = list(case.options)
    if case.kernel:
        (folder / "script.json").write_text(
            json.dumps({"answers": [case.kernel]}), encoding="utf-8"
        )
        policy = ["--policy", "scripted:script.json"]
    command = [sys.executable, "-m", "kernelwright.agent", "solve", problem, *policy, "--device", "cpu", "--json",
               "--out", "kernel_triton.py"]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        print(f"{case.name}: no kernel: {done.stderr[-300:]}", file=sys.stderr)
        return None
    solved = json.loads(done.stdout)
    stage = solved["report"]["interpreted"]
    (folder / "sizes.json").write_text(json.dumps(stage["sizes"]), encoding="utf-8")
    return folder / solved["output"]


def call_file(kernel: Path, problem: str) -> Outcomes:
    """Calls the file in a process of its own, by Triton's interpreter."""
    command = [sys.executable, "-m", "bench.contract_calls", str(kernel), problem]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{kernel}: the calls failed: {done.stderr[-2000:]}")
    outcomes: Outcomes = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def measure(cases: Sequence[Case]) -> dict[str, Outcomes | None]:
    """The outcomes of each case; None where there is no kernel."""
    measured: dict[str, Outcomes | None] = {}
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="contracts-") as folder:
            kernel = write_kernel(case, Path(folder))
            problem = str(Path(folder) / f"{case.name}.py") if case.source else case.problem
            measured[case.name] = None if kernel is None else call_file(kernel, problem)
        shown = measured[case.name]
        print(
            case.name,
            "no kernel" if shown is None else dict(_counts(shown)),
            file=sys.stderr,
            flush=True,
        )
        for call, outcome in (shown or {}).items():
            if outcome.startswith("wrong"):
                print(f"    {call}: {outcome}", file=sys.stderr, flush=True)
    return measured


def _counts(outcomes: Outcomes) -> Counter[str]:
    return Counter(outcome.partition(":")[0] for outcome in outcomes.values())


def page(measured: dict[str, Outcomes | None], command: str) -> str:
    """The result as Markdown."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, no GPU, Triton's interpreter"
    lines = [
        "# Calls outside of what was judged",
        "",
        f"`{command}`, {date.today()}, {machine}.",
        "",
        "Problems of the first table were at hand while the checks were written; those of the second one were picked",
        "afterwards. A call is right where the file and the reference answer alike, raises where the file refuses it",
        "in one line, and wrong everywhere else.",
    ]
    for title, cases in (("Developed with", DEVELOPED), ("Picked afterwards", PICKED)):
        rows = {case.name: measured[case.name] for case in cases if case.name in measured}
        if rows:
            lines += ["", f"## {title}", "", *_table(rows)]
    return "\n".join(lines) + "\n"


def _table(rows: dict[str, Outcomes | None]) -> list[str]:
    lines = [
        "| problem | calls | right | raises | wrong | wrong calls |",
        "|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for name, outcomes in rows.items():
        if outcomes is None:
            lines.append(f"| {name} | no kernel | | | | |")
            continue
        counts = _counts(outcomes)
        total += counts
        wrong = "; ".join(
            f"{call} ({outcome})"
            for call, outcome in outcomes.items()
            if outcome.startswith("wrong")
        )
        lines.append(f"| {name} | {_row(counts)} | {wrong} |")
    return [*lines, f"| all | {_row(total)} | |"]


def _row(counts: Counter[str]) -> str:
    return f"{sum(counts.values())} | {counts['right']} | {counts['raises']} | {counts['wrong']}"


def main() -> None:
    """Measures the problems that were asked for, and writes the page where all of them were."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--set", choices=["developed", "picked"], dest="chosen")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sets = {"developed": DEVELOPED, "picked": PICKED, None: (*DEVELOPED, *PICKED)}
    cases = [case for case in sets[options.chosen] if not options.only or case.name in options.only]
    text = page(measure(cases), f"python -m bench.contracts {' '.join(sys.argv[1:])}".strip())
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
