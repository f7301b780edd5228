"""What one client sees of another's verdicts, and for how long verdicts are kept."""

import time

import httpx2
import pytest

import kernelwright
from kernelwright.errors import InputError

from .conftest import ALICE, BOB, RunningServer

ROOT = "root-0123456789abcdef"


@pytest.mark.slow
def test_a_private_server_shows_a_client_its_own_verdicts_alone(tmp_path, text_only):
    (tmp_path / "tokens.txt").write_text(f"alice {ALICE}\nbob {BOB}\nroot {ROOT} admin\n")
    server = RunningServer(tmp_path, "--token-file", "tokens.txt", "--private")
    alice, bob, root = (kernelwright.JudgeClient(server.url, token) for token in (ALICE, BOB, ROOT))
    mine = alice.score("fused_silu", text_only("private")).verdict_id
    headers = {"Authorization": f"Bearer {BOB}"}
    for refused in (bob.status, bob.cancel):
        with pytest.raises(InputError, match="there is no verdict"):
            refused(mine)
    assert httpx2.get(f"{server.url}/v1/verdicts/{mine}/events", headers=headers).status_code == 404
    assert httpx2.get(f"{server.url}/v1/verdicts", headers=headers).json() == {
        "verdicts": [],
        "next": None,
    }
    others = httpx2.get(
        f"{server.url}/v1/rewards", params={"client": "alice"}, headers=headers
    ).json()
    assert others["candidates"] == 0
    metrics = httpx2.get(f"{server.url}/metrics", headers=headers).text
    assert "kernelwright_verdicts_total" in metrics
    assert "alice" not in metrics, "nor how much it submits"
    assert httpx2.get(f"{server.url}/v1/trajectories", headers=headers).status_code == 403
    admin_headers = {"Authorization": f"Bearer {ROOT}"}
    assert "alice" in httpx2.get(f"{server.url}/metrics", headers=admin_headers).text
    assert root.status(mine).state == "finished"
    assert bob.score("fused_silu", text_only("private")).known, (
        "the same content is judged once all the same"
    )
    assert bob.status(mine).state == "finished"
    for client in (alice, bob, root):
        client.close()
    assert server.stop() == 130


@pytest.mark.slow
def test_verdicts_are_deleted_after_the_days_for_which_they_are_kept(tmp_path, text_only):
    server = RunningServer(tmp_path)
    with kernelwright.JudgeClient(server.url) as client:
        old = client.score("fused_silu", text_only("old")).verdict_id
    assert server.stop() == 130
    time.sleep(1.0)
    again = RunningServer(tmp_path, "--keep", str(0.5 / 86_400))
    with kernelwright.JudgeClient(again.url) as client:
        began = time.monotonic()
        while httpx2.get(f"{again.url}/v1/verdicts/{old}").status_code != 404:
            assert time.monotonic() - began < 60.0
            time.sleep(0.1)
        assert not client.submit("fused_silu", text_only("old")).known
    assert again.stop() == 130


@pytest.mark.slow
def test_a_record_of_the_first_version_is_taken_over(tmp_path, text_only):
    import sqlite3

    server = RunningServer(tmp_path)
    with kernelwright.JudgeClient(server.url) as client:
        known = client.score("fused_silu", text_only("version 1")).verdict_id
    assert server.stop() == 130
    with sqlite3.connect(tmp_path / ".kernelwright" / "service.db") as record:
        record.execute("DROP INDEX verdict_state_ended")
        record.execute("ALTER TABLE verdict DROP COLUMN domain")
        record.execute("ALTER TABLE verdict DROP COLUMN priority")
        record.execute("PRAGMA user_version = 1")
    record.close()
    again = RunningServer(tmp_path)
    with kernelwright.JudgeClient(again.url) as client:
        assert client.score("fused_silu", text_only("version 1")).verdict_id == known
        assert client.score("fused_silu", text_only("version 2")).report.ended_at == "source"
    assert again.stop() == 130
