"""One table of the compiler's drafts of many suites, from the rows that `bench.compiler_drafts` stored of each.

    python -m bench.compiler_drafts_suites [--rows SUITE=JSON ...] [--set first|now] [--date DAY] [--machine TEXT]
        [--note TEXT] [--out bench/results/compiler_drafts-suites-cpu]

`OUT.json` holds a row of every problem of every suite, of the first run and of the last one that it was judged in;
`OUT.md` is written of it, so that without `--rows` the command prints the table of what is stored. `--rows` takes over
the rows of a run: as the first one (`--set first`), or in the place of those that the problems have now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pydantic import Field

from bench.compiler_drafts_table import Row
from kernelwright.tools.report import Value

REASON_CHARACTERS = 160
"""Of why a problem is not right, in the table."""


class Entry(Value):
    """One problem of a suite."""

    first: Row | None = None
    now: Row | None = None
    judged: str = ""
    """The day of `now`."""


class Suite(Value):
    """One suite's problems by their names."""

    entries: dict[str, Entry] = Field(default_factory=dict)

    def with_rows(self, rows: Sequence[Row], first: bool, day: str) -> Suite:
        """The suite with the rows of one run. A first run is what the problems have now, too, until another one is."""
        found = dict(self.entries)
        for row in rows:
            entry = found.get(row.problem, Entry())
            if first:
                entry = entry.with_(first=row)
            if not first or entry.now is None:
                entry = entry.with_(now=row, judged=day)
            found[row.problem] = entry
        return Suite(entries=found)


class Suites(Value):
    """All that is stored."""

    machine: str = ""
    notes: tuple[str, ...] = ()
    suites: dict[str, Suite] = Field(default_factory=dict)


def table(stored: Suites) -> list[str]:
    """Suites, problems, and how many of them were drafted and judged right."""
    lines = [
        "| suite | problems | drafted | right at first | right now | judged |",
        "|---|---|---|---|---|---|",
    ]
    total = [0, 0, 0, 0]
    for name, suite in stored.suites.items():
        entries = list(suite.entries.values())
        counts = [
            len(entries),
            *(sum(bool(x) for x in column) for column in zip(*map(_marks, entries), strict=True)),
        ]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        days = sorted({e.judged for e in entries if e.judged})
        lines.append(
            f"| {name} | {' | '.join(map(str, counts))} | {' to '.join(dict.fromkeys([days[0], days[-1]]))} |"
        )
    shares = [f"{n} ({n / max(total[0], 1):.0%})" for n in total[2:]]
    return [*lines, f"| all | {total[0]} | {total[1]} | {' | '.join(shares)} | |"]


def _marks(entry: Entry) -> tuple[bool, bool, bool]:
    first, now = entry.first, entry.now
    return (
        now is not None and now.drafted,
        first is not None and first.correct,
        now is not None and now.correct,
    )


def text(stored: Suites) -> str:
    """The Markdown file."""
    failed = [
        f"| {name} | {problem[:80].replace('|', '/')} | {entry.now.reason[:REASON_CHARACTERS].replace('|', '/')} |"
        for name, suite in stored.suites.items()
        for problem, entry in suite.entries.items()
        if entry.now is not None and not entry.now.correct
    ]
    parts = ["# The compiler's drafts of suites that its generator had not seen",
             "`python -m bench.compiler_drafts FOLDER --draft-seconds 90`, once for each suite, then "
             "`python -m bench.compiler_drafts_suites`  ",
             stored.machine, *stored.notes, "\n".join(table(stored))]  # fmt: skip
    if failed:
        parts += [
            "## Not right now",
            "\n".join(["| suite | problem | why |", "|---|---|---|", *failed]),
        ]
    return "\n\n".join(parts) + "\n"


def _read(path: Path) -> Suites:
    return (
        Suites.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else Suites()
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", default=[], metavar="SUITE=JSON")
    parser.add_argument("--set", choices=["first", "now"], default="now")
    parser.add_argument("--date", default=str(date.today()), help="of these rows")
    parser.add_argument("--machine")
    parser.add_argument(
        "--note",
        nargs="+",
        help="paragraphs before the table, in the place of those that are stored",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("bench/results/compiler_drafts-suites-cpu")
    )
    given = parser.parse_args(argv)
    stored = _read(given.out.with_suffix(".json"))
    suites = dict(stored.suites)
    for name, _, file in (pair.partition("=") for pair in given.rows):
        rows = [
            Row.model_validate(row) for row in json.loads(Path(file).read_text(encoding="utf-8"))
        ]
        suites[name] = suites.get(name, Suite()).with_rows(rows, given.set == "first", given.date)
    stored = stored.with_(
        suites=suites,
        machine=given.machine or stored.machine,
        notes=tuple(given.note or stored.notes),
    )
    dumped = json.dumps(stored.model_dump(mode="json", exclude_defaults=True), indent=1)
    given.out.with_suffix(".json").write_text(dumped + "\n", encoding="utf-8")
    given.out.with_suffix(".md").write_text(text(stored), encoding="utf-8")
    print("\n".join(table(stored)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
