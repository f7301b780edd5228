"""The sampling policy, and how its weights follow the trained policy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernelwright.agent.runtime.errors import require
from kernelwright.errors import InputError
from kernelwright.policies.base import Policy
from kernelwright.policies.local.in_process_policy import InProcessPolicy
from kernelwright.policies.local.process_policy import ProcessPolicy
from kernelwright.policies.local.quantised_weights import has_int8
from kernelwright.policies.local.ray_policy import RayPolicy
from kernelwright.rl.training.online.folder_samplers import SERVER_PREFIX, open_served, open_vllm
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.processes import ALONE, ProcessRank
from kernelwright.rl.training.sharding.gathering import whole_tensor
from kernelwright.rl.training.subject import Subject

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

ENGINES = ("auto", "process", "transformers", "vllm")
MAX_FILE_BYTES = 4 << 30
"""Largest size of weights worth writing to a file at every step."""


class Sampler(Protocol):
    """A policy whose weights can be updated to the trained weights."""

    together: bool
    """Whether waiting requests are sent to the policy in one call."""

    @property
    def policy(self) -> Policy:
        """The policy with the newest weights."""

    def follow(self, model: PreTrainedModel, revision: str | None = None) -> str:
        """Updates the weights and returns their revision, which may be given. No request may be
        open.
        """
        ...

    def drawn(self) -> tuple[int, float]:
        """Returns the number of tokens so far and the seconds they took; zeros if unknown."""
        ...

    def stop_answering(self) -> None:
        """Abandons open requests without an answer, if the engine can."""
        ...

    def close(self) -> None:
        """Frees the memory of the policy; no request may be open."""


TrainablePolicy = InProcessPolicy | ProcessPolicy | RayPolicy
"""A policy with replaceable weights."""


class InProcessSampler:
    """A policy in this process: whole weights, copied over the old ones; an adapter is merged."""

    together = False

    def __init__(self, subject: Subject, options: OnlineOptions) -> None:
        self._policy = self._opened(
            options,
            subject.path,
            {
                "places": options.places,
                "device": options.device,
                "prompt_form": subject.prompt_form,
            },
        )

    def _opened(self, options: OnlineOptions, path: str, how: dict[str, Any]) -> TrainablePolicy:
        return InProcessPolicy(path, **how)

    @property
    def policy(self) -> Policy:
        """The policy of this process, whose weights are updated in place."""
        return self._policy

    def follow(self, model: PreTrainedModel, revision: str | None = None) -> str:
        """Copies the model's weights, with a merged adapter, into the policy; returns their
        revision.
        """
        return self._policy.update(whole_weights(model), revision)

    def drawn(self) -> tuple[int, float]:
        """Returns the number of tokens drawn so far, and the seconds spent."""
        return self._policy.drawn

    def stop_answering(self) -> None:
        """Ends every wait for an answer with KeyboardInterrupt, permanently."""
        self._policy.stop_answering()

    def close(self) -> None:
        """Closes the policy and frees its memory."""
        self._policy.close()


class ProcessSampler(InProcessSampler):
    """A policy in a separate process, on its own GPU if one is assigned; weights travel through a
    file.
    """

    def _opened(self, options: OnlineOptions, path: str, how: dict[str, Any]) -> TrainablePolicy:
        return ProcessPolicy(path, gpu=options.sampling_gpu, **how)


class RaySampler(InProcessSampler):
    """A policy in actors on a Ray cluster; weights travel through its object store."""

    def _opened(self, options: OnlineOptions, path: str, how: dict[str, Any]) -> TrainablePolicy:
        questions = options.prompts * options.group
        return RayPolicy(path, actors=options.rollout_actors, at_once=questions, **how)


def open_samplers(
    subject: Subject, options: OnlineOptions, process: ProcessRank = ALONE
) -> list[Sampler]:
    """Opens a sampler for each concurrent round, in each training process. Raises InputError,
    PolicyError.
    """
    engine = engine_of(subject, options, process.world)
    lora = trains_adapters(subject, options)
    if engine.startswith(SERVER_PREFIX):
        return [open_served(subject, options, lora, process)]
    if engine == "vllm":
        return [open_vllm(subject, options, lora)]
    # Each concurrent round has its own weights.
    return [whole_sampler(subject, options) for _ in range(max(1, options.lag))]


def engine_of(subject: Subject, options: OnlineOptions, world: int = 1) -> str:
    """Returns the requested engine. `auto` becomes vLLM if the training is on a GPU, vLLM is
    installed, and the weights are many; on a CPU transformers samples faster
    (docs/reference/policies.md, "How fast").

    Raises InputError for an unknown engine, or for too many rounds or processes;
    ModuleNotFoundError if the engine is not installed; PolicyError if a server answers
    unexpectedly.
    """
    engine = options.engine
    if options.ray is not None and engine not in ("auto", "transformers"):
        raise InputError(
            f"--engine {engine} and --ray: on a cluster actors sample with transformers; leave it out"
        )
    if options.ray is not None:
        return "transformers"
    if engine not in ENGINES and not (engine.startswith(SERVER_PREFIX) and "@http" in engine):
        raise InputError(
            f"--engine {engine!r}: choose {', '.join(ENGINES)} or openai:MODEL@http://HOST:PORT/v1"
        )
    if engine == "auto":
        return "vllm" if _suits_vllm(subject, options, world) and _installed("vllm") else engine
    if engine in ENGINES and engine != "vllm":
        return engine
    if engine == "vllm":
        require("vllm")
    if options.lag > 1:
        raise InputError(
            f"--lag {options.lag} needs as many engines as rounds, and this training has one: use --lag 1"
        )
    if world > 1 and engine == "vllm":
        raise InputError(
            "--engine vllm works with one training process only: start a server on GPUs of its own "
            "and name it (--engine openai:MODEL@URL), or use --engine process"
        )
    return engine


def _suits_vllm(subject: Subject, options: OnlineOptions, world: int) -> bool:
    """Returns whether vLLM samples faster for this training than transformers, and can follow its
    weights.
    """
    if not options.device.startswith("cuda") or options.lag > 1 or world > 1:
        return False
    is_small = _is_small(subject, options) and not trains_adapters(subject, options)
    return not is_small and not has_int8(Path(subject.path))


def refuse_engine(subject: Subject, options: OnlineOptions, world: int = 1) -> None:
    """Refuses an unusable engine before anything is started. Raises InputError and PolicyError."""
    if engine_of(subject, options, world).startswith(SERVER_PREFIX):
        open_served(subject, options, trains_adapters(subject, options)).close()


def trains_adapters(subject: Subject, options: OnlineOptions) -> bool:
    """Returns whether the training changes an adapter rather than the weights themselves."""
    return options.lora or subject.adapter is not None


def whole_sampler(subject: Subject, options: OnlineOptions) -> InProcessSampler:
    """Opens a sampler of the current whole weights: in actors on a cluster; in a separate process
    if requested or if small weights are trained on a GPU; else in this process.
    """
    if options.ray is not None:
        return RaySampler(subject, options)
    if (
        options.engine == "process"
        or options.sampling_gpu is not None
        or (options.engine == "auto" and _is_small(subject, options))
    ):
        return ProcessSampler(subject, options)
    return InProcessSampler(subject, options)


def _is_small(subject: Subject, options: OnlineOptions) -> bool:
    return options.device.startswith("cuda") and 0 < bytes_of(subject.path) <= MAX_FILE_BYTES


def bytes_of(path: str) -> int:
    """Returns the size of the weights in a folder; 0 without weights, as for a hub name."""
    return sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def whole_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Returns the model's state under its names before peft, with each adapter's product added to
    the adapted weight. Sharded weights are gathered: all processes must call this.
    """
    import torch

    from kernelwright.rl.training.grpo.padding import without_adapter

    base = without_adapter(model)
    weights: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        deltas = _adapter_products(base)
        for name, weight in base.state_dict().items():
            if "lora_" in name:
                continue
            # peft renames the adapted weights.
            name = name.replace(".base_layer", "")
            whole = whole_tensor(weight)
            weights[name] = whole + deltas[name] if name in deltas else whole
    return weights


def _adapter_products(base: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the sum of the active adapters' scaled products B A, by the name of the adapted
    weight.
    """
    products: dict[str, torch.Tensor] = {}
    layers: Iterable[tuple[str, Any]] = base.named_modules()
    for name, module in layers:
        if not hasattr(module, "lora_A") or not hasattr(module, "base_layer"):
            continue
        for adapter in module.active_adapters:
            if adapter not in module.lora_A:
                continue
            first = whole_tensor(module.lora_A[adapter].weight)
            second = whole_tensor(module.lora_B[adapter].weight)
            product = second @ first * module.scaling[adapter]
            earlier_product = products.get(f"{name}.weight")
            products[f"{name}.weight"] = (
                product if earlier_product is None else earlier_product + product
            )
    return products
