"""`agent solve --policy openai:` against servers of every kind: what the user sees, pays, and finds in the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.store.database import Store
from tests.agent.command_in_process import agent_here
from tests.agent.solve.server_answers import CASES, PROBLEM
from tests.policies.loopback import loopback

PRICES = (
    '[[price]]\nhost = "127.0.0.1"\nmodel = "m"\ninput = 1.0\noutput = 10.0\nas_of = 2026-01-01\n'
)
OPTIONS = [
    "--draft",
    "policy",
    "--device",
    "cpu",
    "--goal",
    "correct",
    "--patience",
    "8",
    "--timeout",
    "2",
    "--json",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder of all runs: they share a database, and so the verdicts on their kernel."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "prices.toml").write_text(PRICES)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_server_s_answer_ends_as_the_table_says(folder: Path, name: str):
    case = CASES[name]
    with loopback(*case.answers, listing=case.listing) as server:
        ended = agent_here(
            "solve", "problem.py", "--policy", f"openai:m@{server.url}", "--db", "runs.db", "--prices", "prices.toml",
            *OPTIONS, folder=folder,
        )  # fmt: skip
        requests = len(server.asked)
    assert ended.returncode == case.exit, ended.stdout + ended.stderr
    assert requests == case.requests
    solved = json.loads(ended.stdout)
    assert case.message in told(solved)
    with Store.open(str(folder / "runs.db")) as store:
        turns = store.turns(solved["trajectory_id"])
    answered = [turn.completion for turn in turns if turn.completion is not None]
    assert len(answered) == case.rows
    assert all(
        completion.text or case.message in ("the reply is empty", "withheld")
        for completion in answered
    )
    usages = [*(answer.usage for answer in answered), *(turn.paid_for_nothing for turn in turns)]
    tokens = sum(
        usage.prompt_tokens + usage.completion_tokens for usage in usages if usage is not None
    )
    assert solved["spent"]["tokens"] == tokens
    assert (tokens > 0) == (solved["spent"]["dollars"] > 0)
    assert (tokens > 0) == (case.paid > 0 and case.exit != 2)


def told(solved: dict) -> str:
    """The one line about the end of a run."""
    if solved["correct"]:
        return "correct"
    failure = (solved["report"] or {}).get("failure") or {}
    line = solved["message"] or failure["message"]
    assert "\n" not in line
    return line
