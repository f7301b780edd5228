"""How fast `rl data synth` verifies, what it refuses and why. Writes bench/results/data_synth.md.

python -m bench.data_synth [--n 200] [--workers 2]      generates and measures
python -m bench.data_synth --corpus FOLDER              reads what a corpus noted of itself
python -m bench.data_synth --corpus FOLDER --on MACHINE the same, as a section of the page: made on another machine
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from datetime import date
from pathlib import Path

from kernelwright.rl.data.synth.engine.generating import (
    CorpusProgress,
    CorpusRequest,
    generate,
    state_of,
)

PAGE = Path(__file__).parent / "results" / "data_synth.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--on", help="the machine that the corpus was made on, in words")
    asked = parser.parse_args()
    if asked.corpus is not None:
        state = state_of(asked.corpus)
        if state is None:
            parser.error(f"{asked.corpus} holds no synth.json: name a folder of rl data synth")
    else:
        with tempfile.TemporaryDirectory() as folder:
            state = generate(
                CorpusRequest(seed=1000),
                asked.n,
                Path(folder, "corpus"),
                asked.workers,
                lambda step: print(step, flush=True),
            )
    made = (
        page(state)
        if asked.on is None
        else PAGE.read_text(encoding="utf-8") + "\n" + section(state, asked.on)
    )
    PAGE.write_text(made, encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


def page(state: CorpusProgress) -> str:
    return (
        f"# rl data synth\n\n`python -m bench.data_synth`, {date.today()}, Python "
        f"{platform.python_version()}, seed "
        f"{state.wanted.seed}.\n\n"
        + facts_of(
            state, f"on {os.cpu_count()} cores, load {os.getloadavg()[2]:.1f} over 15 minutes"
        )
    )


def section(state: CorpusProgress, machine: str) -> str:
    """Writes the section on a corpus that was brought here."""
    return (
        f"## On {machine}\n\n`rl data synth --seed {state.wanted.seed}`, read with `--corpus` on {date.today()}.\n\n"
        + facts_of(state, "there")
    )


def facts_of(state: CorpusProgress, where: str) -> str:
    refused = sum(state.rejected.values())
    drafts = sum(count for reason, count in state.rejected.items() if reason.startswith("draft"))
    families = ", ".join(f"{name} {count:,}" for name, count in state.families.items())
    facts = (
        ("pairs", f"{state.drafts:,} drafts and {state.repairs:,} repairs, each verified: compiled for "
        f"{state.wanted.target}, interpreted at small sizes"),
        ("a second", f"{state.rate:.2f} with {state.workers} processes {where}; {state.seconds:,.0f} s"),
        ("distinct dataflow graphs", f"{state.graphs:,}"),
        ("rows by family", families),
        ("refused", f"{refused:,} of {state.tried:,} programs ({refused / max(state.tried, 1):.1%}); {drafts:,} of "
        "them drafts"),
    )  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in facts)
    reasons = "\n".join(f"- {count:,} {reason}" for reason, count in state.rejected.items())
    return f"| | |\n|---|---|\n{table}\n\nRefused, and why:\n\n{reasons}\n"


if __name__ == "__main__":
    main()
