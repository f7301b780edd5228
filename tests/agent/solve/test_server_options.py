"""Options for policies behind servers: what reaches the server, what is refused before it is asked, what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.command_in_process import agent_here
from tests.agent.solve.server_answers import CODE, PROBLEM, error, good
from tests.policies.loopback import Handler, loopback, reply

COMMAND = [
    "solve",
    "problem.py",
    "--draft",
    "policy",
    "--device",
    "cpu",
    "--goal",
    "correct",
    "--db",
    "runs.db",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path


def test_the_user_s_fields_are_in_every_request_and_make_another_command(folder: Path):
    (folder / "fields.json").write_text('{"service_tier": "flex", "temperature": 0.2}')
    with loopback(lambda handler: handler.say(reply("no code")), good) as server:
        command = [*COMMAND, "--policy", f"openai:m@{server.url}", "--json"]
        ended = agent_here(
            *command, "--reasoning-effort", "high", "--extra-body", "@fields.json", folder=folder
        )
        first = json.loads(ended.stdout)
        again = json.loads(agent_here(*command, folder=folder).stdout)
        asked = server.asked
    assert (ended.returncode, first["turn"], len(asked)) == (0, 1, 3)
    for body in asked[:2]:
        assert (body["reasoning_effort"], body["service_tier"], body["temperature"]) == (
            "high",
            "flex",
            0.2,
        )
    assert "reasoning_effort" not in asked[2]
    assert first["trajectory_id"] != again["trajectory_id"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--extra-body", "{"], "--extra-body is not JSON"),
        (["--extra-body", "[1]"], "--extra-body must be a JSON object"),
        (["--extra-body", "@none.json"], "No such file"),
        (["--prices", "none.toml"], "cannot read the prices"),
        (["--max-usd", "1"], "--max-usd needs a price, and none is known for m at"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_server_is_asked(
    folder: Path, options: list[str], message: str
):
    with loopback(good) as server:
        ended = agent_here(*COMMAND, "--policy", f"openai:m@{server.url}", *options, folder=folder)
        assert server.asked == []
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_options_of_servers_are_refused_for_other_policies(folder: Path):
    ended = agent_here(*COMMAND, "--policy", "compiler", "--reasoning-effort", "low", folder=folder)
    assert (ended.returncode, "asks no server" in ended.stderr) == (2, True)


def test_a_hosted_service_without_its_key_names_the_variable(folder: Path, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    ended = agent_here(*COMMAND, "--policy", "anthropic:claude-sonnet-5-5", folder=folder)
    assert (ended.returncode, "set ANTHROPIC_API_KEY" in ended.stderr) == (2, True)


@pytest.mark.slow
def test_cost_limits_and_waits_are_lines_where_there_is_no_terminal(folder: Path):
    def limited(handler: Handler) -> None:
        handler.say(
            reply(CODE), x_ratelimit_limit_requests="60", x_ratelimit_remaining_requests="59"
        )

    with loopback(error(429, "slow down", {"retry_after": "4"}), limited) as server:
        ended = agent_here(*COMMAND, "--policy", f"openai:m@{server.url}", folder=folder)
    assert ended.returncode == 0
    assert "is busy (429): slow down; asking again in" in ended.stderr
    assert "15 tokens, 59 of 60 requests left" in ended.stderr


def test_a_run_that_was_paused_goes_on_with_what_was_paid(folder: Path):
    """Two answers without a reply, then the same command again: the row's usage is that of all three."""
    nothing = {"usage": {"prompt_tokens": 100, "completion_tokens": 1}}

    def behave(handler: Handler) -> None:
        handler.say(nothing if len(handler.server.asked) <= 2 else reply(CODE))

    with loopback(behave) as server:
        command = [*COMMAND, "--policy", f"openai:m@{server.url}", "--patience", "9", "--json"]
        paused = agent_here(*command, folder=folder)
        solved = agent_here(*command, folder=folder)
    assert (paused.returncode, solved.returncode) == (3, 0)
    assert json.loads(paused.stdout)["spent"]["tokens"] == 202
    assert json.loads(solved.stdout)["spent"]["tokens"] == 217
