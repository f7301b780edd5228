"""`agent solve`, `agent batch` and `rl stats` with vLLM's own server: it returns log-probs, with and without token ids.

Needs the environment for the tests of real servers (docs/reference/policies.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from tests.policies.servers import ROOT, free_port, serving, vllm_python  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
KEY = "sk-loopback"
CONTEXT = 32_768
"""Positions of the model: it tokenizes by bytes, and prompts in sentences, for a model that is not known, are long."""


class Served(NamedTuple):
    """A server, and where its model's prompts are told."""

    policy: str
    problems: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    model = save_novice(folder / "novice", head_dim=32)
    config = json.loads((model / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (model / "config.json").write_text(json.dumps(config))
    options = (
        f"--model {model} --served-model-name novice --host 127.0.0.1 --port {port} --dtype float32 --enforce-eager "
        f"--logprobs-mode=processed_logprobs --api-key={KEY}"
    )
    command = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *options.split()]
    with serving(command, port, folder / "log"):
        yield Served(f"openai:novice@http://127.0.0.1:{port}/v1", write_problems(folder / "toys"))


@pytest.fixture(scope="module")
def hidden(served: Served) -> Iterator[Served]:
    """The same server behind one that does not say that it is vLLM, as a gateway does: no token ids are asked of it."""
    model, _, url = served.policy.partition("@")

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward(None)

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["content-length"])))

        def forward(self, body: bytes | None) -> None:
            headers = {
                "content-type": "application/json",
                "authorization": self.headers.get("authorization", ""),
            }
            request = urllib.request.Request(url.removesuffix("/v1") + self.path, body, headers)
            try:
                answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                sent = answer.read().replace(b'"owned_by":"vllm"', b'"owned_by":"library"')
            self.send_response(answer.status)
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    gateway = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=gateway.serve_forever, daemon=True).start()
    yield served._replace(policy=f"{model}@http://127.0.0.1:{gateway.server_port}/v1")
    gateway.shutdown()


def run(folder: Path, program: str, *words: object) -> str:
    """Runs a command of the project as a user does, on a machine without a GPU; gives what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OPENAI_API_KEY": KEY,
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", f"kernelwright.{program}", *map(str, words)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600
    )
    print(program, *words, done.stdout, done.stderr[-2000:], sep="\n")
    assert done.returncode in (0, 1 if words[0] == "solve" else 0), done.stderr[-2000:]
    return done.stdout


def solve_and_batch(server: Served, folder: Path) -> dict[str, Any]:
    """Solves one problem, runs a batch of all of them, and returns what `rl stats` counts."""
    on_cpu = (
        "--policy",
        server.policy,
        "--reply-tokens",
        200,
        "--device",
        "cpu",
        "--db",
        folder / "runs.db",
    )
    run(
        folder,
        "agent",
        "solve",
        server.problems / "double.py",
        "--draft",
        "policy",
        "--turns",
        6,
        *on_cpu,
    )
    batch = ("--samples", 4, "--turns", 2, "--temperature", 1.3)
    run(folder, "agent", "batch", server.problems, *batch, *on_cpu)
    print(run(folder, "rl", "stats", "--db", folder / "runs.db"))
    counts: dict[str, Any] = json.loads(
        run(folder, "rl", "stats", "--db", folder / "runs.db", "--json")
    )
    return counts


def test_turns_of_vllms_server_are_logged_as_exact_and_stats_counts_them(served, tmp_path):
    counts = solve_and_batch(served, tmp_path)
    assert counts["turns"] >= 13
    assert counts["trainable"] > 0, (
        "the log-probs of vLLM's server are exact at temperature 1.3, too"
    )


def test_log_probs_without_token_ids_lose_no_reply_and_are_not_exact(hidden, tmp_path):
    counts = solve_and_batch(hidden, tmp_path)
    assert counts["turns"] >= 13
    assert counts["trainable"] == 0
