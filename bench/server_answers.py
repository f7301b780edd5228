"""What `agent solve --policy openai:` makes of every kind of server's answer: `python -m bench.server_answers`.

Each answer is served on loopback (the table is that of `tests/agent/solve/test_server_answers.py`), and the line that
the user sees, the exit status, the requests and what they cost are written to `bench/results/server_answers.md`. The
commands run in this process and share a database, so that their one kernel is judged once.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "server_answers.md"
PATIENCE_SECONDS = 8
TIMEOUT_SECONDS = 2
PRICES = (
    '[[price]]\nhost = "127.0.0.1"\nmodel = "m"\ninput = 1.0\noutput = 10.0\nas_of = 2026-01-01\n'
)


class Outcome(NamedTuple):
    """The outcome of one command."""

    name: str
    line: str
    exit: int
    requests: int
    turns: int
    """Turns that are stored with their reply."""
    tokens: int
    dollars: float | None
    seconds: float


def main() -> None:
    """Runs every case, or those whose names hold a word, and writes the table where all of them ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "word", nargs="?", default="", help="only the cases whose names hold this word"
    )
    word = parser.parse_args().word
    from tests.agent.solve.server_answers import CASES, PROBLEM

    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "problem.py").write_text(PROBLEM)
        Path(folder, "prices.toml").write_text(PRICES)
        for name in [name for name in CASES if word in name]:
            outcomes.append(run_case(name, Path(folder)))
            print(row_of(outcomes[-1]), flush=True)
    if not word:
        RESULTS.write_text(page(outcomes), encoding="utf-8")


def run_case(name: str, folder: Path) -> Outcome:
    """Serves a case's answers, and solves a small problem with them."""
    from tests.agent.command_in_process import agent_here
    from tests.agent.solve.server_answers import CASES
    from tests.policies.loopback import loopback

    case = CASES[name]
    with loopback(*case.answers, listing=case.listing) as server:
        started = time.monotonic()
        ended = agent_here(*arguments(server.url), "--json", folder=folder)
        seconds = time.monotonic() - started
        requests = len(server.asked)
    solved = json.loads(ended.stdout)
    spent = solved["spent"]
    return Outcome(
        name, line_of(solved).replace(server.url, "URL"), ended.returncode, requests, spent["turns"], spent["tokens"],
        spent["dollars"], seconds,
    )  # fmt: skip


def arguments(url: str) -> list[str]:
    """Returns the words of the command."""
    return [
        "solve", "problem.py", "--policy", f"openai:m@{url}", "--draft", "policy", "--device", "cpu",
        "--goal", "correct", "--db", "runs.db", "--prices", "prices.toml", "--patience", str(PATIENCE_SECONDS),
        "--timeout", str(TIMEOUT_SECONDS),
    ]  # fmt: skip


def line_of(solved: dict[str, Any]) -> str:
    """Returns the line about the end of a run."""
    if solved["correct"]:
        return "correct"
    failure = (solved["report"] or {}).get("failure") or {}
    return str(solved["message"] or failure.get("message", ""))


def row_of(outcome: Outcome) -> str:
    """Writes a row of the table."""
    line = outcome.line.replace("|", "\\|")
    dollars = "unknown" if outcome.dollars is None else f"{outcome.dollars:.4f}"
    return (
        f"| {outcome.name} | {line} | {outcome.exit} | {outcome.requests} | {outcome.turns} | "
        f"{outcome.tokens:,} | {dollars} | {outcome.seconds:.0f} |"
    )


def page(outcomes: list[Outcome]) -> str:
    """Writes the page with its table."""
    solved = sum(outcome.exit == 0 for outcome in outcomes)
    command = " ".join(arguments("URL"))
    head = [
        "# Answers of a model's server, and what `agent solve` makes of them",
        "",
        f"`python -m bench.server_answers`, {datetime.date.today():%Y-%m-%d}, {platform.processor() or 'x86_64'} with "
        f"{os.cpu_count()} cores, Python {platform.python_version()}: {len(outcomes)} servers on loopback, each with "
        f"`agent {command}`. {solved} of them end with a correct kernel. The largest number of requests is "
        f"{max(outcome.requests for outcome in outcomes)}; refusals (status 400 and above) are not charged for.",
        "",
        "Exit 0: a correct kernel. 1: none. 2: something must be changed first. 3: the server's trouble, and the same "
        "command goes on. Tokens and dollars are those that count against `--max-tokens` and `--max-usd` ($1 a million "
        "tokens of prompts, $10 of replies); of an answer without a usage they are estimated.",
        "",
        "| the server sends | the user sees | exit | requests | turns stored | tokens | dollars | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row_of(outcome) for outcome in outcomes), ""])


if __name__ == "__main__":
    main()
