"""`rl data report`: page, pictures and provenance of a corpus, and remarks on a cleaning."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.rl.data.cleaning.labelling import LabelCounts
from kernelwright.rl.data.cleaning.running import RESULT, CleaningResult
from kernelwright.rl.data.corpus_figures import CorpusFacts
from kernelwright.rl.data.rows import shards
from kernelwright.rl.data.synth.engine.generating import CorpusProgress, state_of

PROVENANCE, PAGE = "provenance.json", "report.md"


def write_report(folder: Path, facts: CorpusFacts, out: Path) -> list[Path]:
    """Writes report.md, its pictures and provenance.json into `out`, and returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    pictures = draw_figures(facts, out)
    generated, cleaned = state_of(folder), cleaned_of(folder)
    page = out / PAGE
    page.write_text(markdown(folder, facts, generated, cleaned, pictures), encoding="utf-8")
    provenance = out / PROVENANCE
    provenance.write_text(
        json.dumps(provenance_of(folder, facts, generated, cleaned), indent=1) + "\n",
        encoding="utf-8",
    )
    return [page, provenance, *pictures]


def cleaned_of(folder: Path) -> CleaningResult | None:
    """Reads the result of `rl data clean`; None for a corpus without it."""
    try:
        return CleaningResult(**json.loads((folder / RESULT).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def provenance_of(
    folder: Path,
    facts: CorpusFacts,
    generated: CorpusProgress | None,
    cleaned: CleaningResult | None,
) -> dict[str, object]:
    """Returns the origin of every row, and the suites compared with."""
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "shards": {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in shards(folder)},
        "synth": generated and generated.model_dump(mode="json"),
        "clean": cleaned and cleaned.model_dump(mode="json"),
        **facts.model_dump(mode="json", exclude={"lengths"}),
    }


def markdown(
    folder: Path,
    facts: CorpusFacts,
    generated: CorpusProgress | None,
    cleaned: CleaningResult | None,
    pictures: Sequence[Path],
) -> str:
    """Returns the page as Markdown."""
    lines = [f"# Corpus {folder.name}", "", *sections(facts, generated, cleaned)]
    lines += [f"![{p.stem.replace('_', ' ')}]({p.name})" for p in pictures]
    return "\n".join(lines) + "\n"


def draw_figures(facts: CorpusFacts, out: Path) -> list[Path]:
    """Draws families.png and lengths.png, and returns their paths."""
    from matplotlib.figure import Figure

    paths = [out / "families.png", out / "lengths.png"]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    names = list(facts.families)[::-1]
    axes.barh(names, [facts.families[name] for name in names])
    axes.set_xlabel("rows")
    figure.savefig(paths[0], dpi=100)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for label, values in (
        ("prompt", [p for p, _ in facts.lengths]),
        ("completion", [c for _, c in facts.lengths]),
    ):
        axes.hist(values, bins=60, histtype="step", label=label)
    axes.set_xlabel("characters")
    axes.set_ylabel("rows")
    axes.legend()
    figure.savefig(paths[1], dpi=100)
    return paths


def sections(
    facts: CorpusFacts, generated: CorpusProgress | None, cleaned: CleaningResult | None
) -> list[str]:
    """Returns the lines of all sections, without title and pictures."""
    lines = [
        f"{facts.rows:,} rows of {facts.problems:,} problems, {facts.graphs:,} distinct dataflow graphs, "
        f"{facts.exact_duplicates:,} exact "
        "duplicates.",
        "",
        *_benchmarks(facts),
        *_labels(facts),
    ]
    for title, counts in (
        ("kind", facts.kinds),
        ("family", facts.families),
        ("split", facts.splits),
        ("depth", facts.depths),
        ("source", facts.sources),
        ("licence", facts.licences),
    ):
        lines += _table(title, counts, facts.rows)
    lines += _lengths(facts)
    if generated is not None:
        lines += _generated(generated)
    if cleaned is not None:
        lines += _cleaned(cleaned)
    return lines


def _benchmarks(facts: CorpusFacts) -> list[str]:
    suites = ", ".join(f"{name} ({count} problems)" for name, count in facts.against.items())
    if facts.leaks:
        finding = f"**{len(facts.leaks):,} rows are a benchmark's**: run `rl data clean` with the same --against."
    else:
        compared = facts.rows - facts.uncompared
        finding = (
            f"None of the {compared:,} rows that could be compared has the dataflow graph or the syntax tree "
            "of any of their problems."
        )
    lines = ["## Benchmarks", "", f"Held against: {suites or 'nothing'}. {finding}"]
    if facts.uncompared:
        lines.append(_not_compared(facts.uncompared, facts.rows))
    if facts.flagged:
        lines.append(
            f"{facts.flagged:,} rows share at least 80 % of their words with a problem, and another graph."
        )
    return [
        *lines,
        *(f"- {leak}" for leak in facts.leaks[:20]),
        "",
        f"Digest of the suites: `{facts.suites[:16]}`.",
        "",
    ]


def remarks(cleaned: CleaningResult, labelled: LabelCounts | None) -> list[str]:
    """Returns a line for each open question in the counts of a cleaning."""
    lines = [_not_compared(cleaned.uncompared, cleaned.rows)] if cleaned.uncompared else []
    if not cleaned.kept:
        lines.append(f"Nothing is left of {cleaned.rows:,} rows: the corpus is empty.")
    if labelled is not None:
        lines += [
            f"{count:,} rows not labelled: {reason}."
            for reason, count in labelled.unlabelled.items()
        ]
    return lines


def _not_compared(count: int, rows: int) -> str:
    return f"{count:,} of {rows:,} rows could not be compared with the suites: no model in Python in them."


def _labels(facts: CorpusFacts) -> list[str]:
    lines = ["## Labels of the tools", ""]
    for target, (passed, tried) in facts.compiled.items():
        lines.append(
            f"- compiles for {target}: {passed:,} of {tried:,} tried ({passed / tried:.1%})"
        )
    right, tried = facts.correct
    lines.append(
        f"- correct: {right:,} of {tried:,} judged ({right / tried:.1%})"
        if tried
        else "- correctness was not judged"
    )
    return [*lines, ""]


def _table(title: str, counts: Mapping[str, int], total: int) -> list[str]:
    lines = [f"## By {title}", "", f"| {title} | rows | share |", "|---|---:|---:|"]
    for name, count in counts.items():
        lines.append(f"| {name} | {count:,} | {count / max(total, 1):.1%} |")
    return [*lines, ""]


def _lengths(facts: CorpusFacts) -> list[str]:
    heads = " | ".join(f"{float(q):.0%}" for q in facts.prompt_characters)
    lines = [
        "## Lengths in characters",
        "",
        f"| quantile | {heads} |",
        "|---|" + "---:|" * len(facts.prompt_characters),
    ]
    for name, values in (
        ("prompt", facts.prompt_characters),
        ("completion", facts.completion_characters),
    ):
        lines.append(f"| {name} | " + " | ".join(f"{v:,}" for v in values.values()) + " |")
    return [*lines, ""]


def _generated(generated: CorpusProgress) -> list[str]:
    refused = sum(generated.rejected.values())
    request = generated.wanted
    lines = [
        "## Generated",
        "",
        f"`rl data synth --seed {request.seed}`, target {request.target}: "
        f"{generated.drafts:,} drafts and {generated.repairs:,} repairs in "
        f"{generated.seconds:,.0f} s with {generated.workers} processes, {generated.rate:.2f} "
        f"verified pairs a second. {refused:,} of {generated.tried:,} refused:",
        "",
    ]
    for reason, count in generated.rejected.items():
        lines.append(f"- {count:,} {reason}")
    return [*lines, ""]


def _cleaned(cleaned: CleaningResult) -> list[str]:
    return [
        "## Cleaned",
        "",
        f"`rl data clean`: {cleaned.rows:,} rows in, {cleaned.kept:,} kept; dropped {cleaned.exact:,} "
        f"exact duplicates, {cleaned.near:,} near duplicates and "
        f"{cleaned.leaked:,} that are a benchmark's; {cleaned.flagged:,} flagged for review (flagged.jsonl); "
        f"{cleaned.uncompared:,} could not be compared.",
        "",
        *(f"- {count:,} rows were {name}" for name, count in list(cleaned.leaks.items())[:20]),
        "",
    ]
