"""Reads a file or text as a Problem, with one-line errors and advice."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kernelwright.agent.problems.data_files import with_data
from kernelwright.agent.problems.entry_points.entry_problems import reference_of_text
from kernelwright.agent.problems.entry_points.notebooks import notebook_text
from kernelwright.agent.problems.entry_points.sibling_imports import with_siblings
from kernelwright.agent.problems.other_inputs import with_first_inputs
from kernelwright.tools.problem import (
    Problem,
    ProblemError,
    check_form,
    inner_integers,
    module_integers,
    parse,
)

MAX_REFERENCE_BYTES = 2 << 20
"""Maximum size of a reference file in bytes."""


def read_text(path: Path) -> str:
    """Reads a text file.

    Raises ProblemError if the file is missing, a folder, unreadable, too large, or not UTF-8.
    """
    try:
        if path.is_dir():
            raise ProblemError(
                f"{path} is a folder: name one of its .py files, or take all of them by agent batch {path}"
            )
        if path.stat().st_size > MAX_REFERENCE_BYTES:
            raise ProblemError(
                f"{path} is larger than {MAX_REFERENCE_BYTES >> 20} MB: a problem is one Python file"
            )
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ProblemError(
            f"no file {path}: give the path of a reference in KernelBench form"
        ) from None
    except UnicodeDecodeError:
        raise ProblemError(f"{path} is not UTF-8 text: a problem is one Python file") from None
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror or error}") from None


class EntryPoint(NamedTuple):
    """Part of a file or package that is the problem, with its arguments."""

    name: str = ""
    """Class, function or value; "" to detect the entry from the text."""
    init: tuple[str, ...] = ()
    """Arguments of the constructor, in the syntax of `--init` (option_values.py)."""
    inputs: tuple[str, ...] = ()
    """Arguments of forward, in the syntax of `--input`."""


WHOLE_FILE = EntryPoint()


def read_problem(
    path: Path, name: str = "", suite: str = "file", entry: EntryPoint = WHOLE_FILE
) -> Problem:
    """Reads a file in KernelBench form with title, FAMILY, TAGS and HELD_OUT, or a notebook.

    Raises ProblemError.

    Modules and functions with inputs in their file are completed to KernelBench form (forms.py),
    also with a JSON file beside them (data_files.py).
    """
    text = read_text(path)
    name = name or (f"{path.name}:{entry.name}" if entry.name else path.name)
    try:
        text = (
            notebook_text(text)
            if path.suffix == ".ipynb"
            else with_data(with_siblings(text, path), path)
        )
        return problem_of(reference_of_text(with_first_inputs(text), *entry), name, suite)
    except ProblemError as error:
        raise error if str(error).startswith(name) else ProblemError(f"{name}: {error}") from None


def problem_of(source: str, name: str, suite: str, *, title: str = "", family: str = "") -> Problem:
    """Returns the problem for a text.

    Raises ProblemError, prefixed with the name, if the text lacks the form.
    """
    try:
        check_form(source)
        facts = _facts(source)
        _check_cpu_sizes(source, facts.get("CPU_SIZES", {}))
    except ProblemError as error:
        raise ProblemError(f"{name}: {error}") from None
    tags = (
        *texts(facts.get("TAGS", ())),
        *(("held_out",) if facts.get("HELD_OUT") is True else ()),
    )
    docstring_title = str(facts.get("title", ""))
    return Problem(
        name=name,
        source=source,
        suite=suite,
        title=title or docstring_title,
        family=family or str(facts.get("FAMILY", "")),
        tags=tags,
    )


def aliases(source: str) -> tuple[str, ...]:
    """Returns the alternative names declared in a reference."""
    return texts(_facts(source).get("ALIASES", ()))


def texts(value: object) -> tuple[str, ...]:
    """Returns the texts among the elements of a value; none if not iterable."""
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, Iterable) else ()


def _check_cpu_sizes(source: str, sizes: object) -> None:
    whole = isinstance(sizes, dict) and all(
        isinstance(k, str) and type(v) is int and v > 0 for k, v in sizes.items()
    )
    if not isinstance(sizes, dict) or not whole:
        raise ProblemError('CPU_SIZES must be a dict of positive integers, such as {"rows": 5}')
    if sizes and (
        unknown := set(sizes) - set(module_integers(source)) - set(inner_integers(source))
    ):
        raise ProblemError(
            f"CPU_SIZES names {', '.join(sorted(unknown))}, which is no module-level integer of it"
        )


def _facts(source: str) -> dict[str, object]:
    """Returns module-level capitalised names with literal values, and the docstring's first line
    as `title`.
    """
    tree = parse(source)
    facts: dict[str, object] = {
        "title": ((ast.get_docstring(tree) or "").strip().splitlines() or [""])[0].rstrip(".")
    }
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(target := node.targets[0], ast.Name)
            and target.id.isupper()
        ):
            try:
                facts[target.id] = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError):
                continue
    return facts
