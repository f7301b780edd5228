"""The mutation score of the judge's draws, without a GPU: random one-line changes of the honest kernels are judged, and
of those that are accepted an independent search says which change an answer.

    python -m bench.mutations [--count 150] [--seed 1] [--half develop|report] [--workers 2] [--sizes 8]
        [--only KERNEL ...] [--records FILE.jsonl] [--out bench/results/mutations.md] [--json]

--records makes a run resumable: mutants that the file holds are not judged again. The draws of the judge are developed
against the kinds of the half `develop`; the score of the half `report` is the figure. --list judges nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import date
from pathlib import Path

from bench.judge_suites import honest
from bench.mutations.mutants import sampled
from bench.mutations.table import as_json, as_markdown
from bench.mutations.verdicts import judge_mutants


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=150, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=1, help="of the sample, and of the verdicts")
    parser.add_argument(
        "--half", choices=("develop", "report"), default="", help="kinds of one half alone"
    )
    parser.add_argument("--workers", type=int, default=2, help="verdicts at a time")
    parser.add_argument(
        "--sizes", type=int, default=8, help="other sizes that each verdict examines"
    )
    parser.add_argument(
        "--only", nargs="*", default=(), metavar="KERNEL", help="mutants of these kernels alone"
    )
    parser.add_argument(
        "--records", type=Path, help="JSON lines to append to; makes the run resumable"
    )
    parser.add_argument("--out", type=Path, help="Markdown file; a JSON file is written beside it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--list", action="store_true", help="print the sample and judge nothing")
    return parser.parse_args()


def main() -> int:
    """Exit status 0, or 2 where no kernel has the name that was asked for."""
    arguments = _arguments()
    entries = [e for e in honest(arguments.only) if e.tried_on("cpu") and not e.on_cpu]
    if not entries:
        print(
            f"no honest kernel is named {' or '.join(arguments.only)}: see tests/kernels/good",
            file=sys.stderr,
        )
        return 2
    mutants = sampled(entries, arguments.count, arguments.seed, arguments.half)
    if arguments.list:
        for mutant in mutants:
            print(
                f"{mutant.key} {mutant.entry.name}:{mutant.line} {mutant.kind}: {mutant.before} => {mutant.after}"
            )
        return 0
    records = judge_mutants(
        mutants, arguments.seed, arguments.workers, arguments.sizes, arguments.records
    )
    command = (
        f"`python -m bench.mutations {' '.join(sys.argv[1:])}`, {os.cpu_count()} cores ({platform.machine()}), "
        f"{date.today().isoformat()}"
    )
    result = {"command": command, **as_json(records)}
    text = as_markdown(records, command)
    print(json.dumps(result, indent=1) if arguments.json else text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
        arguments.out.with_suffix(".json").write_text(
            json.dumps(result, indent=1) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
