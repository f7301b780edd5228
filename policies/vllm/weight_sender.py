"""Sends a training's weights to a vLLM server through its weight transfer API.

trainer                          server
/collective_rpc            ->    its workers get the engine of `transfer_engine.py`
/init_weight_transfer_engine ->  its workers join the trainer's group
/start_weight_update       ->    layers are prepared             (each time from here on)
/update_weights            ->    tensors are received, while the trainer broadcasts them
/finish_weight_update      ->    layers are complete; the weights have a version
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kernelwright.policies.vllm.transfer_group import (
    TransferAddress,
    TransferGroup,
    address_towards,
    listening_store,
)
from kernelwright.policies.vllm.worker import OPEN_METHOD

if TYPE_CHECKING:
    import torch

Post = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Posts a JSON body to a path of the server and returns its answer. Raises PolicyError."""
WEIGHT_POLL_SECONDS = 0.001


class WeightSender:
    """The trainer's end of a weight transfer."""

    def __init__(self, post: Post, url: str, workers: int, device: str) -> None:
        """Gives the server's workers the engine and joins a group with them.

        workers: of the server, those of all its data-parallel engines. device: of the training;
        between GPUs tensors travel by NCCL, otherwise by gloo. Raises PolicyError.
        """
        self._post = post
        self._pool = ThreadPoolExecutor(max_workers=1)
        on_gpu = device.startswith("cuda")
        members = workers + 1
        self._store = listening_store(members)
        host = address_towards(urlsplit(url).hostname or "127.0.0.1")
        backend = "nccl" if on_gpu else "gloo"
        address = TransferAddress(host, self._store.port, members, backend)
        post("/collective_rpc", {"method": OPEN_METHOD})
        own_device = device if on_gpu else "cpu"
        # Each side waits for the other to join, so the trainer joins beside the request. A server
        # that refuses the request ends it at once; the thread is then of no use.
        group = _in_background(lambda: TransferGroup(address, 0, self._store, own_device))
        post("/init_weight_transfer_engine", {"init_info": address._asdict()})
        self._group = group.result()

    def send(self, weights: Mapping[str, torch.Tensor], version: str) -> None:
        """Replaces the server's weights; no request may be running. Raises PolicyError.

        weights: by their names in a checkpoint, in host memory or on the training's device.
        """
        update_info = {
            "names": list(weights),
            "dtype_names": [
                str(weight.dtype).removeprefix("torch.") for weight in weights.values()
            ],
            "shapes": [list(weight.shape) for weight in weights.values()],
        }
        self._post("/start_weight_update", {})
        received = self._pool.submit(self._post, "/update_weights", {"update_info": update_info})
        for weight in weights.values():
            tensor = weight.detach().to(self._group.device).contiguous()
            _wait(self._group.broadcast(tensor), received)
        received.result()
        self._post("/finish_weight_update", {"weight_version": version})

    def close(self) -> None:
        """Leaves the group, on both sides."""
        self._post("/shutdown_weight_transfer_engine", {})
        self._pool.shutdown(wait=False)


def _in_background(create: Callable[[], TransferGroup]) -> Future[TransferGroup]:
    """Returns the future result of `create`, called in a thread that no exit waits for."""
    future: Future[TransferGroup] = Future()

    def run() -> None:
        """Creates the result, or keeps the error for whoever asks for it."""
        try:
            future.set_result(create())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _wait(work: Any, received: Future[dict[str, Any]]) -> None:
    """Waits until a tensor has been sent. Raises the server's error, if it has stopped receiving."""
    while not work.is_completed():
        if received.done():
            received.result()
        time.sleep(WEIGHT_POLL_SECONDS)
    work.wait()
