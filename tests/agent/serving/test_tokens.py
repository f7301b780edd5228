"""The token file, read again while the server runs."""

import signal
import time

import httpx2
import pytest

from kernelwright.agent.serving.routes.tokens import Right, Tokens
from kernelwright.errors import InputError

from .conftest import ALICE, BOB


def test_other_tokens_take_over_with_their_rights(tmp_path):
    file = tmp_path / "tokens.txt"
    file.write_text(f"alice {ALICE} admin\n")
    tokens = Tokens.read(file)
    assert tokens.has("alice", Right.ADMIN)
    file.write_text(f"bob {BOB}\nalice {ALICE}-new\n")
    tokens.take_over(Tokens.read(file))
    known = [tokens.client(f"Bearer {token}") for token in (ALICE, f"{ALICE}-new", BOB)]
    assert known == [None, "alice", "bob"]
    assert not tokens.has("alice", Right.ADMIN)
    with pytest.raises(InputError):
        Tokens.read(tmp_path / "none.txt")


@pytest.mark.slow
def test_a_server_reads_its_token_file_again_at_sighup(serve, tmp_path):
    file = tmp_path / "tokens.txt"
    file.write_text(f"alice {ALICE}\n")
    server = serve("--token-file", "tokens.txt")

    def status(token):
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(f"{server.url}/v1/problems", headers=headers, timeout=400).status_code

    def say_after_reload(text):
        lines = len(server.said)
        file.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 100
        while len(server.said) == lines:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return server.said[-1]

    assert (status(ALICE), status(BOB)) == (200, 401)
    assert say_after_reload(f"bob {BOB}\n").startswith("read ")
    assert (status(ALICE), status(BOB)) == (401, 200)
    assert "stay as they were" in say_after_reload("bob short\n")
    assert status(BOB) == 200
