"""Chooses the problems of a batch, and the name of its run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kernelwright.agent.problems.finding import SUITE_NAMES, find_by_name, load_suite, refuse_level
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem


def choose_problems(
    names: Sequence[str],
    path: Path | None = None,
    level: int | None = None,
    limit: int | None = None,
) -> list[Problem]:
    """Returns the problems of suites, folders, parquet files and single names, in their order,
    each problem once.

    Raises InputError and ProblemError.
    """
    if not names:
        raise InputError(
            f"nothing to do: name a suite ({', '.join(SUITE_NAMES)}), a folder, a parquet file or problems"
        )
    by_hash: dict[str, Problem] = {}
    for name in names:
        for problem in _named(name, path, level):
            by_hash[problem.hash] = problem
    problems = list(by_hash.values())[:limit]
    counts = Counter(problem.name for problem in problems)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InputError(
            f"several problems are named {', '.join(twice[:3])}: rename their files, or make two runs"
        )
    return problems


def _named(name: str, path: Path | None, level: int | None) -> list[Problem]:
    if name.endswith(".parquet"):
        return load_suite("kernelbench", name, level)
    if name in SUITE_NAMES or Path(name).is_dir():
        return load_suite(name, None if name == "catalogue" else path, level)
    refuse_level(name, level)
    return [find_by_name(name, kernelbench=path, tritonbench=path)]


def default_run(names: Sequence[str], level: int | None) -> str:
    """Returns the default name of a run: `kernelbench-level1`, `catalogue`, `softmax-and-2-more`."""
    stem = Path(names[0]).stem if names[0].endswith((".py", ".parquet")) else names[0]
    first = re.sub(r"\W+", "_", stem).strip("_")
    first = first.replace("tritonbench_t", "tritonbench-t") or "problems"
    if level is not None:
        return f"{first}-level{level}"
    return first if len(names) == 1 else f"{first}-and-{len(names) - 1}-more"
