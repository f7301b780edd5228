"""Finds problems by name: the catalogue, user files, KernelBench, TritonBench-T, and formats of
other suites (definitions.py, gpumode.py).

Only text is read: torch is not imported, and no reference is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelwright.agent.problems import definitions, gpumode, matching
from kernelwright.agent.problems import kernelbench as kernelbench_suite
from kernelwright.agent.problems import tritonbench as tritonbench_suite
from kernelwright.agent.problems.data_files import with_data
from kernelwright.agent.problems.entry_points.entry_problems import reference_of_object
from kernelwright.agent.problems.entry_points.installed_objects import is_dotted
from kernelwright.agent.problems.forms_of_users.forms import is_problem
from kernelwright.agent.problems.reading import (
    WHOLE_FILE,
    EntryPoint,
    aliases,
    problem_of,
    read_problem,
    read_text,
)
from kernelwright.tools.problem import Problem, ProblemError

CATALOGUE = Path(__file__).parent / "catalogue"
CODE_FILES = (".py", ".ipynb")
SUITE_NAMES = ("catalogue", "kernelbench", "tritonbench-t")
CHECKOUT_URLS = {
    "kernelbench": kernelbench_suite.CHECKOUT_URL,
    "tritonbench-t": "https://github.com/thunlp/TritonBench",
}
"""Addresses of suites that are not shipped with this package."""


def find_by_name(
    name_or_path: str | Path,
    *,
    kernelbench: str | Path | None = None,
    tritonbench: str | Path | None = None,
    init: Sequence[str] = (),
    inputs: Sequence[str] = (),
) -> Problem:
    """Finds `fused softmax`, `model.py`, `model.py:Block`, `notebook.ipynb`, `torch.nn:GELU`,
    `kernelbench:1/23` or `tritonbench-t:softmax_log`.

    kernelbench: a checkout or a parquet file of the data set. tritonbench: a checkout. init,
    inputs: arguments of the constructor and of forward, in the syntax of `--init` and `--input`.
    An inexact name selects the nearest problem, whose field `taken_for` holds the requested name.
    Raises ProblemError with similar names if no name is near enough, or if two are equally near.
    """
    request = str(name_or_path).strip()
    arguments = EntryPoint("", tuple(init), tuple(inputs))
    if (init or inputs) and request.startswith(
        (kernelbench_suite.KERNELBENCH_PREFIX, tritonbench_suite.TRITONBENCH_PREFIX)
    ):
        raise ProblemError(_arguments_without_entry(request))
    if request.startswith(kernelbench_suite.KERNELBENCH_PREFIX):
        return kernelbench_suite.find(
            request.removeprefix(kernelbench_suite.KERNELBENCH_PREFIX), _path(kernelbench)
        )
    if request.startswith(tritonbench_suite.TRITONBENCH_PREFIX):
        return tritonbench_suite.find(
            request.removeprefix(tritonbench_suite.TRITONBENCH_PREFIX), _path(tritonbench)
        )
    if not request:
        raise ProblemError("no problem was named: agent problems lists the catalogue")
    file, entry = split_entry(request)
    if (
        isinstance(name_or_path, Path)
        or file.endswith((*CODE_FILES, ".json"))
        or "/" in file
        or _is_single_problem(Path(file))
    ):
        return _read(Path(file).expanduser(), arguments._replace(name=entry))
    named = request.removeprefix("catalogue:")
    if named == request and is_dotted(request):
        return problem_of(reference_of_object(request, init, inputs), request, "file")
    if init or inputs:
        raise ProblemError(_arguments_without_entry(request))
    if (catalogue_file := CATALOGUE / f"{'_'.join(named.lower().split())}.py").is_file():
        return read_problem(catalogue_file, catalogue_file.stem, "catalogue")
    match = matching.match_name(named, _names())
    if match is None:
        raise ProblemError(_unknown(request))
    return match.note_in(_catalogue()[match.name], request)


def _arguments_without_entry(name: str) -> str:
    return (
        f"--init and --input go with a class or function: give {name!r} as FILE.py or package:NAME"
    )


def refuse_unused_checkouts(
    name: str, *, kernelbench: str | Path | None = None, tritonbench: str | Path | None = None
) -> None:
    """Raises ProblemError if a checkout is passed with a problem of another suite."""
    for option, checkout, prefix in (
        ("--kernelbench", kernelbench, kernelbench_suite.KERNELBENCH_PREFIX),
        ("--tritonbench", tritonbench, tritonbench_suite.TRITONBENCH_PREFIX),
    ):
        if checkout is not None and not name.strip().startswith(prefix):
            raise ProblemError(
                f"{option} goes with a problem {prefix}NAME, and {name!r} is none: leave it out"
            )


def problem_of_value(value: object, inputs: Any, init: Any) -> Problem:
    """Returns the problem for a module, a class of modules or a function with example inputs.
    Raises ProblemError.
    """
    from kernelwright.agent.problems.entry_points.live_objects import reference_of_value

    name = getattr(value, "__name__", type(value).__name__)
    if inputs is None:
        raise ProblemError(
            f"{name} needs example inputs: give them, as find_problem({name}, [torch.randn(4, 64)])"
        )
    return problem_of(reference_of_value(value, inputs, init), name, "file")


def split_entry(name: str) -> tuple[str, str]:
    """Splits `model.py:Block` into the file and the name of the entry."""
    file, colon, entry = name.rpartition(":")
    return (
        (file, entry)
        if colon and file.endswith(CODE_FILES) and entry.isidentifier()
        else (name, "")
    )


def catalogue() -> list[Problem]:
    """Returns the shipped problems, sorted by family and name."""
    return sorted(_catalogue().values(), key=lambda p: (p.family, p.name))


def nearest_names(name: str, n: int = 5) -> list[str]:
    """Returns the `n` most similar names of the catalogue."""
    return matching.nearest_names(name, _names(), n)


def nearest_problems(name: str, n: int = 5) -> list[Problem]:
    """Returns the `n` problems with the most similar names, nearest first."""
    return [_catalogue()[near_name] for near_name in nearest_names(name, n)]


def load_suite(
    name: str, path: str | Path | None = None, level: int | None = None
) -> list[Problem]:
    """Loads all problems of `catalogue`, `kernelbench` (levels 1 to 3 by default),
    `tritonbench-t`, or a folder of files.

    A folder is passed as `name` (`suite("my_problems")`) or as `path`; checkouts of KernelBench
    and TritonBench are recognised. Raises ProblemError.
    """
    if name == "catalogue" and path is None:
        refuse_level(name, level)
        return catalogue()
    folder = _path(path)
    if name in ("kernelbench", "tritonbench-t"):
        if folder is None:
            raise ProblemError(
                f"the suite {name} needs the path of its checkout: git clone {CHECKOUT_URLS[name]}, "
                "then give --path FOLDER"
            )
        if name == "kernelbench":
            return kernelbench_suite.suite(folder, level)
        refuse_level(name, level)
        return tritonbench_suite.suite(folder)
    if folder is None and not Path(name).expanduser().is_dir():
        raise ProblemError(
            f"unknown suite {name!r}: choose {', '.join(SUITE_NAMES)}, or give a folder of problem files"
        )
    folder = folder or Path(name).expanduser()
    if kind := _checkout(folder):
        return load_suite(kind, folder, level)
    refuse_level(str(folder), level)
    return _folder(folder)


def refuse_level(name: str, level: int | None) -> None:
    """Raises ProblemError if a level is passed for a suite other than KernelBench."""
    if level is not None:
        raise ProblemError(f"--level is a level of KernelBench, and {name} has none: leave it out")


def _checkout(folder: Path) -> str:
    """Returns the suite whose checkout a folder is; empty if none."""
    if tritonbench_suite.is_checkout(folder):
        return "tritonbench-t"
    roots = (folder / "KernelBench", folder)
    return "kernelbench" if any(any(root.glob("level[0-9]/[0-9]*_*.py")) for root in roots) else ""


def _is_single_problem(path: Path) -> bool:
    """Returns whether a path is a single problem."""
    return path.is_file() or (path / "definition.json").is_file() or gpumode.is_task(path)


def _read(path: Path, entry: EntryPoint = WHOLE_FILE) -> Problem:
    """Reads a problem from a file or folder. Raises ProblemError."""
    if path.suffix == ".json" or (path / "definition.json").is_file():
        return definitions.read_definition(path / "definition.json" if path.is_dir() else path)
    return gpumode.read_task(path) if gpumode.is_task(path) else read_problem(path, entry=entry)


def _folder(path: Path) -> list[Problem]:
    if described := _described(path):
        return _problems_in(described)
    files = _python_files(path)
    if not files:
        raise ProblemError(
            f"{path} holds no problems: give a folder of .py files in KernelBench form"
        )
    if models := [file for file in files if _defines_model(file)]:
        return _problems_in(models)
    raise ProblemError(
        f"no file of {path} defines `Model`: give a folder of .py files in KernelBench form"
    )


def _problems_in(files: Sequence[Path]) -> list[Problem]:
    """Returns the readable problems. Raises the first file's error if none is readable."""
    results = [_readable(file) for file in files]
    problems = [result for result in results if isinstance(result, Problem)]
    if not problems:
        raise ProblemError(str(results[0]))
    return problems


def _python_files(folder: Path) -> list[Path]:
    """Returns the Python files of a folder by name, without hidden files and files with a leading
    underscore.
    """
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith(("_", ".")))


def _described(path: Path) -> list[Path]:
    return [*definitions.definitions_in(path), *gpumode.tasks_in(path)]


def _readable(path: Path) -> Problem | ProblemError:
    """Returns the problem, or the error if the file is not a problem."""
    try:
        return _read(path)
    except ProblemError as error:
        return error


def unreadable(folder: Path) -> list[str]:
    """Returns a line for each definition, task and Python file of a folder that cannot be read;
    suites omit these files.
    """
    files = _described(folder) or [file for file in _python_files(folder) if _defines_model(file)]
    return [str(error) for error in map(_readable, files) if isinstance(error, ProblemError)]


def files_without_model(folder: Path) -> list[Path]:
    """Returns the Python files of a folder without a class `Model`; suites omit these files."""
    return [file for file in _python_files(folder) if not _defines_model(file)]


def _defines_model(file: Path) -> bool:
    """Returns whether a file defines `Model` or can be completed to do so (forms.py).

    Invalid Python counts as a problem, so that the error is reported on reading.
    """
    try:
        return is_problem(with_data(read_text(file), file))
    except ProblemError:
        return True


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, Problem]:
    files = sorted(f for f in CATALOGUE.glob("*.py") if f.stem != "__init__")
    return {f.stem: read_problem(f, f.stem, "catalogue") for f in files}


@lru_cache(maxsize=1)
def _names() -> dict[str, tuple[str, ...]]:
    return {name: aliases(problem.source) for name, problem in _catalogue().items()}


def _unknown(request: str) -> str:
    name = request.removeprefix("catalogue:")
    if Path(request).is_dir():
        return f"{request} is a folder: name one of its .py files, or take all of them by agent batch {request}"
    near = ", ".join(nearest_names(name))
    return f"no problem {name!r} in the catalogue: near ones are {near} (agent problems lists all)"


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).expanduser()
