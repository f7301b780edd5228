"""References of clients: who may send one, in which process it runs, and what happens after an incident."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import httpx2
import psutil
import pytest

import kernelwright
from kernelwright.agent.command_line.serve import who_sends_references
from kernelwright.errors import InputError

from .conftest import ALICE, BOB, GOOD, RunningServer

ROOT, CAROL, DAVE = "root-0123456789abcdef", "carol-0123456789abcdef", "dave-0123456789abcdef"
REFERENCE = """import torch
{top}

class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
PATCHES = {
    "the verdict maker": """
from kernelwright.agent.judging import verdict_maker
make = verdict_maker.VerdictMaker.make
def made(self, ask, step):
    reply = make(self, ask, step)
    return reply.model_copy(update={"report": reply.report.with_(failure=None, correct=True)})
verdict_maker.VerdictMaker.make = made
""",
    "torch": """
absolute = torch.Tensor.abs
torch.equal = torch.allclose = lambda *tensors, **settings: True
torch.isclose = torch.Tensor.isclose = lambda left, *more, **settings: torch.ones_like(left, dtype=torch.bool)
torch.abs = torch.Tensor.abs = lambda tensor: absolute(tensor) * 0
""",
}

ENDS = {
    "exit": "import sys; sys.exit(0)",
    "exit at once": "import os; os._exit(0)",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "allocate": "bytearray(2**45)",
    "fork": "import os; os.fork(); os._exit(0)",
}
"""Statements of a reference's forward that end the process that runs it."""
ENDING = REFERENCE.replace("return x *", "{statement}\n        return x *")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server with one judge: alice and bob send references, carol may not, root administers."""
    folder = tmp_path_factory.mktemp("shared")
    lines = [
        f"alice {ALICE}",
        f"bob {BOB}",
        f"carol {CAROL} names-only  # of the catalogue",
        f"root {ROOT} admin",
    ]
    (folder / "tokens.txt").write_text("\n".join(lines))
    server = RunningServer(folder, "--token-file", "tokens.txt")
    yield server
    server.stop()


@pytest.fixture
def judge_of(shared):
    clients = []

    def open_client(token):
        clients.append(kernelwright.JudgeClient(shared.url, token))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def wrong(right_code):
    """`wrong(k)`: programs that differ, whose numbers are wrong."""
    return lambda k: right_code.replace("x * tl.sigmoid(x)", "x * 1.0") + f"\nNUMBER = {k!r}\n"


@pytest.mark.slow
@pytest.mark.parametrize("patched", PATCHES)
def test_a_reference_that_patches_the_judge_changes_no_other_clients_verdict(
    judge_of, shared, wrong, patched
):
    hostile = kernelwright.Problem(name="mine", source=REFERENCE.format(top=PATCHES[patched]))
    alice, bob = judge_of(ALICE), judge_of(BOB)
    process = shared.judge()
    alice.score(hostile, wrong(patched), sizes=1)
    honest = kernelwright.Problem(name="mine", source=REFERENCE.format(top=""))
    assert not bob.score(honest, wrong(patched), sizes=1).correct
    assert not bob.score("fused_silu", wrong(patched), sizes=1).correct
    assert shared.judge() != process
    assert not alice.score("fused_silu", wrong(f"alice, {patched}"), sizes=1).correct


@pytest.mark.parametrize("ends", ENDS)
def test_a_reference_that_ends_its_process_fails_its_own_verdict_and_no_other(
    judge_of, shared, text_only, ends
):
    """All in alice's judge: what waits behind them is judged by the same process."""
    alice = judge_of(ALICE)
    hostile = kernelwright.Problem(name="mine", source=ENDING.format(top="", statement=ENDS[ends]))
    submitted = alice.submit(hostile, GOOD.read_text(), sizes=1)
    while not (status := alice.status(submitted.verdict_id, wait=30.0)).state.ended:
        pass
    assert (status.state, status.error.code) == ("failed", "problem"), status
    assert "secret" not in status.error.message
    honest = kernelwright.Problem(name="mine", source=REFERENCE.format(top=f"# {ends}"))
    assert alice.score(honest, text_only(ends)).report.ended_at == "source"


@pytest.mark.slow
def test_two_clients_share_verdicts_on_the_servers_problems_and_on_no_others(judge_of, text_only):
    alice, bob = judge_of(ALICE), judge_of(BOB)
    assert not alice.score("fused_silu", text_only("shared")).known
    assert bob.score("fused_silu", text_only("shared")).known
    same = kernelwright.find_problem("fused silu")
    assert bob.score(same, text_only("shared")).known, (
        "the catalogue's text is the server's own, whoever sends it"
    )
    problem = kernelwright.Problem(name="mine", source=REFERENCE.format(top="# mine"))
    assert not alice.score(problem, text_only("own")).known
    assert not bob.score(problem, text_only("own")).known


@pytest.mark.slow
def test_a_client_of_names_only_sends_no_reference(judge_of, shared, text_only):
    carol = judge_of(CAROL)
    assert carol.score("fused_silu", text_only("carol")).report.ended_at == "source"
    assert carol.score(kernelwright.find_problem("fused silu"), text_only("carol")).known
    problem = kernelwright.Problem(name="mine", source=REFERENCE.format(top=""))
    with pytest.raises(InputError, match="names-only"):
        carol.score(problem, text_only("carol"))
    body = {"problem": {"source": problem.source, "name": "fused_silu"}, "candidate": "x"}
    answer = httpx2.post(
        f"{shared.url}/v1/verdicts", json=body, headers={"Authorization": f"Bearer {CAROL}"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_an_administrator_deletes_and_rejudges_by_client_and_problem(judge_of, shared, text_only):
    alice = judge_of(ALICE)
    first = alice.score("fused_gelu", text_only("incident"))
    path, problem = f"{shared.url}/v1/verdicts", {"problem": "fused_gelu", "client": "alice"}
    as_root = {"Authorization": f"Bearer {ROOT}"}
    refused = httpx2.delete(path, params=problem, headers={"Authorization": f"Bearer {ALICE}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert httpx2.delete(path, headers=as_root).status_code == 422, (
        "all verdicts are deleted by no oversight"
    )
    again = httpx2.post(f"{path}/again", params=problem, headers=as_root)
    assert (again.status_code, again.json()) == (200, {"verdicts": 1})
    while not (status := alice.status(first.verdict_id, wait=30.0)).state.ended:
        pass
    assert [attempt.outcome for attempt in status.attempts] == ["finished", "finished"]
    assert httpx2.delete(path, params={**problem, "client": "bob"}, headers=as_root).json() == {
        "verdicts": 0
    }
    assert httpx2.delete(path, params=problem, headers=as_root).json() == {"verdicts": 1}
    with pytest.raises(InputError, match="there is no verdict"):
        alice.status(first.verdict_id)


@pytest.mark.slow
def test_a_server_makes_a_token_and_its_address_holds_it(tmp_path, text_only):
    server = RunningServer(tmp_path, "--references", "refuse", makes_token=True)
    bare, _, token = server.url.partition("/#token=")
    assert len(token) >= 32
    body = {"problem": {"name": "fused_silu"}, "candidate": text_only("token")}
    assert httpx2.post(f"{bare}/v1/verdicts", json=body).status_code == 401
    assert httpx2.get(bare).status_code == 200, "the page asks for the token"
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "check",
        "kernel.py",
        "--problem",
        "fused_silu",
    ]
    (tmp_path / "kernel.py").write_text(text_only("token"))
    checked = subprocess.run(
        [*command, "--server", server.url, "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert json.loads(checked.stdout)["explanation"].startswith("ended at source"), checked.stderr
    with (
        kernelwright.JudgeClient(server.url) as client,
        pytest.raises(InputError, match="--references refuse"),
    ):
        client.score(
            kernelwright.Problem(name="mine", source=REFERENCE.format(top="")), text_only("refused")
        )
    assert server.stop() == 130


@pytest.mark.parametrize(
    "line", [f"dave {DAVE} everything", f"dave {DAVE} admin admin", "dave short names-only"]
)
def test_a_line_that_says_something_else_is_refused(tmp_path, line):
    (tmp_path / "tokens.txt").write_text(line)
    server = RunningServer(tmp_path, "--token-file", "tokens.txt")
    assert server.process.wait(100) == 2
    assert "names-only" in "".join(server.said)


def trial_processes(server):
    """The processes below a server in which references are tried."""
    found = []
    for number in server.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "kernelwright.tools.reference_trials.worker" in psutil.Process(number).cmdline():
                found.append(number)
    return found


def test_a_reference_is_tried_once_over_judges_and_restarts(serve, text_only, right_code):
    problem = kernelwright.Problem(name="mine", source=REFERENCE.format(top="# once"))
    for turn in range(2):
        server = serve()
        with kernelwright.JudgeClient(server.url) as client:
            if turn == 0:
                assert client.score(problem, right_code, sizes=1).correct
                assert trial_processes(server)
                os.kill(server.judge(), signal.SIGKILL)
            wrong = right_code.replace("x * tl.sigmoid(x)", "x * 1.0") + f"\nTURN = {turn}\n"
            assert not client.score(problem, wrong, sizes=1).correct
            assert trial_processes(server) == []
        server.stop()


@pytest.mark.parametrize(
    ("choice", "on_ray", "has_tokens", "may_send"),
    [
        (None, False, True, "trusted"),
        (None, True, True, "refuse"),
        (None, True, False, "trusted"),
        ("trusted", True, True, "trusted"),
        ("refuse", False, False, "refuse"),
    ],
)
def test_where_judges_have_no_walls_references_are_refused_by_default(
    choice, on_ray, has_tokens, may_send
):
    assert who_sends_references(choice, on_ray, has_tokens) == may_send
