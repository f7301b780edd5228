"""Reads TritonBench's T channel (thunlp): operators available in torch, each with a test. A call
in the test becomes a problem.

An operator's file contains the torch operator, a line of #, and `test_*` functions that call the
operator. Tensors of the first usable call (or of the selected call, `NAME#2`) become
get_inputs(), and other arguments are written into Model.forward. Limitation: the test's tensors
are tiny and often constant, so these problems measure correctness, not speed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kernelwright.agent.problems import matching
from kernelwright.agent.problems.reading import problem_of, read_text
from kernelwright.agent.problems.tritonbench_cases import NotAProblem, convert
from kernelwright.tools.problem import Problem, ProblemError

TRITONBENCH_PREFIX = "tritonbench-t:"
TRITONBENCH_FOLDER = "TritonBench_T_v1"
LISTING_FILE = "TritonBench_T_v1.jsonl"


def find(query: str, path: Path | None) -> Problem:
    """Finds an operator by `softmax_log`, `softmax log` or `softmax_log#2` (its second call).
    Raises ProblemError, with the reason if the operator cannot become a problem.
    """
    if path is None:
        raise ProblemError(
            "a TritonBench-T operator needs the checkout: give it with --tritonbench DIR"
        )
    name, _, case = query.strip().partition("#")
    if case and not (case.isdigit() and int(case)):
        raise ProblemError(
            f"{TRITONBENCH_PREFIX}{query}: after # comes the number of a call in the operator's test, from 1"
        )
    files = {f.stem: f for f in _files(path)}
    match = matching.match_name(name, dict.fromkeys(files, ()))
    if match is None:
        near = ", ".join(matching.nearest_names(name, dict.fromkeys(files, ())))
        raise ProblemError(f"no operator {name!r} in {path}: near ones are {near}")
    problem = _problem(
        files[match.name], int(case) if case else None, _titles(path).get(match.name, "")
    )
    return match.note_in(problem, f"{TRITONBENCH_PREFIX}{query}")


def suite(path: Path) -> list[Problem]:
    """Returns all operators that can become problems; `refused_operators` returns the others.

    Raises ProblemError if there are none.
    """
    return _read(path)[0]


def is_checkout(path: Path) -> bool:
    """Returns whether a folder contains the T channel at a usual location."""
    return any(f.name == TRITONBENCH_FOLDER and f.is_dir() for f in _folders(path))


def refused_operators(path: Path) -> dict[str, str]:
    """Returns operators that cannot become problems, with reasons."""
    return _read(path)[1]


def _read(path: Path) -> tuple[list[Problem], dict[str, str]]:
    problems: list[Problem] = []
    reasons: dict[str, str] = {}
    titles = _titles(path)
    for file in _files(path):
        try:
            problems.append(_problem(file, None, titles.get(file.stem, "")))
        except ProblemError as error:
            reasons[file.stem] = str(error)
    return problems, reasons


def _problem(file: Path, case: int | None, title: str) -> Problem:
    name = f"{TRITONBENCH_PREFIX}{file.stem}" + (f"#{case}" if case else "")
    try:
        source = convert(read_text(file), file.stem, case)
    except NotAProblem as error:
        raise ProblemError(f"{name} cannot be turned into a problem: {error}") from None
    return problem_of(source, name, "tritonbench-t", title=title, family="tritonbench-t")


def _folders(path: Path) -> tuple[Path, ...]:
    return path / "data" / TRITONBENCH_FOLDER, path / TRITONBENCH_FOLDER, path


def _files(path: Path) -> list[Path]:
    folder = next((f for f in _folders(path) if f.name == TRITONBENCH_FOLDER and f.is_dir()), None)
    files = sorted(folder.glob("*.py")) if folder else []
    if not files:
        raise ProblemError(
            f"{path} holds no TritonBench-T: it should hold data/{TRITONBENCH_FOLDER}/*.py, as in its repository"
        )
    return files


def _titles(path: Path) -> dict[str, str]:
    """Returns the first sentence of each description, if the listing exists (a JSON list despite
    its name).
    """
    listing = next(
        (
            f
            for f in (path / "data" / LISTING_FILE, path / LISTING_FILE, path.parent / LISTING_FILE)
            if f.is_file()
        ),
        None,
    )
    if listing is None:
        return {}
    try:
        rows = json.loads(listing.read_text("utf-8"))
        return {Path(r["file"]).stem: _sentence(str(r.get("description", ""))) for r in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProblemError(f"{listing} is not TritonBench-T's list of operators: {error}") from None


def _sentence(text: str) -> str:
    return re.split(r"(?<=[a-z)])\.\s", " ".join(text.split()))[0].rstrip(".")[:160]
