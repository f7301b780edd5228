"""The trainer's end of a weight transfer against a worker's end over gloo, without vLLM.

With vLLM itself: tests/rl/training/online/test_weight_transfer.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

from kernelwright.policies.base import PolicyRefused, Trouble  # noqa: E402
from kernelwright.policies.vllm.transfer_group import (  # noqa: E402
    TransferAddress,
    TransferGroup,
    joined_store,
)
from kernelwright.policies.vllm.weight_sender import WeightSender  # noqa: E402

WEIGHTS = {
    "embed.weight": torch.arange(12, dtype=torch.float32).reshape(4, 3),
    "layer.weight": torch.ones(5, 7, dtype=torch.bfloat16),
    "transposed": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
}


class Workers:
    """Two workers of a server that join and receive as those of vLLM do."""

    def __init__(self) -> None:
        self.groups: list[TransferGroup] = []
        self.received: list[dict[str, torch.Tensor]] = []
        self.paths: list[str] = []
        self.version = ""
        self.refuses = ""

    def post(self, path: str, body: dict) -> dict:
        self.paths.append(path)
        if path == self.refuses:
            raise PolicyRefused("no", Trouble.MODEL)
        if path == "/init_weight_transfer_engine":
            self.groups = self._each([1, 2], lambda rank: self._join(body["init_info"], rank))
        elif path == "/update_weights":
            self.received = self._each(
                self.groups, lambda group: self._receive(group, **body["update_info"])
            )
        elif path == "/finish_weight_update":
            self.version = body["weight_version"]
        return {}

    @staticmethod
    def _each(items, work):
        with ThreadPoolExecutor(len(items)) as pool:
            return list(pool.map(work, items))

    @staticmethod
    def _join(init_info: dict, rank: int) -> TransferGroup:
        address = TransferAddress(**init_info)
        return TransferGroup(address, rank, joined_store(address), "cpu")

    @staticmethod
    def _receive(group: TransferGroup, names, dtype_names, shapes) -> dict[str, torch.Tensor]:
        received = {}
        for name, dtype_name, shape in zip(names, dtype_names, shapes, strict=True):
            received[name] = torch.empty(shape, dtype=getattr(torch, dtype_name))
            group.broadcast(received[name]).wait()
        return received


def test_every_worker_receives_each_weight_with_its_version():
    workers = Workers()
    sender = WeightSender(workers.post, "http://127.0.0.1:9/v1", 2, "cpu")
    for version, factor in (("first", 1.0), ("second", 3.0)):
        weights = {name: weight * factor for name, weight in WEIGHTS.items()}
        sender.send(weights, version)
        assert workers.version == version
        assert len(workers.received) == 2
        for received in workers.received:
            assert list(received) == list(weights)
            for name, weight in weights.items():
                assert received[name].dtype == weight.dtype
                assert torch.equal(received[name], weight)
    sender.close()
    round_trip = ["/start_weight_update", "/update_weights", "/finish_weight_update"]
    opening = ["/collective_rpc", "/init_weight_transfer_engine"]
    assert workers.paths == [*opening, *round_trip, *round_trip, "/shutdown_weight_transfer_engine"]


def test_a_server_that_stops_receiving_is_told_and_nobody_waits():
    workers = Workers()
    sender = WeightSender(workers.post, "http://127.0.0.1:9/v1", 2, "cpu")
    workers.refuses = "/update_weights"
    with pytest.raises(PolicyRefused):
        sender.send({"weight": torch.zeros(1 << 22)}, "version")
