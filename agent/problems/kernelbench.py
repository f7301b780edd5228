"""Reads KernelBench (arXiv:2502.10517, Ouyang and others 2025) from a checkout or a parquet file of
its data set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kernelwright.agent.problems.matching import NameMatch, match_name, nearest_names
from kernelwright.agent.problems.reading import problem_of, read_text
from kernelwright.tools.problem import Problem, ProblemError

KERNELBENCH_PREFIX = "kernelbench:"
CHECKOUT_URL = "https://github.com/ScalingIntelligence/KernelBench"
USUAL_LEVELS = (1, 2, 3)
"""Default levels of the suite; level 4 downloads models."""
KERNELBENCH_COLUMNS = ("code", "level", "name", "problem_id")


class SuiteEntry(NamedTuple):
    """Available problem, not yet read."""

    level: int
    number: int
    stem: str
    """File name without .py: `23_Softmax`."""
    file: Path | None
    code: str = ""

    def problem(self) -> Problem:
        """Reads the problem. Raises ProblemError."""
        source = self.code if self.file is None else read_text(self.file)
        name = f"{KERNELBENCH_PREFIX}{self.level}/{self.number}"
        return problem_of(source, name, "kernelbench", title=self.stem, family=f"level{self.level}")


def find(query: str, path: Path | None) -> Problem:
    """Finds a problem by `1/23`, `1/23_Softmax`, `1/23_Softmax.py` or `1/softmax`.

    Raises ProblemError.
    """
    match = re.fullmatch(r"(?:level_?)?(\d+)[/:](.+)", query.strip())
    if match is None:
        raise ProblemError(
            f"{KERNELBENCH_PREFIX}{query}: write LEVEL/NUMBER, such as {KERNELBENCH_PREFIX}1/23"
        )
    level, problem_part = int(match[1]), match[2].removesuffix(".py")
    level_entries = entries(_required_path(path), level)
    numbered = re.fullmatch(r"(\d+)(?:_.*)?", problem_part)
    named: NameMatch | None
    if numbered:
        entry = {e.number: e for e in reversed(level_entries)}.get(int(numbered[1]))
        named = NameMatch(problem_part, is_exact=True)
    else:
        named = match_name(problem_part, {e.stem: (_words(e.stem),) for e in level_entries})
        by_stem = {e.stem: e for e in reversed(level_entries)}
        entry = by_stem.get(named.name) if named is not None else None
    if entry is None or named is None:
        raise ProblemError(
            f"no problem {KERNELBENCH_PREFIX}{query}: {_advice(problem_part, level, level_entries)}"
        )
    return named.note_in(entry.problem(), f"{KERNELBENCH_PREFIX}{query}")


def suite(path: Path, level: int | None = None) -> list[Problem]:
    """Returns the problems of levels 1 to 3, or of a single level, in order of number.

    Raises ProblemError.
    """
    all_entries = entries(path, level)
    return [e.problem() for e in all_entries if level is not None or e.level in USUAL_LEVELS]


def entries(path: Path, level: int | None = None) -> list[SuiteEntry]:
    """Lists the problems of a checkout, its `KernelBench` folder, a data-set folder or a parquet
    file. Raises ProblemError if there are none.
    """
    if not path.exists():
        raise ProblemError(
            f"no KernelBench at {path}: give a checkout of it, or a parquet file of its data set"
        )
    available = _from_parquet([path]) if path.is_file() else _from_folder(path)
    if not available:
        raise ProblemError(
            f"{path} holds no KernelBench problems: it should hold KernelBench/level1/1_*.py or level_1*.parquet"
        )
    chosen = sorted(e for e in available if level in (None, e.level))
    if not chosen:
        levels = ", ".join(str(n) for n in sorted({e.level for e in available}))
        raise ProblemError(f"{path} holds no level {level} of KernelBench: it has level {levels}")
    return chosen


def _from_folder(path: Path) -> list[SuiteEntry]:
    root = path / "KernelBench" if (path / "KernelBench").is_dir() else path
    found_entries: list[SuiteEntry] = []
    for file in root.glob("level[0-9]*/[0-9]*_*.py"):
        level = file.parent.name.removeprefix("level")
        number = file.name.partition("_")[0]
        if level.isdigit():
            found_entries.append(SuiteEntry(int(level), int(number), file.stem, file))
    if found_entries:
        return found_entries
    parquet_files = [*path.glob("level_*.parquet"), *path.glob("data/level_*.parquet")]
    return _from_parquet(sorted(parquet_files))


def _from_parquet(files: Iterable[Path]) -> list[SuiteEntry]:
    return [entry for file in files for entry in _rows(file)]


def _rows(file: Path) -> list[SuiteEntry]:
    """Reads a parquet file.

    Raises ProblemError if the file lacks the columns of the data set.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ProblemError(
            f"reading {file} needs pyarrow: pip install pyarrow, or give a checkout instead"
        ) from None
    try:
        rows = parquet.read_table(file, columns=list(KERNELBENCH_COLUMNS)).to_pylist()
        return [_entry_of_row(row) for row in rows]
    except (pyarrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        columns = ", ".join(KERNELBENCH_COLUMNS)
        raise ProblemError(
            f"{file} is not KernelBench's data set (a parquet file with the columns {columns}): "
            f"{str(error).splitlines()[0]}"
        ) from None


def _entry_of_row(row: Mapping[str, Any]) -> SuiteEntry:
    level, number = int(row["level"]), int(row["problem_id"])
    stem = _stem(row["name"], row["problem_id"])
    return SuiteEntry(level, number, stem, None, str(row["code"]))


def _stem(name: str, number: int) -> str:
    """Returns the file name without .py.

    The data set's names may lack the suffix or the number.
    """
    plain = str(name).removesuffix(".py")
    return plain if re.match(r"\d+_", plain) else f"{number}_{plain}"


def _words(stem: str) -> str:
    """Converts `23_Softmax` to natural words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", stem.split("_", 1)[-1]).replace("_", " ")


def _required_path(path: Path | None) -> Path:
    if path is None:
        raise ProblemError(
            f"a KernelBench problem needs its checkout: git clone {CHECKOUT_URL}, then give --kernelbench FOLDER"
        )
    return path


def _advice(problem_part: str, level: int, level_entries: list[SuiteEntry]) -> str:
    if problem_part.isdigit():
        first, last = level_entries[0].number, level_entries[-1].number
        return f"level {level} has {len(level_entries)} problems, {first} to {last}"
    names = {f"{level}/{e.stem}": (_words(e.stem),) for e in level_entries}
    return "near ones are " + ", ".join(nearest_names(problem_part, names))
