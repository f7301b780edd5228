"""Several clients of one server over HTTP: each has its own budget and its own history."""

import asyncio
import json
import signal
import time
from functools import partial

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from .conftest import RIGHT, http_server

ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"
CANDIDATE = {"problem": "fused silu", "source": RIGHT}
SPENT = "budget on this server is spent"


async def ask(client: Client, tool: str, **arguments: object) -> dict:
    told = await client.call_tool(tool, arguments)
    return json.loads(told.content[0].text)


def http_of(token: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=400.0)


async def drive(url: str) -> None:
    async with (
        http_of(ALICE) as alice_http,
        http_of(BOB) as bob_http,
        Client(streamable_http_client(url, http_client=alice_http)) as alice,
        Client(streamable_http_client(url, http_client=bob_http)) as bob,
    ):
        first = await ask(alice, "compile", **CANDIDATE)
        while first.get("state") == "running":
            first = await ask(alice, "result", verdict_id=first["verdict_id"], wait_seconds=40.0)
        assert first["outcome"] == "compiled", first
        assert SPENT in (await ask(alice, "compile", **CANDIDATE))["error"]
        of_bob = await ask(bob, "compile", **CANDIDATE)
        assert of_bob["outcome"] == "compiled", of_bob
        assert SPENT in (await ask(bob, "interpret", **CANDIDATE))["error"]
        lines = (await ask(bob, "history"))["verdicts"]
        assert [line["verdict_id"] for line in lines] == [of_bob["verdict_id"]]
        hidden = await ask(bob, "result", verdict_id=first["verdict_id"], source=True)
        assert "there is no verdict" in hidden["error"]
        assert "source" not in hidden
        shown = await ask(alice, "result", verdict_id=first["verdict_id"], source=True)
        assert "class ModelNew" in shown["source"]


@pytest.mark.slow
def test_a_client_spends_its_own_budget_and_sees_its_own_verdicts(tmp_path):
    (tmp_path / "tokens.txt").write_text(f"alice {ALICE}\nbob {BOB} seconds=0.001\n")
    with http_server(tmp_path, "--token-file", "tokens.txt", "--verdicts", "1") as url:
        assert httpx2.post(url, json={}).status_code == 401
        asyncio.run(drive(url))


def test_a_server_reads_its_token_file_again_at_sighup(tmp_path):
    file = tmp_path / "tokens.txt"
    file.write_text(f"alice {ALICE}\n")
    server = partial(http_server, tmp_path, "--token-file", "tokens.txt")

    def status(url: str, token: str) -> int:
        return httpx2.post(
            url, json={}, headers={"Authorization": f"Bearer {token}"}, timeout=400.0
        ).status_code

    with server() as url:
        assert (status(url, ALICE) == 401, status(url, BOB) == 401) == (False, True)
        file.write_text(f"bob {BOB}\n")
        [process] = [
            child
            for child in psutil.Process().children()
            if "mcp" in child.cmdline() and str(tmp_path / "verdicts.db") in child.cmdline()
        ]
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 100.0
        while status(url, BOB) == 401:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert status(url, ALICE) == 401
