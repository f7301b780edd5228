"""Figures of a corpus, counted over its rows: kinds, families, labels, lengths, duplicates, and
leaks of benchmarks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelwright.rl.data.cleaning.running import suite_counts, suites_hash
from kernelwright.rl.data.cleaning.suites import Benchmarks, problems_of
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Row, read_rows
from kernelwright.tools.report import Value

LENGTH_QUANTILES = (0.05, 0.5, 0.95, 1.0)


class CorpusFacts(Value):
    """Counts over every row of a corpus."""

    rows: int = 0
    kinds: dict[str, int] = {}
    families: dict[str, int] = {}
    splits: dict[str, int] = {}
    sources: dict[str, int] = {}
    licences: dict[str, int] = {}
    depths: dict[str, int] = {}
    problems: int = 0
    graphs: int = 0
    exact_duplicates: int = 0
    compiled: dict[str, tuple[int, int]] = {}
    """By target: number of rows that compile, and number of rows tried, by a real launch."""
    correct: tuple[int, int] = (0, 0)
    prompt_characters: dict[str, int] = {}
    """Length of prompts in characters by quantile."""
    completion_characters: dict[str, int] = {}
    leaks: tuple[str, ...] = ()
    """Rows whose graph or tree is a benchmark's: `id is kernelbench:1/19 (graph)`."""
    uncompared: int = 0
    """Number of rows without a Python model, whose leaks are unknown."""
    flagged: int = 0
    """Number of rows with many words in common with a problem."""
    against: dict[str, int] = {}
    suites: str = ""
    lengths: tuple[tuple[int, int], ...] = ()
    """Number of characters of prompt and completion of every row; in memory only."""


def gather_facts(folder: Path, against: Sequence[str]) -> CorpusFacts:
    """Counts a corpus in a single pass over its rows. Raises InputError."""
    problems = problems_of(against)
    tally = Tally(Benchmarks(problems))
    tally.add(read_rows(folder))
    return tally.facts().with_(against=suite_counts(problems), suites=suites_hash(problems))


class Tally:
    """Counts the rows of a corpus during reading."""

    def __init__(self, benchmarks: Benchmarks) -> None:
        self._benchmarks = benchmarks
        self._counts: dict[str, Counter[str]] = {
            n: Counter() for n in ("kinds", "families", "splits", "sources", "licences", "depths")
        }
        self._texts: set[str] = set()
        self._graphs: set[str] = set()
        self._problems: set[str] = set()
        self._compiled: dict[str, list[int]] = {}
        self._correct = [0, 0]
        self._lengths: list[tuple[int, int]] = []
        self._leaks: list[str] = []
        self._flagged = self._doubles = self._uncompared = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Counts rows; a row with a known pair of prompt and completion is an exact duplicate."""
        for row in rows:
            labels = (
                row.kind,
                row.family or "none",
                row.split,
                row.source or "unknown",
                row.licence or "unknown",
                str(row.depth),
            )
            for counter, value in zip(self._counts.values(), labels, strict=True):
                counter[str(value)] += 1
            # Exact duplicates have equal normalised texts.
            texts = row.prompt_hash + row.completion_hash
            self._doubles += texts in self._texts
            self._texts.add(texts)
            self._problems.add(row.problem)
            self._lengths.append((len(row.prompt), len(row.completion)))
            self._labels(row)
            self._compare(row)

    def _labels(self, row: Row) -> None:
        for target, passed in row.compile.items():
            counts = self._compiled.setdefault(target, [0, 0])
            counts[0] += passed
            counts[1] += 1
        if row.correct is not None:
            self._correct[0] += row.correct
            self._correct[1] += 1

    def _compare(self, row: Row) -> None:
        if row.reference and (graph := graph_hash(row.reference)):
            self._graphs.add(graph)
        comparison = self._benchmarks.compare(row)
        leak = comparison.leak
        self._uncompared += not comparison.compared
        if leak and leak.dropped:
            self._leaks.append(f"{row.id} is {leak.problem} ({leak.why})")
        elif leak:
            self._flagged += 1

    def _counted(self, name: str) -> dict[str, int]:
        return dict(self._counts[name].most_common())

    def facts(self) -> CorpusFacts:
        """Returns the counts so far; lengths are in characters."""
        return CorpusFacts(
            rows=len(self._lengths),
            kinds=self._counted("kinds"),
            families=self._counted("families"),
            splits=self._counted("splits"),
            sources=self._counted("sources"),
            licences=self._counted("licences"),
            depths=self._counted("depths"),
            problems=len(self._problems),
            graphs=len(self._graphs),
            exact_duplicates=self._doubles,
            compiled={target: (counts[0], counts[1]) for target, counts in self._compiled.items()},
            correct=(self._correct[0], self._correct[1]),
            prompt_characters=_quantiles([p for p, _ in self._lengths]),
            completion_characters=_quantiles([c for _, c in self._lengths]),
            leaks=tuple(self._leaks),
            uncompared=self._uncompared,
            flagged=self._flagged,
            lengths=tuple(self._lengths),
        )


def _quantiles(values: list[int]) -> dict[str, int]:
    """Returns the smallest value that at least each share of the values does not exceed."""
    ordered = sorted(values)
    quantiles: dict[str, int] = {}
    for quantile in LENGTH_QUANTILES if ordered else ():
        rank = min(math.ceil(quantile * len(ordered)), len(ordered))
        quantiles[f"{quantile:g}"] = ordered[rank - 1]
    return quantiles
