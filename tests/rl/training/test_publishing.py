"""`rl merge` and `rl push`: a merged model says what base and adapter say; a folder arrives whole at a hub."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.policies.policy_card import read_card, write_card  # noqa: E402
from kernelwright.rl.training.options import Storage  # noqa: E402
from kernelwright.rl.training.publishing import files_to_push, merge_adapter  # noqa: E402
from kernelwright.rl.training.subject import load_weights, open_subject  # noqa: E402
from tests.tiny_model import save_tiny_adapter, save_tiny_model  # noqa: E402

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def merged(tmp_path_factory, tiny):
    folder = tmp_path_factory.mktemp("merged")
    adapter = save_tiny_adapter(tiny, folder / "adapter")
    merge_adapter(f"transformers:{tiny}", str(adapter), folder / "whole", Storage.FP32)
    return folder / "whole"


def test_a_merged_model_has_the_logits_of_base_and_adapter(merged, tiny):
    ids = torch.arange(40)[None]
    adapted = load_weights(
        open_subject(f"transformers:{tiny}", str(merged.parent / "adapter")), "cpu", lora=False
    )
    alone = load_weights(open_subject(f"transformers:{merged}"), "cpu", lora=False)
    base = load_weights(open_subject(f"transformers:{tiny}"), "cpu", lora=False)
    with torch.no_grad():
        expected, found, plain = (model.eval()(ids).logits for model in (adapted, alone, base))
    assert (expected - found).abs().max() < 1e-4
    assert (expected - plain).abs().max() > 0.1
    card = read_card(merged)
    assert card.base == str(tiny)
    assert card.model_extra["merged_adapter"] == str(merged.parent / "adapter")
    assert not (merged / "adapter_config.json").exists()


class Hub(ThreadingHTTPServer):
    """The few calls of a model hub's HTTP API that an upload makes; keeps what arrives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict] = {}
        self.objects: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        self.tokens: set[str] = set()


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do_GET(self) -> None:
        self.answer({"error": "not found"}, 404)

    def do_PUT(self) -> None:
        content = self.body()
        assert hashlib.sha256(content).hexdigest() == self.path.rpartition("/")[2]
        self.server.objects[self.path.rpartition("/")[2]] = content
        self.answer({})

    def do_POST(self) -> None:
        body = self.body()
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        self.server.tokens.add(token)
        if self.path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            self.answer({"errors": [], "warnings": []})
        elif token != "hf_secret":
            self.answer({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization', 'me')}/{asked['name']}"
            self.server.repositories[name] = asked
            self.answer({"url": f"{self.server.url}/{name}", "name": name, "id": name})
        elif "/preupload/" in self.path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self.answer({"files": files, "commitOid": "0" * 40})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**entry, "actions": {"upload": {"href": f"{self.server.url}/lfs/{entry['oid']}"}}}
                for entry in json.loads(body)["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            self.commit(body)
        else:
            self.answer({"error": f"unknown {self.path}"}, 404)

    def commit(self, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.server.files[value["path"]] = self.server.objects[value["oid"]]
        url = f"{self.server.url}/{self.path.split('/commit/')[0].removeprefix('/api/models/')}/commit/{'1' * 40}"
        self.answer({"commitUrl": url, "commitOid": "1" * 40, "success": True})


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def push(hub: Hub, *words: object, token: str = "hf_secret") -> subprocess.CompletedProcess:
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT}/src", "HF_ENDPOINT": hub.url, "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    command = [sys.executable, "-m", "kernelwright.rl", "push", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=environment, check=False
    )


def test_a_policy_is_pushed_with_its_card_and_nothing_else(hub, merged):
    (merged / "checkpoint-3").mkdir(exist_ok=True)
    (merged / "checkpoint-3" / "optimizer.pt").write_bytes(b"secret")
    (merged / "runs.db").write_bytes(b"log")
    done = push(hub, merged, "me/kernels")
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{hub.url}/me/kernels" in done.stdout
    asked = hub.repositories["me/kernels"]
    assert asked.get("private") is True or asked["visibility"] == "private"
    assert set(hub.files) == set(files_to_push(merged))
    assert {"model.safetensors", "README.md", "kernelwright.json", "tokenizer.json"} <= set(
        hub.files
    )
    for name, content in hub.files.items():
        assert content == (merged / name).read_bytes()
    head = hub.files["README.md"].decode()
    assert head.startswith("---\n")
    assert "library_name: transformers" in head


def test_a_hub_that_refuses_the_token_is_told_in_one_line(hub, merged):
    done = push(hub, merged, "me/kernels", token="hf_wrong")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        "rl: the hub refuses me/kernels: log in as its owner (hf auth login, or HF_TOKEN)"
    )
    assert not hub.files


def test_a_folder_without_a_card_or_without_weights_is_refused(tmp_path, tiny):
    with pytest.raises(InputError, match=r"has no kernelwright\.json and README\.md"):
        files_to_push(tiny)
    write_card(tmp_path, read_card(tiny))
    (tmp_path / "README.md").write_text("# empty\n")
    with pytest.raises(InputError, match="has no weights"):
        files_to_push(tmp_path)
