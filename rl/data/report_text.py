"""The words and tables of a corpus's report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl.data.cleaning.running import Cleaned
from rl.data.synth.generating import State

if TYPE_CHECKING:
    from rl.data.cleaning.labelling import Labelled
    from rl.data.reporting import Facts


def sections(facts: Facts, made: State | None, cleaned: Cleaned | None) -> list[str]:
    """All of the page under its title, pictures excepted."""
    lines = [
        f"{facts.rows:,} rows of {facts.problems:,} problems, {facts.graphs:,} distinct dataflow graphs, {facts.exact_duplicates:,} exact duplicates.",
        "",
        *_benchmarks(facts),
        *_labels(facts),
    ]
    for title, counts in (("kind", facts.kinds), ("family", facts.families), ("split", facts.splits), ("depth", facts.depths), ("source", facts.sources), ("licence", facts.licences)):  # fmt: skip
        lines += _table(title, counts, facts.rows)
    lines += _lengths(facts)
    if made is not None:
        lines += _made(made)
    if cleaned is not None:
        lines += _cleaned(cleaned)
    return lines


def _benchmarks(facts: Facts) -> list[str]:
    suites = ", ".join(f"{name} ({count} problems)" for name, count in facts.against.items())
    if facts.leaks:
        said = f"**{len(facts.leaks):,} rows are a benchmark's**: run `rl data clean` with the same --against."
    else:
        compared = facts.rows - facts.uncompared
        said = (
            f"None of the {compared:,} rows that could be compared has the dataflow graph or the syntax tree "
            "of any of their problems."
        )
    lines = ["## Benchmarks", "", f"Held against: {suites or 'nothing'}. {said}"]
    if facts.uncompared:
        lines.append(_not_compared(facts.uncompared, facts.rows))
    if facts.flagged:
        lines.append(f"{facts.flagged:,} rows share at least 80 % of their words with a problem, and another graph.")
    return [
        *lines,
        *(f"- {leak}" for leak in facts.leaks[:20]),
        "",
        f"Digest of the suites: `{facts.suites[:16]}`.",
        "",
    ]


def remarks(cleaned: Cleaned, labelled: Labelled | None) -> list[str]:
    """What the counts of a cleaning leave open, a line each."""
    lines = [_not_compared(cleaned.uncompared, cleaned.rows)] if cleaned.uncompared else []
    if not cleaned.kept:
        lines.append(f"Nothing is left of {cleaned.rows:,} rows: the corpus is empty.")
    if labelled is not None:
        if labelled.assumed:
            lines.append(
                f"{labelled.assumed:,} rows labelled with an assumed signature: nothing launches their kernels."
            )
        lines += [f"{count:,} rows not labelled: {reason}." for reason, count in labelled.unlabelled.items()]
    return lines


def _not_compared(count: int, rows: int) -> str:
    return f"{count:,} of {rows:,} rows could not be compared with the suites: no model in Python in them."


def _labels(facts: Facts) -> list[str]:
    lines = ["## Labels of the tools", ""]
    for target, (passed, tried) in facts.compiled.items():
        lines.append(f"- compiles for {target}: {passed:,} of {tried:,} tried ({passed / tried:.1%})")
    for target, (passed, tried) in facts.assumed.items():
        lines.append(
            f"- compiles for {target} with an assumed signature, for nothing launches the kernel: {passed:,} of {tried:,} labelled "
            f"({passed / tried:.1%}; a failure is labelled only where no signature can help)"
        )
    right, tried = facts.correct
    lines.append(
        f"- correct: {right:,} of {tried:,} judged ({right / tried:.1%})" if tried else "- correctness was not judged"
    )
    return [*lines, ""]


def _table(title: str, counts: Mapping[str, int], total: int) -> list[str]:
    rows = [f"| {name} | {count:,} | {count / max(total, 1):.1%} |" for name, count in counts.items()]
    return [f"## By {title}", "", f"| {title} | rows | share |", "|---|---:|---:|", *rows, ""]


def _lengths(facts: Facts) -> list[str]:
    heads = " | ".join(f"{float(q):.0%}" for q in facts.prompt_characters)
    lines = [
        "## Lengths in characters",
        "",
        f"| quantile | {heads} |",
        "|---|" + "---:|" * len(facts.prompt_characters),
    ]
    for name, values in (("prompt", facts.prompt_characters), ("completion", facts.completion_characters)):
        lines.append(f"| {name} | " + " | ".join(f"{v:,}" for v in values.values()) + " |")
    return [*lines, ""]


def _made(made: State) -> list[str]:
    refused = sum(made.rejected.values())
    lines = [
        "## Generated",
        "",
        f"`rl data synth --seed {made.wanted.seed}`, target {made.wanted.target}: {made.drafts:,} drafts and {made.repairs:,} repairs in {made.seconds:,.0f} s with "
        f"{made.workers} processes, {made.rate:.2f} verified pairs a second. {refused:,} of {made.tried:,} refused:",
        "",
    ]
    return [*lines, *(f"- {count:,} {reason}" for reason, count in made.rejected.items()), ""]


def _cleaned(cleaned: Cleaned) -> list[str]:
    return [
        "## Cleaned",
        "",
        f"`rl data clean`: {cleaned.rows:,} rows in, {cleaned.kept:,} kept; dropped {cleaned.exact:,} exact duplicates, {cleaned.near:,} near duplicates and "
        f"{cleaned.leaked:,} that are a benchmark's; {cleaned.flagged:,} flagged for review (flagged.jsonl); "
        f"{cleaned.uncompared:,} could not be compared.",
        "",
        *(f"- {count:,} rows were {name}" for name, count in list(cleaned.leaks.items())[:20]),
        "",
    ]
