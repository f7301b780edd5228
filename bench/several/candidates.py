"""Candidates for a machine with several GPUs: the repository's own kernels, and the compiler's drafts of KernelBench.

    python -m bench.several.candidates --out FILE [--kernelbench DIR] [--levels 1,2] [--every 4] [--seconds 40]

Drafts are made for as long as `--seconds` allow, by half of the cores at once; the file holds what was made.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path

from bench.judge_suites import honest, problem_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value


class Candidate(Value):
    """One text to be judged."""

    kind: str
    """ours, or compiler."""
    problem: Problem
    source: str
    own_work: str = "strict"

    def variant(self, series: str, number: int = 0) -> Candidate:
        """The same program as another content: no verdict of the one is a verdict of the other."""
        return self.with_(source=f"{self.source}\n\nSERIES = {series!r}, {number}\n")

    def fresh(self, series: str, number: int = 0) -> Candidate:
        """A variant whose kernels are others, too: each has one comment more, and is compiled from nothing."""
        lines = self.source.splitlines()
        for place, indent in sorted(_first_statements(self.source), reverse=True):
            lines.insert(place, f"{' ' * indent}# {series}, {number}")
        return self.with_(source="\n".join(lines)).variant(series, number)


def _first_statements(source: str) -> list[tuple[int, int]]:
    """Index of the line and indentation of the first statement of each jitted function."""
    functions = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef))
    jitted = (
        one for one in functions if any("jit" in ast.unparse(by) for by in one.decorator_list)
    )
    return [
        (one.body[0].lineno - 1, one.body[0].col_offset)
        for one in jitted
        if one.body[0].lineno > one.lineno
    ]


def ours(on_gpu: bool) -> list[Candidate]:
    """tests/kernels/good, one candidate for each problem."""
    found: dict[str, Candidate] = {}
    for entry in honest():
        if entry.own_work == "strict" and (on_gpu or (entry.needs != "gpu" and not entry.on_cpu)):
            problem = problem_of(entry.problem)
            found.setdefault(
                problem.hash, Candidate(kind="ours", problem=problem, source=entry.source)
            )
    return list(found.values())


def drafts(checkout: Path, levels: Sequence[int], every: int, seconds: float) -> list[Candidate]:
    """The compiler's, of every `every`-th problem; those that are not there in time are left out."""
    from kernelwright.agent.problems.finding import load_suite
    from kernelwright.agent.solve.drafting import Drafter

    problems = [
        problem
        for level in levels
        for problem in load_suite("kernelbench", checkout, level)[::every]
    ]
    ends, found = time.monotonic() + seconds, list[Candidate]()
    with Drafter() as drafter:
        threads = ThreadPoolExecutor(max_workers=32)
        asked = {threads.submit(drafter.draft, problem): problem for problem in problems}
        try:
            for done in as_completed(asked, timeout=max(0.1, ends - time.monotonic())):
                if (draft := done.result()).usable:
                    found.append(
                        Candidate(kind="compiler", problem=asked[done], source=draft.source)
                    )
        except TooLate:
            print(f"{len(found)} of {len(problems)} drafts in time", file=sys.stderr)
        threads.shutdown(wait=False, cancel_futures=True)
    return found


def in_turns(*lists: Sequence[Candidate]) -> list[Candidate]:
    """One of each in turn, so that every part of the list is of all kinds."""
    longest = max(map(len, lists), default=0)
    return [one[place] for place in range(longest) for one in lists if place < len(one)]


def read(file: Path) -> list[Candidate]:
    return [Candidate.model_validate(one) for one in json.loads(file.read_text(encoding="utf-8"))]


def endless(candidates: Sequence[Candidate], series: str) -> Iterator[Candidate]:
    """All of them again and again, no content and no kernel twice."""
    turn = 0
    while True:
        yield from (one.fresh(series, turn) for one in candidates)
        turn += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument(
        "--levels", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2]
    )
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--cpu", action="store_true", help="leave out what no CPU can interpret")
    given = parser.parse_args()
    own = ours(on_gpu=not given.cpu)
    drafted = (
        drafts(given.kernelbench, given.levels, given.every, given.seconds)
        if given.kernelbench
        else []
    )
    found = in_turns(own, drafted)
    beside = given.out.with_name(f".{given.out.name}.part")
    beside.write_text(json.dumps([one.model_dump(mode="json") for one in found]), encoding="utf-8")
    beside.replace(given.out)
    print(
        f"{len(own)} kernels of the repository, {len(drafted)} drafts of the compiler", flush=True
    )
    os._exit(0)  # drafts that are under way would be waited for, and each may take a minute


if __name__ == "__main__":
    main()
