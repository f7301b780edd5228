"""A scripted client repairs a kernel as a coding agent would: real server processes, real verdicts of the CPU rungs."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from .conftest import RIGHT, TOOLS, http_server

PROBLEM = "fused silu"
UNCOMPILED = RIGHT.replace("tl.store(", "tl.no_such_store(")
WRONG = RIGHT.replace("@triton.jit", "# the sigmoid is left out\n@triton.jit").replace(
    "tl.sigmoid(", "1.0 + 0.0 * ("
)


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """An answer as a client reads it. What every answer owes is held here."""
    result = await client.call_tool(tool, arguments)
    answer = result.structured_content
    assert answer is not None
    assert answer["budget"]["verdicts"] >= 0
    assert "verdict_id" in answer
    assert result.is_error == bool(answer.get("error"))
    return answer


async def repair(client: Client) -> list[dict[str, Any]]:
    """From a text that does not compile to a correct kernel, with every tool on the way."""
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert names == set(TOOLS)
    listed = await ask(client, "problem_list", query=PROBLEM, limit=3)
    assert listed["problems"][0]["name"] == "fused_silu"
    shown = await ask(client, "problem_show", problem=PROBLEM)
    assert "class Model" in shown["reference"]

    broken = await ask(client, "compile", problem=PROBLEM, source=UNCOMPILED)
    assert broken["outcome"] == "not_compiled"
    assert broken["failure"]["fault"] == "compile"
    assert "no_such_store" in broken["failure"]["text"]
    line = UNCOMPILED.splitlines()[broken["failure"]["line"] - 1]
    assert "no_such_store" in line

    compiled = await ask(client, "compile", problem=PROBLEM, source=WRONG)
    assert compiled["outcome"] == "compiled"
    assert compiled["kernels"][0]["registers"] > 0
    wrong = await ask(client, "check", problem=PROBLEM, source=WRONG)
    assert wrong["outcome"] == "incorrect"
    assert wrong["failure"]["fault"] == "mismatch"
    quick = await ask(client, "interpret", problem=PROBLEM, source=WRONG)
    assert quick["outcome"] == "incorrect"
    assert "kernels" not in quick

    begun = await ask(client, "submit", question="check", problem=PROBLEM, source=RIGHT)
    assert begun["state"] == "running"
    right = begun
    while right["state"] == "running":
        right = await ask(client, "result", verdict_id=begun["verdict_id"], wait_seconds=20)
    assert right["outcome"] == "correct"
    assert right["checks_passed"] == right["checks_made"] > 0
    assert right["own_share"] == 1.0
    timed = await ask(client, "bench", problem=PROBLEM, source=RIGHT)
    assert timed["outcome"] == "needs_gpu"
    assert "GPU" in timed["explanation"]
    profiled = await ask(client, "profile", problem=PROBLEM, source=RIGHT)
    assert profiled["outcome"] == "needs_gpu"
    assert profiled["kernels"]

    told = await ask(client, "history", problem=PROBLEM)
    return told["verdicts"]


def expected_history() -> list[tuple[str, str]]:
    """The newest first."""
    return [
        ("profile", "needs_gpu"), ("bench", "needs_gpu"), ("check", "correct"), ("interpret", "incorrect"),
        ("check", "incorrect"), ("compile", "compiled"), ("compile", "not_compiled"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.nightly
def test_a_kernel_is_repaired_over_stdio_and_its_history_outlives_the_server(stdio):
    async def first() -> list[dict[str, Any]]:
        async with stdio() as client:
            return await repair(client)

    async def after_a_restart() -> tuple[dict[str, Any], dict[str, Any]]:
        async with stdio() as client:
            told = await ask(client, "history")
            correct = next(one for one in told["verdicts"] if one["outcome"] == "correct")
            return told, await ask(
                client, "result", verdict_id=correct["verdict_id"], source=True, report=True
            )

    told = asyncio.run(first())
    assert [(one["question"], one["outcome"]) for one in told] == expected_history()
    again, kept = asyncio.run(after_a_restart())
    assert again["verdicts"] == told
    assert kept["source"] == RIGHT
    assert '"correct":true' in kept["report"]
    assert kept["outcome"] == "correct"


@pytest.mark.slow
@pytest.mark.nightly
def test_a_kernel_is_repaired_over_http_by_who_has_the_token(tmp_path):
    async def drive(url: str) -> list[dict[str, Any]]:
        async with (
            httpx2.AsyncClient(
                headers={"Authorization": "Bearer open sesame"}, timeout=90.0
            ) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            told = await repair(client)
            refused = await ask(client, "check", problem=PROBLEM, source="/etc/passwd.py")
            assert "takes no file" in refused["error"]
            refused = await ask(client, "check", problem="class Model:\n    pass\n", source=RIGHT)
            assert "reference" in refused["error"]
            return told

    with http_server(tmp_path, "--token", "open sesame") as url:
        assert httpx2.post(url, json={}).status_code == 401
        assert (
            httpx2.post(url, json={}, headers={"Authorization": "Bearer open"}).status_code == 401
        )
        told = asyncio.run(drive(url))
    assert [(one["question"], one["outcome"]) for one in told] == expected_history()
