"""Samplers that are given each round's weights as a folder: vLLM in this process, a vLLM server, and whatever takes
LoRA adapters by request.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Completion, Policy, PromptForm, Request
from kernelwright.policies.forwarding import Forwarding
from kernelwright.policies.model_identity import weights_revision
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.subject import Subject

KEPT_ADAPTERS = 3
"""Adapters of past rounds that are kept for an engine that still reads one."""
ENGINE_MEMORY_SHARE = 0.4
"""The share of the GPU's memory for an engine beside the training."""
SERVER_PREFIX = "openai:"
"""An engine that is a server is named as that policy is."""


class FolderSampler:
    """A policy that answers with the weights of the last folder that it was given, and names their revision in its
    answers.
    """

    def __init__(
        self, policy: Policy, folder: Path, subject: Subject, *, lora: bool, take: Callable[[Path], str | None],
        together: bool,
    ) -> None:  # fmt: skip
        """`take`: hands the folder over; gives what requests are to name as their adapter.

        `together`: whether questions that wait are asked in one call.
        """
        self._under, self._folder, self._subject = policy, folder, subject
        self._lora, self._take, self.together = lora, take, together
        self._number = 0
        self._policy = _FolderPolicy(policy, subject)

    @property
    def policy(self) -> Policy:
        """Returns the policy to sample from: its answers name the weights of the folder that was given last."""
        return self._policy

    def follow(self, model: Any, revision: str | None = None) -> str:
        """An adapter's revision is `BASE+ADAPTER`, as a log and a lineage have it."""
        self._number += 1
        folder = self._folder / f"round-{self._number}"
        shutil.rmtree(folder, ignore_errors=True)
        (save_adapter if self._lora else save_whole)(model, folder)
        read = weights_revision(folder) or ""
        base = weights_revision(Path(self._subject.path)) if self._lora else revision or read
        adapter = self._take(folder)
        self._policy.answer_as(adapter, base, read if self._lora else None)
        shutil.rmtree(
            self._folder / f"round-{self._number - KEPT_ADAPTERS}" if self._lora else folder,
            ignore_errors=True,
        )
        return "+".join(part for part in (base, read if self._lora else None) if part)

    def drawn(self) -> tuple[int, float]:
        """Tokens that the policy drew so far, and the seconds in which it did."""
        return self._policy.drawn

    def stop_answering(self) -> None:
        """Does nothing: a server finishes the requests that it has."""

    def close(self) -> None:
        """Closes the policy underneath; the folders with weights stay."""
        self._under.close()


class _FolderPolicy(Forwarding):
    """The policy as runs see it: every request is for the weights of the round. It belongs to who opened it."""

    def __init__(self, policy: Policy, subject: Subject) -> None:
        super().__init__(policy)
        self._subject = subject
        self._adapter: str | None = None
        self._as: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._asking, self._tokens, self._seconds, self._since = 0, 0, 0.0, 0.0

    @property
    def prompt_form(self) -> PromptForm:
        """The form of prompts that the policy was trained on."""
        return self._subject.prompt_form

    @property
    def drawn(self) -> tuple[int, float]:
        """Returns the number of tokens drawn so far, and the seconds in which at least one request was open."""
        return self._tokens, self._seconds

    def answer_as(
        self, adapter: str | None, revision: str | None, adapter_revision: str | None
    ) -> None:
        """From now on the policy answers with this adapter, and its completions carry these revisions."""
        identity = self._subject.identity
        self._adapter = adapter
        self._as = {
            "revision": revision,
            "adapter_revision": adapter_revision,
            **identity.model_dump(),
        }

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers in the order of the requests, with the revision of the weights that sampled."""
        self._count(1)
        found: list[Completion] = []
        try:
            found = self.policy.sample(
                [request.with_(adapter=self._adapter) for request in requests]
            )
        finally:
            self._count(-1, sum(len(completion.token_ids or ()) for completion in found))
        return [completion.with_(**self._as) for completion in found]

    def _count(self, step: int, tokens: int = 0) -> None:
        with self._lock:
            now = time.monotonic()
            self._seconds += now - self._since if self._asking else 0.0
            self._since, self._asking, self._tokens = (
                now,
                self._asking + step,
                self._tokens + tokens,
            )

    def close(self) -> None:
        """Closed by its sampler."""


def save_adapter(model: Any, folder: Path) -> None:
    """Writes the adapter of a model into a folder."""
    model.save_pretrained(folder)


def save_whole(model: Any, folder: Path) -> None:
    """Saves the weights that an engine reads again, without tied weights that are stored under another name already."""
    from safetensors.torch import save_file

    tied = set(model._tied_weights_keys or ()) if model.config.tie_word_embeddings else set()
    weights = {
        name: value.contiguous() for name, value in model.state_dict().items() if name not in tied
    }
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def open_vllm(subject: Subject, options: OnlineOptions, lora: bool) -> FolderSampler:
    """Starts the engine in this process. Raises PolicyRefused."""
    from kernelwright.policies.vllm.engine_policy import VLLMPolicy

    policy = VLLMPolicy(
        subject.path, engine={"gpu_memory_utilization": ENGINE_MEMORY_SHARE, "enable_lora": lora}
    )
    policy.open()
    take = str if lora else policy.take_weights
    return FolderSampler(
        policy, options.work / "sampled", subject, lora=lora, take=take, together=True
    )


def open_served(subject: Subject, options: OnlineOptions, lora: bool) -> FolderSampler:
    """`openai:MODEL@URL`: a vLLM server that reads the folders of this training.

    Raises InputError, PolicyRefused, PolicyUnavailable.
    """
    from kernelwright.policies.openai.openai_policy import OpenAIPolicy
    from kernelwright.policies.retrying import RetryingPolicy
    from kernelwright.policies.server_names import model_and_url
    from kernelwright.policies.vllm.server import VLLMServerPolicy

    model, url = model_and_url(options.engine.removeprefix(SERVER_PREFIX))
    policy = OpenAIPolicy(
        model, url, key=options.key, at_once=min(512, options.prompts * options.group)
    )
    try:
        refuse_other_model(policy, model, url, subject)
    except BaseException:
        policy.close()
        raise
    server = VLLMServerPolicy(RetryingPolicy(policy), url, options.key, Path(subject.path))
    take = server.take_adapter if lora else server.take_weights
    return FolderSampler(
        server, options.work / "sampled", subject, lora=lora, take=take, together=False
    )


def refuse_other_model(policy: Any, model: str, url: str, subject: Subject) -> None:
    """Raises InputError where the server is not vLLM, or serves another model than the one that is trained."""
    served = policy.served()
    if not served.is_vllm:
        raise InputError(
            f"{url} is no vLLM server, and only vLLM can load the weights of a training: see docs/reference/policies.md"
        )
    same = served.root == subject.path or served.revision == weights_revision(Path(subject.path))
    if not same or served.root is None:
        raise InputError(
            f"{url} serves {served.root} as {model}, and {subject.path} is trained: start it with --model "
            f"{subject.path}"
        )
