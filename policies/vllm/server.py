"""vLLM server with changing weights: adapters loaded at run time; whole weights by vLLM's weight
transfer API, or from a shared folder.
"""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import (
    Completion,
    Policy,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    Request,
    Trouble,
)
from kernelwright.policies.forwarding import Forwarding
from kernelwright.policies.http.errors import error_of_status
from kernelwright.policies.http.server import ModelServer
from kernelwright.policies.model_identity import weights_revision
from kernelwright.policies.vllm.weight_sender import WeightSender
from kernelwright.policies.vllm.worker import EXTENSION_CLASS, LOAD_METHOD, load_arguments

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

LOAD_SECONDS = 600.0
"""Seconds the server may take to load weights."""
MAX_LOADED_ADAPTERS = 2
"""Maximum number of adapters loaded at a time."""
ADAPTER_SETTINGS = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora --max-lora-rank 64"
WEIGHT_SETTINGS = f"VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls {EXTENSION_CLASS}"


class VLLMServerPolicy(Forwarding):
    """The policy that samples from the server, and moves weights to it."""

    def __init__(self, policy: Policy, url: str, key: str | None, start_folder: Path) -> None:
        """`url` ends in /v1.

        `start_folder`: the folder that the server was started with, whose weights it gets back at
        the end.
        """
        super().__init__(policy)
        self._url, self._key, self._start_folder = url.rstrip("/"), key, start_folder
        self._adapters: deque[str] = deque()
        self._sender: WeightSender | None = None
        self._needs_folder = False
        self._is_moved = False

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers by the server, with the weights it was moved to last. Raises PolicyError."""
        return self.policy.sample(requests)

    def take_adapter(self, folder: Path) -> str:
        """Loads an adapter and returns the name for requests. New weights get a new name, so that
        no cached prefix is reused.
        """
        name = f"kernelwright-{weights_revision(folder)}"
        if name in self._adapters:
            return name
        self._unload(name, missing=True)
        self._tell(
            "/v1/load_lora_adapter",
            {"lora_name": name, "lora_path": str(folder.resolve())},
            ADAPTER_SETTINGS,
        )
        self._adapters.append(name)
        while len(self._adapters) > MAX_LOADED_ADAPTERS:
            self._unload(self._adapters.popleft())
        return name

    def take_weights(self, folder: Path) -> None:
        """Replaces the server's weights; no request may be running. Raises PolicyRefused for
        other weights or a stale cache.
        """
        folder, self._is_moved = folder.resolve(), True
        reply = self._tell(
            "/collective_rpc",
            {"method": LOAD_METHOD, "kwargs": load_arguments(folder)},
            WEIGHT_SETTINGS,
        )
        if set(reply.get("results", [None])) != {weights_revision(folder)}:
            raise PolicyRefused(
                f"{self._url} read other weights than lie in {folder}: share that folder",
                Trouble.MODEL,
            )
        self._forget_prefixes()

    def send_weights(self, weights: Mapping[str, torch.Tensor], version: str, device: str) -> bool:
        """Replaces the server's weights through vLLM's weight transfer API; no request may be
        running. Returns False for a server that cannot: a folder is then the way.

        weights: by their names in a checkpoint. device: of the training. Raises PolicyRefused for a
        stale cache, PolicyUnavailable.
        """
        if self._sender is None and not self._needs_folder:
            self._open_transfer(device)
        if self._sender is None:
            return False
        self._is_moved = True
        self._sender.send(weights, version)
        self._forget_prefixes()
        return True

    def _open_transfer(self, device: str) -> None:
        """Connects this process with the server's workers, unless the server refuses."""

        def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            """Posts to the server itself."""
            return self._tell(path, body, WEIGHT_SETTINGS)

        try:
            workers = int(self._tell("/get_world_size", None, WEIGHT_SETTINGS)["world_size"])
            self._sender = WeightSender(post, self._url, workers, device)
        except PolicyRefused as refusal:
            log.warning("weights reach the server through a folder: %s", refusal)
            self._needs_folder = True

    def _forget_prefixes(self) -> None:
        """Empties the cache of prefixes, which belongs to the former weights."""
        if not self._tell("/reset_prefix_cache", {}, WEIGHT_SETTINGS).get("success"):
            raise PolicyRefused(
                f"{self._url} answers other clients too: stop them while the training moves its weights",
                Trouble.MODEL,
            )

    def close(self) -> None:
        """Restores the server's initial adapters and weights if the server still answers."""
        try:
            while self._adapters:
                self._unload(self._adapters.popleft())
            if self._sender is not None:
                self._sender.close()
            if self._is_moved and self._start_folder.is_dir():
                self.take_weights(self._start_folder)
        except PolicyUnavailable:
            pass
        finally:
            super().close()

    def _unload(self, name: str, missing: bool = False) -> None:
        try:
            self._tell("/v1/unload_lora_adapter", {"lora_name": name}, ADAPTER_SETTINGS)
        except PolicyRefused:
            if not missing:
                raise

    def _tell(self, path: str, body: dict[str, Any] | None, needs: str) -> dict[str, Any]:
        """Posts to the server itself, or gets a page if `body` is None. `needs`: how it must have
        been started.
        """
        address = self._url.removesuffix("/v1") + path
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._key or 'none'}",
        }
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, content, headers)
        try:
            with urllib.request.urlopen(request, timeout=LOAD_SECONDS) as answer:
                payload = answer.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error, needs) from error
        except OSError as error:
            raise PolicyUnavailable(
                f"cannot reach {self._url}: is the server up?", Trouble.CONNECTION
            ) from error
        try:
            reply = json.loads(payload)
        except ValueError:
            return {}
        return reply if isinstance(reply, dict) else {}

    def _refusal(self, error: urllib.error.HTTPError, needs: str) -> PolicyError:
        if error.code in (401, 403):
            server = ModelServer(model="", url=self._url, key=self._key)
            return error_of_status(error.code, {}, None, server)
        try:
            content = json.loads(error.read())
            words = content.get("error", content)
            words = (
                (words.get("message") or words.get("detail")) if isinstance(words, dict) else words
            )
        except (ValueError, AttributeError, OSError):
            words = ""
        detail = f" ({' '.join(str(words).split())[:200]})" if words else ""
        return PolicyRefused(
            f"{self._url} takes no new weights: {error.code}{detail}; "
            f"start it with {needs} (docs/reference/policies.md)",
            Trouble.MODEL,
        )
