"""Rows of bench.compiler_drafts, and what is written of them: figures by mode, of the best of both modes, and of those
whose speed is no speed of the same work apart.

    python -m bench.compiler_drafts_table JSON JSON ... --command TEXT --machine TEXT --seconds N --out NAME

writes several runs of one level as one: of a problem and mode that are in several, the last one's row.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

from bench.compiler_drafts_tuning import TunedRow
from kernelwright.policies.inductor.draft import DraftMode
from kernelwright.tools.report import TimingMethod, Value


class Row(Value):
    """One problem in one mode."""

    problem: str
    level: str
    mode: DraftMode
    drafted: bool = False
    refused: str = ""
    kernels: int = 0
    library_calls: tuple[str, ...] = ()
    fixed_sizes: tuple[str, ...] = ()
    draft_seconds: float = 0.0
    correct: bool = False
    reason: str = ""
    """Why it is not correct, in one line."""
    verdict_seconds: float = 0.0
    speedup: float | None = None
    """Over eager; None where nothing was timed."""
    speedup_compiled: float | None = None
    """Over torch.compile in its default mode, timed by the draft's method; without `method` with its host code."""
    method: TimingMethod | None = None
    """How the draft and eager were timed; None in rows before 2026-11-28."""
    algebra: bool = False
    """Exact algebra takes operations of the problem away."""
    degenerate: tuple[str, ...] = ()
    """Answers that are not the problem's and pass, by its manifest."""
    in_fp32: bool = False
    """Its products of tf32 or of parts were refused, and are made in fp32."""
    split: bool = False
    """Its products of fp32 are several products of float16 parts: it has no figure without them."""
    tuning: TunedRow | None = None
    """Where it was tuned: the speedups are those of the tuned text."""
    untuned: float | None = None
    """Over eager, of the draft as it was."""

    @property
    def apart(self) -> bool:
        """Whether its speed is no speed of the same work."""
        return self.algebra or bool(self.degenerate)

    @property
    def unsplit(self) -> float:
        """A factor for its speedups without products that are several of fewer bits."""
        return self.tuning.unsplit if self.tuning is not None else 1.0


# ---------------------------------------------------------------------------------------------------- what is written
def percentile(values: Iterable[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def geometric_mean(values: Iterable[float | None]) -> str:
    """Writes a geometric mean with two decimals; a dash for no values."""
    known = [v for v in values if v]
    return f"{statistics.geometric_mean(known):.2f}" if known else "-"


def table(rows: Sequence[Row]) -> list[str]:
    """Figures by level and mode."""
    lines = [
        "| level | mode | problems | drafted | correct | draft s p50 / p95 | verdict s p50 / p95 | fast_1 | over eager"
        " | over torch.compile |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for level, mode in sorted({(r.level, r.mode) for r in rows}):
        part = [r for r in rows if (r.level, r.mode) == (level, mode)]
        right = [r for r in part if r.correct]
        drafts, verdicts = (
            [r.draft_seconds for r in part],
            [r.verdict_seconds for r in part if r.drafted],
        )
        lines.append(
            f"| {level or '-'} | {mode} | {len(part)} | {sum(r.drafted for r in part)} | {len(right)} "
            f"| {percentile(drafts, 0.5):.1f} / {percentile(drafts, 0.95):.1f} "
            f"| {percentile(verdicts, 0.5):.1f} / {percentile(verdicts, 0.95):.1f} | {_fast(right)} "
            f"| {geometric_mean(r.speedup for r in right)} | {geometric_mean(r.speedup_compiled for r in right)} |"
        )
    return lines


def _fast(rows: Sequence[Row]) -> str:
    timed = [r for r in rows if r.speedup is not None]
    return f"{sum((r.speedup or 0) >= 1 for r in timed)}" if timed else "-"


def best_of_modes(rows: Sequence[Row]) -> list[Row]:
    """Returns for each problem the fastest row that is right and was timed."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.level, row.problem)
        if (
            row.correct
            and row.speedup
            and (key not in found or row.speedup > (found[key].speedup or 0.0))
        ):
            found[key] = row
    return list(found.values())


def best_table(rows: Sequence[Row]) -> list[str]:
    """Writes a table by level, over the best row of each problem: all of them, then without those that are told apart,
    then also without products of fp32 that are several of fewer bits (a draft that is made of such is left out there).
    """
    lines = [
        "| level | of | right and timed | fast_1 | over eager | over torch.compile |",
        "|---|---|---|---|---|---|",
    ]
    best = best_of_modes(rows)
    for level in sorted({r.level for r in best}):
        own = [r for r in best if r.level == level]
        same = [r for r in own if not r.apart]
        whole = [
            r
            for r in best_of_modes([r for r in rows if not r.split])
            if r.level == level and not r.apart
        ]
        unsplit = [
            r.with_(
                speedup=(r.speedup or 0.0) * r.unsplit,
                speedup_compiled=r.speedup_compiled * r.unsplit if r.speedup_compiled else None,
            )
            for r in whole
        ]
        for name, part in (
            ("all", own),
            ("the same work", same),
            ("the same work, no split products", unsplit),
        ):
            lines.append(
                f"| {level or '-'} | {name} | {len(part)} | {_fast(part)} | {geometric_mean(r.speedup for r in part)} "
                f"| {geometric_mean(r.speedup_compiled for r in part)} |"
            )
    return lines if best else []


def tuned_table(rows: Sequence[Row]) -> list[str]:
    """What TUNE found, a row each."""
    lines = [
        "| problem | mode | over eager before | after | over torch.compile | changed | precision | error "
        "| eager's | GPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if (tuning := row.tuning) is None:
            continue
        changes = (
            ", ".join(f"{n} {v}" for n, v in tuning.changes.items())
            or tuning.note
            or "nothing is faster"
        )
        lines.append(
            f"| {row.problem} | {row.mode} | {_ratio(row.untuned)} | {_ratio(row.speedup)} "
            f"| {_ratio(row.speedup_compiled)} | {changes.replace('|', '/')} | {tuning.precision or '-'} "
            f"| {_small(tuning.error)} | {_small(tuning.eager_error)} | {tuning.gpu_seconds:.1f} |"
        )
    return lines if len(lines) > 2 else []


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else "-"


def _small(value: float | None) -> str:
    return f"{value:.2g}" if value is not None else "-"


def _told_apart(row: Row) -> str:
    why = "exact algebra" if row.algebra else f"degenerate: {', '.join(row.degenerate)} would pass"
    return f"- {row.problem} ({row.mode}): {_ratio(row.speedup)} over eager, {why}"


def text(rows: Sequence[Row], command: str, machine: str, seconds: float) -> str:
    """The Markdown file."""
    failed = [
        f"| {r.problem} | {r.mode} | {r.reason.replace('|', '/')} |" for r in rows if not r.correct
    ]
    fixed = [
        f"- {r.problem} ({r.mode}): {', '.join(r.fixed_sizes)}"
        for r in rows
        if r.correct and r.fixed_sizes
    ]
    apart = [_told_apart(r) for r in rows if r.correct and r.apart]
    in_fp32 = [f"- {r.problem} ({r.mode})" for r in rows if r.in_fp32]
    parts = ["# The compiler's drafts", f"`{command}`  ", f"{machine}, {date.today()}, {seconds:.0f} s in all.",
             "\n".join(table(rows))]  # fmt: skip
    if with_host := sum(r.speedup_compiled is not None and r.method is None for r in rows):
        parts.append(
            f"In {with_host} rows torch.compile was timed with its host code, the draft as a CUDA graph: the ratio "
            "over torch.compile is too high there (bench/results/compile_clock.md says by how much)."
        )
    sections = {
        "Best of the modes": best_table(rows),
        "No speed of the same work": apart,
        "Tuned": tuned_table(rows),
        "Products of tf32 or of parts refused, judged again in fp32": in_fp32,
        "Products of fp32 made of float16 parts": [
            f"- {r.problem} ({r.mode})" for r in rows if r.correct and r.split
        ],
        "Not correct": ["| problem | mode | why |", "|---|---|---|", *failed] if failed else [],
        "Correct, with a size that tracing fixed": fixed,
    }
    for title, lines in sections.items():
        if lines:
            parts += [f"## {title}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def merged(files: Sequence[Path]) -> list[Row]:
    """The rows of several runs in the order of the problems; of one problem and mode the last file's."""
    found: dict[tuple[str, str], Row] = {}
    for file in files:
        for row in map(Row.model_validate, json.loads(file.read_text(encoding="utf-8"))):
            found[row.problem, row.mode] = row
    return sorted(found.values(), key=lambda r: (int(r.problem.partition("_")[0] or 0), r.mode))


def main() -> None:
    """Several runs as one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--command", required=True, help="that made them, for the head of the file")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--seconds", type=float, required=True, help="of all of them")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = merged(given.files)
    write(rows, text(rows, given.command, given.machine, given.seconds), given.out)


def write(rows: Sequence[Row], written: str, out: Path) -> None:
    """OUT.md for people, OUT.json for machines."""
    out.with_suffix(".md").write_text(written, encoding="utf-8")
    dumped = json.dumps([row.model_dump(mode="json") for row in rows], indent=1)
    out.with_suffix(".json").write_text(dumped + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
