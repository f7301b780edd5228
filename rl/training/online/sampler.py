"""The policy that samples, and how it follows the one that is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kernelwright.agent.runtime.errors import require
from kernelwright.errors import InputError
from kernelwright.policies.base import Policy
from kernelwright.policies.local.in_process_policy import InProcessPolicy
from kernelwright.policies.local.process_policy import ProcessPolicy
from kernelwright.policies.local.quantised_weights import has_int8
from kernelwright.policies.local.ray_policy import RayPolicy
from kernelwright.rl.training.online.folder_samplers import SERVER_PREFIX, open_served, open_vllm
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.subject import Subject

ENGINES = ("auto", "process", "transformers", "vllm")
MAX_FILE_BYTES = 4 << 30
"""Bytes of weights that are worth writing to a file at every step."""


class Sampler(Protocol):
    """A policy that can be moved to where the training is."""

    together: bool
    """Whether the questions that wait are to be put to it in one call."""

    @property
    def policy(self) -> Policy:
        """The policy that answers with the weights that were followed last."""

    def follow(self, model: Any, revision: str | None = None) -> str:
        """Gives the revision, which may be known already. Nobody may be asking."""
        ...

    def drawn(self) -> tuple[int, float]:
        """Tokens so far, and the seconds they took; zeros where that is not known."""
        ...

    def stop_answering(self) -> None:
        """Whoever waits for an answer leaves without one, where that can be had."""
        ...

    def close(self) -> None:
        """Frees the memory of the policy; no request may be open."""


TrainablePolicy = InProcessPolicy | ProcessPolicy | RayPolicy
"""A policy whose weights can be replaced."""


class InProcessSampler:
    """A live policy in this process: whole weights, copied over the old ones; an adapter is folded in."""

    together = False

    def __init__(self, subject: Subject, options: OnlineOptions) -> None:
        self._policy = self._opened(
            options, subject.path,
            {"places": options.places, "device": options.device, "prompt_form": subject.prompt_form},
        )  # fmt: skip

    def _opened(self, options: OnlineOptions, path: str, how: dict[str, Any]) -> TrainablePolicy:
        return InProcessPolicy(path, **how)

    @property
    def policy(self) -> Policy:
        """The policy of this process, whose weights are moved in place."""
        return self._policy

    def follow(self, model: Any, revision: str | None = None) -> str:
        """Copies the model's weights, an adapter folded in, into the policy; gives their revision."""
        return self._policy.update(whole_weights(model), revision)

    def drawn(self) -> tuple[int, float]:
        """Tokens that the policy drew so far, and the seconds in which it did."""
        return self._policy.drawn

    def stop_answering(self) -> None:
        """Ends every wait for an answer with KeyboardInterrupt, for good."""
        self._policy.stop_answering()

    def close(self) -> None:
        """Frees the model."""
        self._policy.close()


class ProcessSampler(InProcessSampler):
    """The same in a process of its own, on a GPU of its own where there is one for it; the weights travel through a
    file.
    """

    def _opened(self, options: OnlineOptions, path: str, how: dict[str, Any]) -> TrainablePolicy:
        return ProcessPolicy(path, gpu=options.sampling_gpu, **how)


class RaySampler(InProcessSampler):
    """The same in actors on a Ray cluster; the weights travel through its object store."""

    def _opened(self, options: OnlineOptions, path: str, how: dict[str, Any]) -> TrainablePolicy:
        questions = options.prompts * options.group
        return RayPolicy(path, actors=options.rollout_actors, at_once=questions, **how)


def open_samplers(subject: Subject, options: OnlineOptions, world: int = 1) -> list[Sampler]:
    """One for each round that is under way at once.

    `world`: processes of this training. Raises InputError, PolicyError.
    """
    engine, lora = engine_of(subject, options, world), trains_adapters(subject, options)
    if engine.startswith(SERVER_PREFIX):
        return [open_served(subject, options, lora)]
    if engine == "vllm":
        return [open_vllm(subject, options, lora)]
    return [whole_sampler(subject, options) for _ in range(max(1, options.lag))]


def engine_of(subject: Subject, options: OnlineOptions, world: int = 1) -> str:
    """What is asked for; `auto` is vLLM where the training is on a GPU and vLLM is installed, but for few whole
    weights. On a CPU transformers samples faster (docs/reference/policies.md, "How fast").

    Raises InputError for an engine that is not known, or not for so many rounds or processes; ModuleNotFoundError
    for one that is not installed; PolicyError where a server does not answer as it must.
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
    if world > 1:
        raise InputError(
            f"--engine {engine} works with one training process only: launch one, or use --engine process"
        )
    return engine


def _suits_vllm(subject: Subject, options: OnlineOptions, world: int) -> bool:
    """Says whether vLLM samples faster for this training than transformers, and can follow its weights."""
    if not options.device.startswith("cuda") or options.lag > 1 or world > 1:
        return False
    is_small = _is_small(subject, options) and not trains_adapters(subject, options)
    return not is_small and not has_int8(Path(subject.path))


def refuse_engine(subject: Subject, options: OnlineOptions, world: int = 1) -> None:
    """Refuses an engine that cannot be used, before anything is started. Raises InputError and PolicyError."""
    if engine_of(subject, options, world).startswith(SERVER_PREFIX):
        open_served(subject, options, trains_adapters(subject, options)).close()


def trains_adapters(subject: Subject, options: OnlineOptions) -> bool:
    """Says whether the training changes an adapter rather than the weights themselves."""
    return options.lora or subject.adapter is not None


def whole_sampler(subject: Subject, options: OnlineOptions) -> InProcessSampler:
    """Opens a sampler of whole weights, as they are now: in actors where there is a cluster; in a process of its own
    where that is asked for, or where a GPU waits for the loop and the weights are few.
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
    """Returns the bytes of the weights that lie there; 0 where none do, as for a name of the hub."""
    return sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def whole_weights(model: Any) -> dict[str, Any]:
    """The state of the model under its names before peft; each adapter's product is added to the weight that it
    adapts.
    """
    import torch

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    added: dict[str, Any] = {}
    with torch.no_grad():
        for name, module in base.named_modules():
            if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
                active = [a for a in module.active_adapters if a in module.lora_A]
                added[f"{name}.weight"] = sum(
                    module.get_delta_weight(adapter) for adapter in active
                )
        weights = {
            name.replace(".base_layer", ""): value
            for name, value in base.state_dict().items()
            if "lora_" not in name
        }
        return {
            name: value + added[name] if name in added else value for name, value in weights.items()
        }
