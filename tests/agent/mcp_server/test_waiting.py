"""What a client is told while a verdict is made, and verdicts that are cancelled: the real judge in this process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from mcp import Client

from kernelwright.agent.mcp_server import judging as judging_module
from kernelwright.agent.mcp_server.budget import ClientBudgets
from kernelwright.agent.mcp_server.history import History
from kernelwright.agent.mcp_server.judging import ServerJudge
from kernelwright.agent.mcp_server.requests import Access
from kernelwright.agent.mcp_server.server import KernelServer
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.trials import TRIAL_SECONDS, reference_trials

from .conftest import RIGHT

HANGS = f"{RIGHT}\nwhile True:\n    pass\n"
PATIENCE_SECONDS = 300.0
CODE = {"problem": "fused silu", "source": HANGS}


@pytest.fixture(scope="module")
def judging(tmp_path_factory):
    """One worker, so that a verdict that hangs keeps the next one waiting."""
    history = History(tmp_path_factory.mktemp("waiting") / "verdicts.db")
    with ServerJudge(
        "cpu", history, ClientBudgets(50, 5000.0), Access(local=True), workers=1
    ) as judge:
        yield judge


def drive(judging: ServerJudge, work: Any) -> Any:
    async def once() -> Any:
        async with Client(KernelServer(judging, "1")) as client:
            return await work(client)

    return asyncio.run(once())


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = (await client.call_tool(tool, arguments)).structured_content
    assert answer is not None
    return answer


async def end_of(client: Client, verdict_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := await ask(client, "result", verdict_id=verdict_id))["state"] == "running":
        assert time.monotonic() < deadline
    return answer


def test_tools_have_titles_and_say_that_they_change_nothing(judging):
    async def list_tools(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in drive(judging, list_tools)}
    assert all(tool.title and tool.annotations.title == tool.title for tool in tools.values())
    changing = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert changing == {"cancel"}
    assert not any(tool.annotations.destructive_hint for tool in tools.values())


@pytest.mark.slow
def test_a_client_is_told_the_step_while_it_waits(judging, monkeypatch):
    """The verdict does not end: the worker has another one, which hangs."""
    monkeypatch.setattr("kernelwright.agent.mcp_server.tools.TOOL_ANSWER_SECONDS", 3.0)

    async def wait(client: Client) -> list[tuple[float, str | None]]:
        first = await ask(client, "submit", question="compile", **CODE)
        notes: list[tuple[float, str | None]] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            notes.append((progress, message))

        source = "import triton\n"
        told = await client.call_tool(
            "check", {"problem": "fused silu", "source": source}, progress_callback=note
        )
        assert told.structured_content["state"] == "running"
        for verdict_id in (told.structured_content["verdict_id"], first["verdict_id"]):
            await ask(client, "cancel", verdict_id=verdict_id)
            assert (await end_of(client, verdict_id))["state"] == "cancelled"
        return notes

    notes = drive(judging, wait)
    assert len(notes) >= 2
    assert notes == sorted(notes, key=lambda one: one[0])
    assert {message for _, message in notes} == {"waiting"}


@pytest.mark.slow
def test_a_cancelled_verdict_that_hangs_lets_the_next_one_be_made(judging, monkeypatch):
    monkeypatch.setattr(judging_module, "CALL_CANCEL_GRACE_SECONDS", 0.5)

    async def cancel(client: Client) -> tuple[dict[str, Any], dict[str, Any], int]:
        before = judging.budget.remaining().verdicts
        hanging = await ask(client, "submit", question="compile", **CODE)
        behind = await ask(
            client, "submit", question="compile", problem="fused silu", source="x = ("
        )
        while judging.step(hanging["verdict_id"]) != "tracing":
            await asyncio.sleep(0.05)
        assert (await ask(client, "cancel", verdict_id=hanging["verdict_id"]))["state"] == "running"
        ended = await end_of(client, hanging["verdict_id"])
        after = await end_of(client, behind["verdict_id"])
        return ended, after, before - judging.budget.remaining().verdicts

    ended, after, spent = drive(judging, cancel)
    assert (ended["state"], "cancelled" in ended["error"]) == ("cancelled", True)
    assert (after["state"], after["failure"]["fault"]) == ("finished", "syntax")
    assert spent == 1, "what was cancelled costs no verdict"


LOOPING_REFERENCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        while True:
            pass

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_reference_that_loops_ends_with_its_cancelled_verdict_and_is_not_remembered(
    judging, monkeypatch
):
    monkeypatch.setattr(judging_module, "CALL_CANCEL_GRACE_SECONDS", 0.5)

    async def cancel(client: Client) -> tuple[dict[str, Any], float]:
        looping = await ask(
            client, "submit", question="check", problem=LOOPING_REFERENCE, source=RIGHT
        )
        while judging.step(looping["verdict_id"]) != "running the reference":
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        began = time.monotonic()
        await ask(client, "cancel", verdict_id=looping["verdict_id"])
        return await end_of(client, looping["verdict_id"]), time.monotonic() - began

    ended, seconds = drive(judging, cancel)
    assert ended["state"] == "cancelled"
    assert seconds < TRIAL_SECONDS / 2, "the reference's own limit did not end it"
    problem = Problem(name="given", source=LOOPING_REFERENCE)
    assert reference_trials().known_outcome(problem, train_mode=False) is None


@pytest.mark.slow
def test_a_server_that_is_stopped_waits_for_no_reference_and_says_why_there_is_no_verdict(tmp_path):
    history = History(tmp_path / "verdicts.db")
    judge = ServerJudge("cpu", history, ClientBudgets(50, 5000.0), Access(local=True), workers=1)

    async def begin(client: Client) -> str:
        looping = await ask(
            client, "submit", question="check", problem=LOOPING_REFERENCE, source=RIGHT
        )
        while judge.step(looping["verdict_id"]) != "running the reference":
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        return looping["verdict_id"]

    verdict_id = drive(judge, begin)
    began = time.monotonic()
    judge.close()
    assert time.monotonic() - began < TRIAL_SECONDS / 2
    row = history.find(verdict_id)
    assert row is not None
    assert (row.state, row.explanation) == ("failed", judging_module.SERVER_RESTARTED_MESSAGE)


def test_a_verdict_that_has_ended_stays_as_it_is(judging):
    async def cancel(client: Client) -> tuple[dict[str, Any], dict[str, Any]]:
        made = await ask(client, "compile", problem="fused silu", source="x = (")
        return made, await ask(client, "cancel", verdict_id=made["verdict_id"])

    made, cancelled = drive(judging, cancel)
    assert cancelled["state"] == made["state"] == "finished"
