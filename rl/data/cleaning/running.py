"""`rl data clean`: analyses every shard, then selects new rows in order.

An interrupted run continues at its last shard.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError
from kernelwright.rl.data.cleaning.analysing import (
    ANALYSIS_FORM,
    analyse_shard,
    normalise_row,
    open_worker,
    read_analysis,
)
from kernelwright.rl.data.cleaning.known_benchmarks import load_known_benchmarks
from kernelwright.rl.data.cleaning.near_duplicates import NearDuplicates
from kernelwright.rl.data.cleaning.suites import SuiteComparison, problems_of
from kernelwright.rl.data.rows import SHARD_ROWS, Row, read_rows, shards, write_rows, write_shard
from kernelwright.rl.workers.worker_pool import process_pool
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    from kernelwright.rl.data.cleaning.near_duplicates import Signature

RESULT, FLAGGED, WORK = "clean.json", "flagged.jsonl", ".work"


class CleaningResult(Value):
    """The counts of a cleaning, as stored in clean.json."""

    rows: int = 0
    kept: int = 0
    exact: int = 0
    """Number of rows dropped for equal normalised texts earlier."""
    near: int = 0
    leaked: int = 0
    uncompared: int = 0
    """Number of rows without a Python model, whose leaks are unknown."""
    flagged: int = 0
    """Number of accepted rows listed for review: many words in common with a problem of a suite."""
    graphs: int = 0
    """Number of distinct dataflow graphs among the accepted rows."""
    leaks: dict[str, int] = {}
    """Number of dropped rows by problem of a suite."""
    against: dict[str, int] = {}
    """Number of compared problems by suite."""
    suites: str = ""
    """SHA-256 of the problems' sources, hex; `rl data report` must use equal suites."""
    source: str = ""
    shards: str = ""
    """SHA-256 of the source's files by name, size and modification time, hex."""
    seconds: float = 0.0
    workers: int = 0


def clean_corpus(
    source: Path, out: Path, against: list[str], workers: int, say: Callable[[str], None]
) -> CleaningResult:
    """Cleans a corpus into `out`. Raises InputError if there is no corpus, or if `out` holds
    something else or the result of other shards.
    """
    problems = problems_of(against)
    paths = shards(source)
    marks = shards_hash(paths)
    # A finished cleaning of unchanged shards is not repeated.
    if (done := _done(source, out, problems)) is not None:
        if done.shards != marks:
            raise InputError(
                f"{source} has changed since {out} was cleaned from it: give a new folder with --out"
            )
        return done
    _check_out(source, out)
    start = time.monotonic()
    (out / WORK).mkdir(parents=True, exist_ok=True)
    analyses = _analysed(paths, out / WORK, problems, workers, say)
    result = _select_rows(paths, analyses, out, say)
    result = result.with_(
        against=suite_counts(problems), suites=suites_hash(problems), source=str(source), shards=marks,
        seconds=time.monotonic() - start, workers=workers,
    )  # fmt: skip
    (out / RESULT).write_text(result.model_dump_json(indent=1), encoding="utf-8")
    shutil.rmtree(out / WORK)
    return result


def _done(source: Path, out: Path, problems: list[Problem]) -> CleaningResult | None:
    """Returns the result of a finished cleaning, of these shards or of others; labels may still
    be missing.
    """
    try:
        result = CleaningResult.model_validate_json((out / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return (
        result if (result.source, result.suites) == (str(source), suites_hash(problems)) else None
    )


def suites_hash(problems: list[Problem]) -> str:
    """Returns a hash of the compared problems, independent of their order."""
    hashes = sorted(problem.hash for problem in problems)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def suite_counts(problems: list[Problem]) -> dict[str, int]:
    """Returns the number of compared problems by suite, the known benchmarks included."""
    counts: Counter[str] = Counter()
    for problem in problems:
        counts["folder" if problem.suite == "file" else problem.suite] += 1
    return dict(counts + Counter(load_known_benchmarks().counts))


def shards_hash(paths: list[Path]) -> str:
    """Returns a hash of files by name, size and modification time."""
    return hashlib.sha256("".join(map(_mark, paths)).encode()).hexdigest()


def _check_out(source: Path, out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder with --out")
    if out.resolve() == source.resolve():
        raise InputError(
            "--out is the corpus itself: give another folder, nothing is changed in place"
        )
    if out.is_dir() and any(out.iterdir()) and not (out / WORK).is_dir():
        raise InputError(f"{out} is not empty: give a new folder with --out")


def _analysed(
    paths: list[Path], work: Path, problems: list[Problem], workers: int, say: Callable[[str], None]
) -> list[Path]:
    """Returns an analysis for each shard; analyses of an earlier run are used if shard and suites
    are equal.
    """
    from concurrent.futures import as_completed

    key = suites_hash(problems)[:12]
    analyses = [work / f"{_mark(shard)}-{key}-{ANALYSIS_FORM}.npz" for shard in paths]
    todo = []
    for shard, analysis in zip(paths, analyses, strict=True):
        if not analysis.is_file():
            todo.append((shard, analysis))
    if not todo:
        return analyses
    described = [problem.model_dump() for problem in problems]
    with process_pool(min(workers, len(todo)), open_worker, described) as pool:
        futures = [pool.submit(analyse_shard, *pair) for pair in todo]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            say(f"{done + len(analyses) - len(todo)} of {len(analyses)} shards looked at")
    return analyses


def _mark(shard: Path) -> str:
    described = shard.stat()
    return hashlib.sha1(
        f"{shard.resolve()}{described.st_size}{described.st_mtime_ns}".encode()
    ).hexdigest()[:16]


class _Selection:
    """Counts and decides which rows of a corpus are accepted, in their order."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.leaks: Counter[str] = Counter()
        self.graphs: set[str] = set()
        self._texts: set[str] = set()
        self._near = NearDuplicates()

    def accepts(self, signature: Signature, facts: Sequence[Any]) -> bool:
        """Returns whether a row is new and free of benchmark problems, by its analysis."""
        texts, group, graph, comparison = facts
        leak = SuiteComparison(**comparison).leak
        self.counts["rows"] += 1
        self.counts["uncompared"] += not comparison["compared"]
        if leak and leak.dropped:
            self.counts["leaked"] += 1
            self.leaks[leak.problem] += 1
        elif texts in self._texts:
            self.counts["exact"] += 1
        elif self._near.is_duplicate(group, signature):
            self.counts["near"] += 1
        else:
            self._texts.add(texts)
            self.graphs.add(graph)
            return True
        return False


def _select_rows(
    paths: list[Path], analyses: list[Path], out: Path, say: Callable[[str], None]
) -> CleaningResult:
    """Writes the rows that are new and free of benchmark problems.

    An interrupted run's rows are written again, which takes seconds.
    """
    for old in out.glob("rows-*.parquet"):
        old.unlink()
    selection = _Selection()
    counts = selection.counts
    flagged = out / f".{FLAGGED}"
    with flagged.open("w", encoding="utf-8") as review:

        def accepted_rows() -> Iterator[Row]:
            for number, (shard, analysis) in enumerate(zip(paths, analyses, strict=True), 1):
                signatures, facts_of_rows = read_analysis(analysis)
                analysed = zip(read_rows(shard), signatures, facts_of_rows, strict=True)
                for row, signature, facts in analysed:
                    if not selection.accepts(signature, facts):
                        continue
                    row = normalise_row(row)
                    leak = SuiteComparison(**facts[3]).leak
                    if leak:
                        counts["flagged"] += 1
                        entry = {"id": row.id, "problem": leak.problem, "why": leak.why}
                        review.write(json.dumps(entry) + "\n")
                    yield row
                say(f"{number} of {len(paths)} shards compared, {counts['rows']:,} rows")

        counts["kept"] = write_rows(out, accepted_rows(), SHARD_ROWS)
    # An empty corpus has an empty shard, so readers find the columns.
    if not counts["kept"]:
        write_shard(out / "rows-00000.parquet", ())
    flagged.replace(out / FLAGGED)
    return CleaningResult(
        rows=counts["rows"],
        kept=counts["kept"],
        exact=counts["exact"],
        near=counts["near"],
        leaked=counts["leaked"],
        uncompared=counts["uncompared"],
        flagged=counts["flagged"],
        graphs=len(selection.graphs - {""}),
        leaks=dict(selection.leaks.most_common()),
    )
