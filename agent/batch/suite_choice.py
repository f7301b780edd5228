"""Chooses the problems of a batch, and the name of its run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kernelwright.agent.problems.finding import SUITE_NAMES, find_by_name, load_suite, refuse_level
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem


def choose_problems(
    what: Sequence[str],
    path: Path | None = None,
    level: int | None = None,
    limit: int | None = None,
) -> list[Problem]:
    """Suites, folders, parquet files and single problems, in the order given, each problem once.

    Raises InputError and ProblemError.
    """
    if not what:
        raise InputError(
            f"nothing to do: name a suite ({', '.join(SUITE_NAMES)}), a folder, a parquet file or problems"
        )
    found = {problem.hash: problem for name in what for problem in _named(name, path, level)}
    problems = list(found.values())[:limit]
    names = [problem.name for problem in problems]
    twice = sorted({name for name in names if names.count(name) > 1})
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


def default_run(what: Sequence[str], level: int | None) -> str:
    """`kernelbench-level1`, `catalogue`, `softmax-and-2-more`."""
    first = re.sub(
        r"\W+", "_", Path(what[0]).stem if what[0].endswith((".py", ".parquet")) else what[0]
    ).strip("_")
    first = first.replace("tritonbench_t", "tritonbench-t") or "problems"
    if level is not None:
        return f"{first}-level{level}"
    return first if len(what) == 1 else f"{first}-and-{len(what) - 1}-more"
