"""What bench.attack found, as Markdown and as JSON."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple


class Result(NamedTuple):
    """What one judge said of one candidate."""

    judge: str
    name: str
    family: str
    control: bool
    """An honest kernel."""
    accepted: bool
    crashed: bool
    """No verdict: the judge's process ended, hung or raised."""
    why: str
    seconds: float


def table(
    results: Sequence[Result],
    refused: Mapping[str, Mapping[str, str]],
    jobs: Sequence[Any],
    checkouts: Path,
    command: str,
) -> tuple[str, dict[str, Any]]:
    """Markdown, and the record of everything."""
    judges = list(refused)
    families = sorted({j.family for j in jobs if not j.control})
    rows = [_row(judge, results, refused[judge], jobs, checkouts) for judge in judges]
    lines = [
        "# The repository's exploits before public judges", "",
        f"`{command}`, {machine()}, {date.today().isoformat()}.", "",
        "Accepted: the judge called the candidate correct. Crashed: it gave no verdict. Most of the exploits were "
        "written against our own judge; before the others they do what is left of them. A judge that does not ask "
        "whose work the answer is accepts one that a library computed.", "",
        "| judge | commit | tried | accepted | rate | crashed | not expressible | left out for time | honest taken |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {r['judge']} | {r['commit']} | {r['tried']} | {r['accepted']} | {r['rate']} | {r['crashed']} | "
            f"{r['not_expressible']} | {r['left_out']} | {r['honest_accepted']} of {r['honest_tried']} |"
            for r in rows
        ),
        "", "Accepted of tried by family:", "", f"| judge | {' | '.join(families)} |",
        "|---" * (len(families) + 1) + "|",
        *(f"| {judge} | " + " | ".join(_share(results, judge, f) for f in families) + " |" for judge in judges),
        "", *_reasons(refused),
    ]  # fmt: skip
    record = {
        "command": command, "machine": machine(), "date": date.today().isoformat(), "judges": rows,
        "not_expressible": {judge: dict(names) for judge, names in refused.items()},
        "results": [r._asdict() for r in results],
    }  # fmt: skip
    return "\n".join(lines) + "\n", record


def _row(
    judge: str,
    results: Sequence[Result],
    refused: Mapping[str, str],
    jobs: Sequence[Any],
    checkouts: Path,
) -> dict[str, Any]:
    mine = [r for r in results if r.judge == judge and not r.control]
    controls = [r for r in results if r.judge == judge and r.control]
    accepted = sum(r.accepted for r in mine)
    file = checkouts / judge / "COMMIT"
    return {
        "judge": judge, "commit": file.read_text().split()[0][:10] if file.is_file() else "this one",
        "tried": len(mine), "accepted": accepted, "rate": f"{100 * accepted / len(mine):.1f} %" if mine else "",
        "crashed": sum(r.crashed for r in mine), "not_expressible": len(refused),
        "left_out": sum(j.judge == judge and not j.control for j in jobs) - len(mine),
        "honest_accepted": sum(r.accepted for r in controls), "honest_tried": len(controls),
    }  # fmt: skip


def _share(results: Sequence[Result], judge: str, family: str) -> str:
    members = [r for r in results if r.judge == judge and r.family == family and not r.control]
    return f"{sum(r.accepted for r in members)} of {len(members)}"


def _reasons(refused: Mapping[str, Mapping[str, str]]) -> list[str]:
    lines = ["Not expressible:", ""]
    for judge, names in refused.items():
        told = "; ".join(f"{why} ({n})" for why, n in Counter(names.values()).most_common())
        lines += [f"- {judge}: {told}"] if told else []
    return lines if len(lines) > 2 else []


def machine() -> str:
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    except OSError:
        told = ""
    return f"{told.splitlines()[0] if told else 'no GPU'}, Python {platform.python_version()}"
