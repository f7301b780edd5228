"""A server whose weights are to be moved and which was not started for it: one line, and what to do.

With vLLM itself: tests/rl/training/online/test_vllm.py.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelwright.policies.base import PolicyRefused, PolicyUnavailable  # noqa: E402
from kernelwright.policies.openai.openai_policy import OpenAIPolicy  # noqa: E402
from kernelwright.policies.vllm.server import VLLMServerPolicy  # noqa: E402


@pytest.fixture
def answers():
    """What the server says, by path: a status and a body."""
    return {}


@pytest.fixture
def url(answers):
    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = answers.get(self.path, (404, {"detail": "Not Found"}))
            sent = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def do_GET(self):
            self.do_POST()

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def served(url: str, own: Path) -> VLLMServerPolicy:
    return VLLMServerPolicy(OpenAIPolicy("m", url), url, None, own)


def test_a_server_that_was_not_started_for_it_is_told_how(url, tiny_model, tiny_adapter):
    with pytest.raises(
        PolicyRefused,
        match=r"404 \(Not Found\); start it with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls",
    ):
        served(url, tiny_model).take_weights(tiny_model)
    with pytest.raises(
        PolicyRefused, match="start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
    ):
        served(url, tiny_model).take_adapter(tiny_adapter)


def test_a_server_that_reads_other_weights_or_is_asked_by_others_is_refused(
    url, answers, tiny_model
):
    from kernelwright.policies.model_identity import weights_revision

    answers["/collective_rpc"] = (200, {"results": ["another"]})
    with pytest.raises(PolicyRefused, match="share that folder"):
        served(url, tiny_model).take_weights(tiny_model)
    answers["/collective_rpc"] = (200, {"results": [weights_revision(tiny_model)]})
    answers["/reset_prefix_cache"] = (200, {"success": False})
    with pytest.raises(PolicyRefused, match="answers other clients too"):
        served(url, tiny_model).take_weights(tiny_model)


@pytest.mark.parametrize(
    "missing", ["/get_world_size", "/collective_rpc", "/init_weight_transfer_engine"]
)
def test_a_server_without_the_transfer_api_is_told_from_one_with_it(
    url, answers, tiny_model, missing, caplog
):
    """Then weights go through a folder, and no call waits for workers that never join."""
    answers["/get_world_size"] = (200, {"world_size": 1})
    answers["/collective_rpc"] = (200, {"results": [None]})
    answers["/init_weight_transfer_engine"] = (500, {"detail": "no group"})
    answers.pop(missing)
    policy = served(url, tiny_model)
    for _ in range(2):
        assert policy.send_weights({"weight": torch.zeros(2)}, "v1", "cpu") is False
    assert len([record for record in caplog.records if "through a folder" in record.message]) == 1


def test_a_wrong_key_and_a_server_that_is_not_there_are_said(url, answers, tiny_model):
    answers["/collective_rpc"] = (401, {"error": "Unauthorized"})
    with pytest.raises(PolicyRefused, match="set OPENAI_API_KEY"):
        served(url, tiny_model).take_weights(tiny_model)
    with pytest.raises(PolicyUnavailable, match="is the server up"):
        served("http://127.0.0.1:9/v1", tiny_model).take_weights(tiny_model)
