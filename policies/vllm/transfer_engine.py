"""Receives a training's weights in the workers of a vLLM server, through vLLM's weight transfer API.

vLLM brings engines for that API that need CUDA on both sides and vLLM in the trainer. This engine
takes tensors from a group of torch's, over NCCL or gloo, so a server on CPUs is served as well and
the trainer needs torch alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.policies.vllm.packing import pack_again
from kernelwright.policies.vllm.transfer_group import (
    TransferAddress,
    TransferGroup,
    joined_store,
)

BACKEND = "kernelwright"
"""Name of the engine in vLLM's registry."""


def open_engine(worker: Any) -> None:
    """Gives a vLLM worker the engine, in place of one that `--weight-transfer-config` named."""
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, _engine_class())
    if worker.weight_transfer_engine is not None:
        worker.weight_transfer_engine.shutdown()
    worker.weight_transfer_engine = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend=BACKEND),
        worker.vllm_config,
        worker.device,
        worker.get_model(),
    )


def _engine_class() -> type[Any]:
    """Returns the engine's class, whose bases are vLLM's."""
    import torch
    from vllm.distributed.weight_transfer.base import (
        WeightTransferEngine,
        WeightTransferInitInfo,
        WeightTransferUpdateInfo,
    )
    from vllm.model_executor.model_loader.reload import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    @dataclass
    class GroupInitInfo(WeightTransferInitInfo):
        """The address of a transfer, as `TransferAddress` has it."""

        host: str
        port: int
        members: int
        backend: str

    @dataclass
    class GroupUpdateInfo(WeightTransferUpdateInfo):
        """The tensors to come, in order."""

        names: list[str]
        dtype_names: list[str]
        shapes: list[list[int]]

    class GroupTransferEngine(WeightTransferEngine[GroupInitInfo, GroupUpdateInfo]):
        """Loads weights, named as in a checkpoint, layer by layer."""

        init_info_cls = GroupInitInfo
        update_info_cls = GroupUpdateInfo
        group: TransferGroup | None = None

        def init_transfer_engine(self, init_info: GroupInitInfo) -> None:
            """Joins the trainer's group; worker 0 of all data-parallel engines is rank 1."""
            address = TransferAddress(
                init_info.host, init_info.port, init_info.members, init_info.backend
            )
            parallel = self.parallel_config
            rank = 1 + parallel.data_parallel_index * parallel.world_size + parallel.rank
            device = str(self.device) if address.backend == "nccl" else "cpu"
            self.group = TransferGroup(address, rank, joined_store(address), device)

        def start_weight_update(self) -> None:
            """Prepares the model's layers for weights in the form of a checkpoint."""
            initialize_layerwise_reload(self.model)

        def update_weights(self, update_info: dict[str, Any]) -> None:
            """Receives all tensors. vLLM's own method waits for an accelerator, which a CPU lacks."""
            self.receive_weights(self.parse_update_info(update_info))
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()

        def receive_weights(self, update_info: GroupUpdateInfo) -> None:
            """Receives the tensors one after the other and loads them into the model."""
            if self.group is None:
                raise RuntimeError("init_weight_transfer_engine comes before update_weights")
            described = zip(
                update_info.names, update_info.dtype_names, update_info.shapes, strict=True
            )
            for name, dtype_name, shape in described:
                dtype = getattr(torch, dtype_name)
                weight = torch.empty(shape, dtype=dtype, device=self.group.device)
                self.group.broadcast(weight).wait()
                self.model.load_weights([(name, weight)])

        def finish_weight_update(self) -> None:
            """Completes the layers, and repacks weights for vLLM's products on a CPU."""
            finalize_layerwise_reload(self.model, self.model_config)
            pack_again(self.model)

        def shutdown(self) -> None:
            """Leaves the group."""
            self.group = None

    return GroupTransferEngine
