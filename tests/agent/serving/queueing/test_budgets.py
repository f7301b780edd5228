"""Judge seconds of a client within an hour: refused beyond them, also by the next server."""

import httpx2
import pytest

import kernelwright
from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.queueing.quotas import QuotaLimits, Quotas

from ..conftest import ALICE, BOB


def test_a_client_beyond_its_seconds_is_told_when_to_ask_again():
    quotas = Quotas(QuotaLimits(client_seconds=10.0), {"rich": 100.0}.get)
    for client in ("poor", "rich"):
        quotas.spend(client, 4.0)
        quotas.check_budget(client)
        quotas.spend(client, 7.0)
    quotas.check_budget("rich")
    with pytest.raises(RequestRefused, match="10 s of the judges within an hour") as refused:
        quotas.check_budget("poor")
    assert 3590 <= refused.value.retry_after <= 3600


def test_seconds_of_an_hour_ago_count_no_more():
    quotas = Quotas(QuotaLimits(client_seconds=10.0), spent=[("poor", 1000.0, 50.0)])
    assert quotas.spent("poor") == 0.0
    quotas.check_budget("poor")


def test_a_line_of_the_token_file_gives_a_client_seconds_which_outlive_the_server(
    serve, tmp_path, text_only
):
    (tmp_path / "tokens.txt").write_text(f"alice {ALICE} seconds=0.001\nbob {BOB}\n")
    for turn in range(2):
        server = serve("--token-file", "tokens.txt")
        with kernelwright.JudgeClient(server.url, BOB) as bob:
            assert bob.score("fused_silu", text_only(f"bob {turn}")).report.ended_at == "source"
        if turn == 0:
            with kernelwright.JudgeClient(server.url, ALICE) as alice:
                first = alice.score("fused_silu", text_only("alice"))
                assert alice.status(first.verdict_id).judge_seconds_quota == 0.001
        answer = httpx2.post(
            f"{server.url}/v1/verdicts", headers={"Authorization": f"Bearer {ALICE}"},
            json={"problem": {"name": "fused_silu"}, "candidate": text_only("more")},
        )  # fmt: skip
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota")
        assert int(answer.headers["retry-after"]) > 3000
        server.stop()
