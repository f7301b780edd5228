"""Loads a model whose weights are sharded over the processes of a training by FSDP2.

No process ever holds the whole model. The model is built without memory (on torch's meta device),
`fully_shard` decides the shard of each process, and each process reads its own slices from the
safetensors files (`torch.distributed.checkpoint.HuggingFaceStorageReader`).

Sharded fp32 weights are their own masters: FSDP2 gathers them in bf16 for the computation and adds
gradients up in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from transformers import PreTrainedModel

WEIGHT_FILES = ("*.safetensors", "*.json")


def load_sharded(
    path: str,
    device: str,
    dtype: torch.dtype | None,
    add_adapter: Callable[[Any], Any] | None = None,
) -> PreTrainedModel:
    """Returns the causal language model of a folder or hub name, sharded over all processes.

    dtype: of the weights; None for the dtype of the config. add_adapter: puts a LoRA adapter on
    the model before it is sharded; the values of its weights are assigned later. Raises InputError
    for weights unreadable in slices.
    """
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    from kernelwright.policies.local.quantised_weights import has_int8, read_int8

    if has_int8(Path(path)):
        # Models stored in 8 bits are small: each process reads all and keeps its shard.
        whole = read_int8(Path(path))
        return shard(add_adapter(whole) if add_adapter else whole, device)
    config = AutoConfig.from_pretrained(path)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype or config.dtype)
    model.tie_weights()
    model = shard(add_adapter(model) if add_adapter else model, device)
    # `to_empty` would empty the buffers as well, and those of rotary embeddings are in no file.
    model._apply(
        lambda tensor: (
            torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device)
        )
    )
    _read_slices(model, _weights_folder(path))
    return model


def shard(model: PreTrainedModel, device: str) -> PreTrainedModel:
    """Shards a model's parameters over all processes, in place: a group of parameters for each
    decoder layer, and a last group for the rest.
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    kind = torch.device(device).type
    mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if kind == "cuda"
        else MixedPrecisionPolicy()
    )
    # The root, too, is cut again after a forward pass: a pass without backward (of the drift, of
    # an evaluation) would leave whole weights behind, which an optimizer must never take.
    options: dict[str, Any] = {
        "reshard_after_forward": True,
        "mesh": mesh,
        "mp_policy": policy,
        "shard_placement_fn": _placement(mesh),
    }
    for layer in _decoder_layers(model):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def _decoder_layers(model: PreTrainedModel) -> list[torch.nn.Module]:
    from kernelwright.rl.training.grpo.padding import without_adapter

    names = set(without_adapter(model)._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _placement(mesh: DeviceMesh) -> Callable[[torch.nn.Parameter], Any]:
    """Returns the rule for the dimension in which a parameter is cut: the first evenly divisible
    dimension.

    A dimension of 4 over 8 processes would leave some without a part, and accelerate takes
    parameters of its optimizer by the address of their part.
    """
    from torch.distributed.tensor import Shard

    world = mesh.size()

    def placement(parameter: torch.nn.Parameter) -> Shard | None:
        """Returns the cut of a parameter; None for FSDP2's own, along the first dimension."""
        even = [axis for axis, size in enumerate(parameter.shape) if size % world == 0]
        return Shard(even[0]) if even else None

    return placement


def _weights_folder(path: str) -> str:
    """Returns the folder with a model's weights; a hub name is downloaded by the first process."""
    if Path(path).is_dir():
        return path
    from accelerate import PartialState
    from huggingface_hub import snapshot_download

    with PartialState().local_main_process_first():
        return str(snapshot_download(path, allow_patterns=list(WEIGHT_FILES)))


def _read_slices(model: PreTrainedModel, folder: str) -> None:
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    from kernelwright.rl.training.grpo.padding import without_adapter

    base = without_adapter(model)
    tied = set(base._tied_weights_keys or ()) if base.config.tie_word_embeddings else set()
    weights = {
        name.replace(".base_layer", ""): weight
        for name, weight in base.state_dict().items()
        if name not in tied and "lora_" not in name
    }
    try:
        checkpoint.load(weights, storage_reader=HuggingFaceStorageReader(folder))
    except Exception as error:
        # torch wraps the error of any process; the last line of its text names the weight.
        first = str(error).strip().splitlines()[-1][:200]
        raise InputError(
            f"{folder} cannot be loaded in shards ({first}): save the model as safetensors with "
            "save_pretrained"
        ) from error


def assign_whole(model: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Copies whole tensors, equal in all processes, into the parameters of these names; a sharded
    parameter takes its own part.
    """
    import torch

    named = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            parameter = named[name]
            parameter.copy_(_like(value, parameter))


def _like(value: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    from torch.distributed.tensor import DTensor, distribute_tensor

    value = value.to(parameter.device, parameter.dtype)
    if not isinstance(parameter, DTensor):
        return value
    # Every process has the whole value, so nothing is sent.
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
