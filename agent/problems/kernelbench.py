"""KernelBench (Ouyang et al. 2025, arXiv:2502.10517), from a checkout or from a parquet file of its data set."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kernelwright.agent.problems.matching import NameMatch, match_name, nearest_names
from kernelwright.agent.problems.reading import problem_of, read_text
from kernelwright.tools.problem import Problem, ProblemError

PREFIX = "kernelbench:"
CHECKOUT_URL = "https://github.com/ScalingIntelligence/KernelBench"
USUAL_LEVELS = (1, 2, 3)
"""The levels of a suite for which no level is given: level 4 downloads models."""
KERNELBENCH_COLUMNS = ("code", "level", "name", "problem_id")


class SuiteEntry(NamedTuple):
    """One problem that is there, not yet read."""

    level: int
    number: int
    stem: str
    """The file's name without .py: `23_Softmax`."""
    file: Path | None
    code: str = ""

    def problem(self) -> Problem:
        """Raises ProblemError."""
        source = self.code if self.file is None else read_text(self.file)
        name = f"{PREFIX}{self.level}/{self.number}"
        return problem_of(source, name, "kernelbench", title=self.stem, family=f"level{self.level}")


def find(asked: str, path: Path | None) -> Problem:
    """Finds a problem by `1/23`, `1/23_Softmax`, `1/23_Softmax.py` or `1/softmax`. Raises ProblemError."""
    match = re.fullmatch(r"(?:level_?)?(\d+)[/:](.+)", asked.strip())
    if match is None:
        raise ProblemError(f"{PREFIX}{asked}: write LEVEL/NUMBER, such as {PREFIX}1/23")
    level, rest = int(match[1]), match[2].removesuffix(".py")
    there = entries(_given(path), level)
    numbered = re.fullmatch(r"(\d+)(?:_.*)?", rest)
    named: NameMatch | None
    if numbered:
        entry = next((e for e in there if e.number == int(numbered[1])), None)
        named = NameMatch(rest, is_exact=True)
    else:
        named = match_name(rest, {e.stem: (_words(e.stem),) for e in there})
        entry = next((e for e in there if named is not None and e.stem == named.name), None)
    if entry is None or named is None:
        raise ProblemError(f"no problem {PREFIX}{asked}: {_advice(rest, level, there)}")
    return named.note_in(entry.problem(), f"{PREFIX}{asked}")


def suite(path: Path, level: int | None = None) -> list[Problem]:
    """Levels 1 to 3, or one level, in the order of their numbers. Raises ProblemError."""
    there = entries(path, level)
    return [e.problem() for e in there if level is not None or e.level in USUAL_LEVELS]


def entries(path: Path, level: int | None = None) -> list[SuiteEntry]:
    """Lists the problems of a checkout, its `KernelBench` folder, a data-set folder or one parquet file. Raises
    ProblemError where there are none.
    """
    if not path.exists():
        raise ProblemError(
            f"no KernelBench at {path}: give a checkout of it, or a parquet file of its data set"
        )
    found = _from_parquet([path]) if path.is_file() else _from_folder(path)
    if not found:
        raise ProblemError(
            f"{path} holds no KernelBench problems: it should hold KernelBench/level1/1_*.py or level_1*.parquet"
        )
    chosen = sorted(e for e in found if level in (None, e.level))
    if not chosen:
        levels = ", ".join(str(n) for n in sorted({e.level for e in found}))
        raise ProblemError(f"{path} holds no level {level} of KernelBench: it has level {levels}")
    return chosen


def _from_folder(path: Path) -> list[SuiteEntry]:
    root = path / "KernelBench" if (path / "KernelBench").is_dir() else path
    files = [f for f in root.glob("level[0-9]*/[0-9]*_*.py") if f.parent.name[5:].isdigit()]
    if files:
        return [
            SuiteEntry(int(f.parent.name[5:]), int(f.name.split("_")[0]), f.stem, f) for f in files
        ]
    return _from_parquet(
        sorted((*path.glob("level_*.parquet"), *path.glob("data/level_*.parquet")))
    )


def _from_parquet(files: Iterable[Path]) -> list[SuiteEntry]:
    return [entry for file in files for entry in _rows(file)]


def _rows(file: Path) -> list[SuiteEntry]:
    """Raises ProblemError where the file is not a parquet file with the data set's columns."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ProblemError(
            f"reading {file} needs pyarrow: pip install pyarrow, or give a checkout instead"
        ) from None
    try:
        rows = parquet.read_table(file, columns=list(KERNELBENCH_COLUMNS)).to_pylist()
        return [
            SuiteEntry(
                int(r["level"]),
                int(r["problem_id"]),
                _stem(r["name"], r["problem_id"]),
                None,
                str(r["code"]),
            )
            for r in rows
        ]
    except (pyarrow.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        wanted = ", ".join(KERNELBENCH_COLUMNS)
        raise ProblemError(
            f"{file} is not KernelBench's data set (a parquet file with the columns {wanted}): "
            f"{str(error).splitlines()[0]}"
        ) from None


def _stem(name: str, number: int) -> str:
    """Names as files have them, without .py: the data set writes them with and without, and with and without the
    number.
    """
    plain = str(name).removesuffix(".py")
    return plain if re.match(r"\d+_", plain) else f"{number}_{plain}"


def _words(stem: str) -> str:
    """`23_Softmax` as people say it."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", stem.split("_", 1)[-1]).replace("_", " ")


def _given(path: Path | None) -> Path:
    if path is None:
        raise ProblemError(
            f"a KernelBench problem needs its checkout: git clone {CHECKOUT_URL}, then give --kernelbench FOLDER"
        )
    return path


def _advice(rest: str, level: int, there: list[SuiteEntry]) -> str:
    if rest.isdigit():
        return f"level {level} has {len(there)} problems, {there[0].number} to {there[-1].number}"
    names = {f"{level}/{e.stem}": (_words(e.stem),) for e in there}
    return "near ones are " + ", ".join(nearest_names(rest, names))
