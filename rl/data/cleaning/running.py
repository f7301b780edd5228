"""`rl data clean`: analyse every shard, then go through them in order and keep what is new.

Interrupted, it goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

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
from kernelwright.rl.data.cleaning.suites import Comparison, problems_of
from kernelwright.rl.data.rows import SHARD_ROWS, Row, read_rows, shards, write_rows, write_shard
from kernelwright.rl.workers.worker_pool import process_pool
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value

RESULT, FLAGGED, WORK = "clean.json", "flagged.jsonl", ".work"


class CleaningResult(Value):
    """The counts of a cleaning, as they are stored in clean.json."""

    rows: int = 0
    kept: int = 0
    exact: int = 0
    """Rows that were dropped because the same normalised texts occurred before."""
    near: int = 0
    leaked: int = 0
    uncompared: int = 0
    """Rows without a model in Python, so that nothing is known of their leaks."""
    flagged: int = 0
    """Kept, and put before a person: many words in common with a problem of a suite."""
    graphs: int = 0
    """Number of distinct dataflow graphs among the rows that were kept."""
    leaks: dict[str, int] = {}
    """Problem of a suite -> rows that were dropped for it."""
    against: dict[str, int] = {}
    """Suite -> problems that were compared with."""
    suites: str = ""
    """SHA-256 over the problems' sources, hex: what `rl data report` is held to."""
    source: str = ""
    shards: str = ""
    """SHA-256 over the source's files by name, size and time of change, hex."""
    seconds: float = 0.0
    workers: int = 0


def clean_corpus(
    source: Path, out: Path, against: list[str], workers: int, say: Callable[[str], None]
) -> CleaningResult:
    """Raises InputError where there is no corpus, or `out` holds something else or what came of other shards."""
    problems = problems_of(against)
    there = shards(source)
    marks = shards_hash(there)
    if (done := _done(source, out, problems)) is not None:
        if done.shards != marks:
            raise InputError(
                f"{source} has changed since {out} was cleaned from it: give a new folder with --out"
            )
        return done
    _check_out(source, out)
    start = time.monotonic()
    (out / WORK).mkdir(parents=True, exist_ok=True)
    made = _analysed(there, out / WORK, problems, workers, say)
    result = _kept(there, made, out, say)
    counts = Counter(p.suite if p.suite != "file" else "folder" for p in problems) + Counter(
        load_known_benchmarks().counts
    )
    result = result.with_(
        against=dict(counts), suites=suites_hash(problems), source=str(source), shards=marks,
        seconds=time.monotonic() - start, workers=workers,
    )  # fmt: skip
    (out / RESULT).write_text(result.model_dump_json(indent=1), encoding="utf-8")
    shutil.rmtree(out / WORK)
    return result


def _done(source: Path, out: Path, problems: list[Problem]) -> CleaningResult | None:
    """What an earlier call finished, of these shards or of others: labels may still be wanted."""
    try:
        found = CleaningResult.model_validate_json((out / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if (found.source, found.suites) == (str(source), suites_hash(problems)) else None


def suites_hash(problems: list[Problem]) -> str:
    """Returns a hash of the problems that were compared with, whatever their order."""
    return hashlib.sha256("".join(sorted(p.hash for p in problems)).encode()).hexdigest()


def shards_hash(there: list[Path]) -> str:
    """Returns a hash of files as they are now: another shard, size or time of change gives another."""
    return hashlib.sha256("".join(map(_mark, there)).encode()).hexdigest()


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
    there: list[Path], work: Path, problems: list[Problem], workers: int, say: Callable[[str], None]
) -> list[Path]:
    """One analysis a shard; those of an earlier attempt are used where shard and suites are the same."""
    from concurrent.futures import as_completed

    key = suites_hash(problems)[:12]
    made = [work / f"{_mark(shard)}-{key}-{ANALYSIS_FORM}.npz" for shard in there]
    todo = [(shard, to) for shard, to in zip(there, made, strict=True) if not to.is_file()]
    if not todo:
        return made
    described = [p.model_dump() for p in problems]
    with process_pool(min(workers, len(todo)), open_worker, described) as pool:
        futures = [pool.submit(analyse_shard, shard, to) for shard, to in todo]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            say(f"{done + len(made) - len(todo)} of {len(made)} shards looked at")
    return made


def _mark(shard: Path) -> str:
    described = shard.stat()
    return hashlib.sha1(
        f"{shard.resolve()}{described.st_size}{described.st_mtime_ns}".encode()
    ).hexdigest()[:16]


def _kept(
    there: list[Path], made: list[Path], out: Path, say: Callable[[str], None]
) -> CleaningResult:
    """Writes the rows that are new and no benchmark's.

    What an interrupted attempt wrote is written again: it takes seconds.
    """
    for old in out.glob("rows-*.parquet"):
        old.unlink()
    counts: Counter[str] = Counter()
    leaks: Counter[str] = Counter()
    graphs: set[str] = set()
    flagged = out / f".{FLAGGED}"
    with flagged.open("w", encoding="utf-8") as review:

        def chosen() -> Iterator[Row]:
            exact, near = set[str](), NearDuplicates()
            for number, (shard, analysis) in enumerate(zip(there, made, strict=True), 1):
                signatures, facts = read_analysis(analysis)
                for row, signature, (texts, group, graph, held) in zip(
                    read_rows(shard), signatures, facts, strict=True
                ):
                    counts["rows"] += 1
                    comparison = Comparison(**held)
                    leak = comparison.leak
                    counts["uncompared"] += not comparison.compared
                    if leak and leak.dropped:
                        counts["leaked"] += 1
                        leaks[leak.problem] += 1
                    elif texts in exact:
                        counts["exact"] += 1
                    elif near.seen(group, signature):
                        counts["near"] += 1
                    else:
                        exact.add(texts)
                        graphs.add(graph)
                        row = normalise_row(row)
                        if leak:
                            counts["flagged"] += 1
                            review.write(
                                json.dumps({"id": row.id, "problem": leak.problem, "why": leak.why})
                                + "\n"
                            )
                        yield row
                say(f"{number} of {len(there)} shards compared, {counts['rows']:,} rows")

        counts["kept"] = write_rows(out, chosen(), SHARD_ROWS)
    if not counts["kept"]:
        write_shard(out / "rows-00000.parquet", ())
    flagged.replace(out / FLAGGED)
    return CleaningResult(
        rows=counts["rows"], kept=counts["kept"], exact=counts["exact"], near=counts["near"], leaked=counts["leaked"],
        uncompared=counts["uncompared"], flagged=counts["flagged"], graphs=len(graphs - {""}),
        leaks=dict(leaks.most_common()),
    )  # fmt: skip
