"""The policy that samples, and how it follows the one that is trained."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from agent.exits import InputError
from policies.apart import ApartPolicy
from policies.base import Capabilities, Completion, Policy, PromptForm, Request
from policies.live import LivePolicy
from rl.online.options import OnlineOptions
from rl.training.subject import Subject

ENGINES = ("auto", "process", "transformers", "vllm")
BY_FILE = 4 << 30
"""Bytes of weights that are worth writing to a file at every step."""
KEPT = 3
"""Adapters of past rounds that are kept for a server that still reads one."""


class Sampler(Protocol):
    """A policy that can be moved to where the training is."""

    @property
    def policy(self) -> Policy: ...

    def follow(self, model: Any, revision: str | None = None) -> str:
        """Gives the revision, which may be known already. Nobody may be asking."""
        ...

    def drawn(self) -> tuple[int, float]:
        """Tokens so far, and the seconds they took; zeros where that is not known."""
        ...

    def close(self) -> None: ...


class InPlace:
    """A live policy in this process: whole weights, copied over the old ones; an adapter is folded in."""

    opens: type[LivePolicy] | type[ApartPolicy] = LivePolicy

    def __init__(self, subject: Subject, options: OnlineOptions) -> None:
        self._policy = self.opens(
            subject.path, places=options.places, device=options.device, prompt_form=subject.prompt_form
        )

    @property
    def policy(self) -> Policy:
        return self._policy

    def follow(self, model: Any, revision: str | None = None) -> str:
        return self._policy.update(whole_weights(model), revision)

    def drawn(self) -> tuple[int, float]:
        return self._policy.drawn

    def close(self) -> None:
        self._policy.close()


class Apart(InPlace):
    """The same in a process of its own; the weights travel through a file."""

    opens = ApartPolicy


class ByAdapter:
    """Any policy that takes LoRA adapters by request (vllm, transformers): each round's adapter is a folder of its own."""

    def __init__(self, policy: Policy, folder: Path) -> None:
        self._under, self._folder = policy, folder
        self._current: Path | None = None
        self._number = 0

    @property
    def policy(self) -> Policy:
        return _Adapted(self)

    def follow(self, model: Any, revision: str | None = None) -> str:
        from policies.identity import weights_revision

        self._number += 1
        folder = self._folder / f"adapter-{self._number}"
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        self._current = folder
        shutil.rmtree(self._folder / f"adapter-{self._number - KEPT}", ignore_errors=True)
        return weights_revision(folder) or ""

    def drawn(self) -> tuple[int, float]:
        return 0, 0.0

    def close(self) -> None:
        self._under.close()

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        adapter = None if self._current is None else str(self._current)
        return self._under.sample([request.with_(adapter=adapter) for request in requests])

    @property
    def under(self) -> Policy:
        return self._under


class _Adapted:
    """The policy as runs see it: every request is for the adapter of the round."""

    def __init__(self, sampler: ByAdapter) -> None:
        self._sampler = sampler

    @property
    def name(self) -> str:
        return self._sampler.under.name

    @property
    def capabilities(self) -> Capabilities:
        return self._sampler.under.capabilities

    @property
    def prompt_form(self) -> PromptForm:
        return self._sampler.under.prompt_form

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        return self._sampler.sample(requests)

    def close(self) -> None:
        """The policy under it belongs to who opened it."""


def open_samplers(subject: Subject, options: OnlineOptions) -> list[Sampler]:
    """One for each round that is under way at once. Raises InputError."""
    first = open_sampler(subject, options)
    if options.lag > 1 and isinstance(first, ByAdapter):
        first.close()
        raise InputError(f"--lag {options.lag} needs as many engines, and vLLM has the GPU's memory once: use --lag 1")
    return [first, *(whole_sampler(subject, options) for _ in range(options.lag - 1))]


def open_sampler(subject: Subject, options: OnlineOptions) -> Sampler:
    """vLLM where it is named, or where a LoRA adapter is trained on a GPU and it is installed; else transformers, for small models on a GPU in a process of its own.

    Raises InputError.
    """
    lora, wanted = refuse_engine(subject, options), options.engine
    if wanted == "auto" and lora and options.device.startswith("cuda") and _installed("vllm"):
        wanted = "vllm"
    if wanted == "vllm":
        from policies.vllm import VLLMPolicy

        return ByAdapter(VLLMPolicy(subject.path, engine={"gpu_memory_utilization": 0.4}), options.work / "adapters")
    return whole_sampler(subject, options)


def refuse_engine(subject: Subject, options: OnlineOptions) -> bool:
    """Whether adapters are trained. Raises InputError for an engine that is not known, or that does not follow what is trained."""
    lora = options.lora or subject.adapter is not None
    if options.engine not in ENGINES:
        raise InputError(f"--engine {options.engine!r}: choose {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")
    if options.engine == "vllm" and not lora:
        raise InputError(
            "vLLM follows a training by its LoRA adapters: add --lora, or use --engine transformers for whole weights"
        )
    return lora


def whole_sampler(subject: Subject, options: OnlineOptions) -> InPlace:
    """Of whole weights, as they are now: in a process of its own where that is asked for, or where a GPU waits for the loop and the weights are few."""
    small = options.device.startswith("cuda") and 0 < bytes_of(subject.path) <= BY_FILE
    if options.engine == "process" or (options.engine == "auto" and small):
        return Apart(subject, options)
    return InPlace(subject, options)


def bytes_of(path: str) -> int:
    """Of the weights that lie there; 0 where none do, as for a name of the hub."""
    return sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def whole_weights(model: Any) -> dict[str, Any]:
    """The state of the model under its names before peft; each adapter's product is added to the weight that it adapts."""
    import torch

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    added: dict[str, Any] = {}
    with torch.no_grad():
        for name, module in base.named_modules():
            if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
                active = [a for a in module.active_adapters if a in module.lora_A]
                added[f"{name}.weight"] = sum(module.get_delta_weight(adapter) for adapter in active)
        weights = {
            name.replace(".base_layer", ""): value for name, value in base.state_dict().items() if "lora_" not in name
        }
        return {name: value + added[name] if name in added else value for name, value in weights.items()}
