"""Hub names, against a server on loopback that answers as the hub does, and against none."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from kernelwright.policies.base import PolicyRefused
from kernelwright.policies.hub_models import check_reachable
from kernelwright.policies.model_identity import model_config

COMMIT = "0" * 40


class Hub(BaseHTTPRequestHandler):
    """`server.answer`: a status, and the hub's own code for what is wrong."""

    def do_HEAD(self):
        status, code = self.server.answer
        self.server.asked += 1
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        if status == 200:
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", '"abc"')
        self.send_header("Content-Length", "2")
        self.end_headers()

    def log_message(self, *arguments):
        """Quiet."""


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub of our own, an empty cache, and no memory of what was asked."""
    check_reachable.cache_clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.answer, server.asked = (200, ""), 0
    where = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", where + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
    check_reachable.cache_clear()


def test_a_model_that_the_hub_has_is_asked_for_once(hub):
    assert model_config("some/model") is None
    assert model_config("some/model") is None
    assert hub.asked == 1


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (404, "RepoNotFound", "no model some/model here or on the hub: check the name"),
        (401, "RepoNotFound", "a private one needs `hf auth login`"),
        (403, "GatedRepo", "only to those who agreed to its terms"),
        (404, "EntryNotFound", "has no config.json on the hub"),
        (503, "", "the hub cannot be reached"),
    ],
)
def test_what_the_hub_refuses_is_one_line_after_one_question(hub, status, code, says):
    hub.answer = status, code
    with pytest.raises(PolicyRefused, match=says) as refused:
        model_config("some/model")
    assert "\n" not in str(refused.value)
    assert hub.asked == 1


def test_a_name_that_the_hub_cannot_have_is_refused_without_asking(hub):
    with pytest.raises(PolicyRefused, match="here or on the hub"):
        model_config("some/..")
    assert hub.asked == 0


def cached(folder):
    """As huggingface_hub lays out what it has downloaded."""
    model = folder / "models--some--model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "snapshots" / COMMIT / "config.json").write_text(json.dumps({"model_type": "qwen3"}))


def test_without_a_network_what_was_downloaded_is_taken_and_the_hub_is_asked_no_more(
    hub, tmp_path, caplog
):
    hub.server_close()
    with pytest.raises(PolicyRefused, match="the hub cannot be reached"):
        model_config("some/model")
    cached(tmp_path)
    assert model_config("some/model") is None
    assert constants.HF_HUB_OFFLINE, "transformers would ask six times for every file"
    assert "taken from what was downloaded before" in caplog.text


def test_where_the_user_is_offline_nothing_is_asked(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(PolicyRefused, match="HF_HUB_OFFLINE is set"):
        model_config("some/model")
    cached(tmp_path)
    assert model_config("some/model") is None
    assert hub.asked == 0
