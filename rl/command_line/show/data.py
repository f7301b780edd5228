"""Renders corpora for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from kernelwright.rl.data.cleaning.labelling import LabelCounts
    from kernelwright.rl.data.cleaning.running import CleaningResult
    from kernelwright.rl.data.corpus_figures import CorpusFacts
    from kernelwright.rl.data.importing.formats import ImportResult
    from kernelwright.rl.data.synth.engine.generating import CorpusProgress
    from kernelwright.rl.data.synth.engine.own_mistakes import MistakesProgress


def synth_view(state: CorpusProgress) -> RenderableType:
    """Renders the progress of a generated corpus: rows, rate, and the reasons for refusals."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    refused = sum(state.rejected.values())
    table.add_row("drafts", f"{state.drafts:,}")
    table.add_row("repairs", f"{state.repairs:,}")
    table.add_row(
        "families", ", ".join(f"{name} {count:,}" for name, count in state.families.items())
    )
    table.add_row("distinct dataflow graphs", f"{state.graphs:,}")
    table.add_row(
        "pairs a second", f"{state.rate:.2f} with {state.workers} workers, {state.seconds:,.0f} s"
    )
    table.add_row(
        "refused", f"{refused:,} of {state.tried:,} ({refused / max(state.tried, 1):.1%})"
    )
    for reason, count in list(state.rejected.items())[:12]:
        table.add_row("", f"{count:,} {reason}")
    return table


def harvest_view(progress: MistakesProgress) -> RenderableType:
    """Renders the share of a policy's wrong drafts, and their faults."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row("repairs", f"{progress.repairs:,}")
    table.add_row(
        "different drafts",
        f"{progress.drafts:,} of {progress.problems:,} problems, {progress.right:,} right",
    )
    table.add_row("took", f"{progress.seconds:,.0f} s")
    for fault, count in progress.faults.items():
        table.add_row("", f"{count:,} {fault}")
    return table


def imported_view(result: ImportResult) -> RenderableType:
    """Renders the number of imported rows, and the reasons against others."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{result.rows:,}")
    for reason, count in sorted(result.skipped.items(), key=lambda item: -item[1]):
        table.add_row("left out", f"{count:,} {reason}")
    return table


def clean_view(result: CleaningResult, labelled: LabelCounts | None) -> RenderableType:
    """Renders the counts of dropped rows, and of labels if rows were labelled."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{result.rows:,}")
    table.add_row("kept", f"{result.kept:,}, {result.graphs:,} dataflow graphs")
    table.add_row("exact duplicates", f"{result.exact:,}")
    table.add_row("near duplicates", f"{result.near:,}")
    table.add_row("a benchmark's", f"{result.leaked:,}")
    for name, count in list(result.leaks.items())[:8]:
        table.add_row("", f"{count:,} {name}")
    table.add_row("flagged for review", f"{result.flagged:,} (flagged.jsonl)")
    table.add_row(
        "held against", ", ".join(f"{name} {count}" for name, count in result.against.items())
    )
    table.add_row("took", f"{result.seconds:,.1f} s with {result.workers} workers")
    if labelled is not None:
        for target, count in labelled.compiled.items():
            table.add_row(f"compile for {target}", f"{count:,} of {labelled.judged:,}")
        table.add_row("correct", f"{labelled.correct:,}")
    return table


def report_view(facts: CorpusFacts, written: list[Path]) -> RenderableType:
    """Renders the main figures of a corpus and the written files."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row(
        "rows",
        f"{facts.rows:,}: " + ", ".join(f"{count:,} {name}" for name, count in facts.kinds.items()),
    )
    table.add_row("dataflow graphs", f"{facts.graphs:,}")
    table.add_row("exact duplicates", f"{facts.exact_duplicates:,}")
    table.add_row("a benchmark's", f"{len(facts.leaks):,}")
    table.add_row("flagged for review", f"{facts.flagged:,}")
    table.add_row("written", ", ".join(str(path) for path in written))
    return table
