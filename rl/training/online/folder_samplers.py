"""Samplers that load each round's weights from a folder: vLLM in this process, a vLLM server, and
engines with LoRA adapters by request.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Completion, Policy, PromptForm, Request
from kernelwright.policies.forwarding import Forwarding
from kernelwright.policies.model_identity import weights_revision
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.processes import ALONE, ProcessRank, told_by_first
from kernelwright.rl.training.sharding.gathering import gather_to_first
from kernelwright.rl.training.subject import Subject

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from kernelwright.policies.openai.openai_policy import OpenAIPolicy

KEPT_ADAPTERS = 3
"""Number of adapters of past rounds on disk, for an engine still reading them."""
ENGINE_MEMORY_SHARE = 0.4
"""Share of the GPU's memory for an engine beside the training."""
SERVER_PREFIX = "openai:"
"""Prefix of an engine that is a server, as in policy names."""


class FolderSampler:
    """A policy that answers with the weights of the newest folder, and names their revision in
    its answers.
    """

    def __init__(
        self,
        policy: Policy,
        folder: Path,
        subject: Subject,
        *,
        lora: bool,
        take: Callable[[Path], str | None],
        send: Callable[[dict[str, torch.Tensor], str], bool] | None = None,
        together: bool,
        process: ProcessRank = ALONE,
    ) -> None:
        """Wraps `policy`; folders of weights are written below `folder`.

        `take`: hands a folder over and returns the adapter's name for requests. `send`: hands whole
        weights over with their revision, without a folder; returns False if it cannot. `together`:
        whether waiting requests are sent in one call. `process`: of several that share the
        engine; the first hands folders over, for all.
        """
        self._process = process
        self._under = policy
        self._folder = folder
        self._subject = subject
        self._lora = lora
        self._take = take
        self._send = send
        self.together = together
        self._number = 0
        self._policy = _FolderPolicy(policy, subject)

    @property
    def policy(self) -> Policy:
        """Returns the policy to sample from; its answers name the newest folder's revision."""
        return self._policy

    def follow(self, model: PreTrainedModel, revision: str | None = None) -> str:
        """Writes the model's weights into a new folder and hands the folder over. Returns the
        revision, for an adapter `BASE+ADAPTER` as in logs and lineages.
        """
        self._number += 1
        weights = gather_to_first(model)
        # No request may be open anywhere while an engine takes other weights.
        adapter, base, adapter_revision = told_by_first(
            self._process, lambda: self._hand_over(model, weights, revision)
        )
        self._policy.answer_as(adapter, base, adapter_revision)
        return "+".join(part for part in (base, adapter_revision) if part)

    def _hand_over(
        self, model: PreTrainedModel, weights: dict[str, torch.Tensor], revision: str | None
    ) -> tuple[str | None, str | None, str | None]:
        """Has the engine take the weights. Returns the adapter's name and the revisions of base and
        adapter.
        """
        if self._send is not None:
            from kernelwright.policies.local.in_process_policy import fingerprint

            whole = without_tied(model, weights)
            version = revision or fingerprint(whole)
            if self._send(whole, version):
                return None, version, None
        folder = self._folder / f"round-{self._number}"
        shutil.rmtree(folder, ignore_errors=True)
        if self._lora:
            model.save_pretrained(folder, state_dict=weights)
        else:
            save_whole(model, weights, folder)
        written = weights_revision(folder) or ""
        base: str | None = revision or written
        adapter_revision: str | None = None
        if self._lora:
            base, adapter_revision = weights_revision(Path(self._subject.path)), written
        adapter = self._take(folder)
        # An engine may read an adapter again, but whole weights only once.
        outdated = folder
        if self._lora:
            outdated = self._folder / f"round-{self._number - KEPT_ADAPTERS}"
        shutil.rmtree(outdated, ignore_errors=True)
        return adapter, base, adapter_revision

    def drawn(self) -> tuple[int, float]:
        """Returns the number of tokens drawn so far, and the seconds spent."""
        return self._policy.drawn

    def stop_answering(self) -> None:
        """Does nothing: a server finishes its open requests."""

    def close(self) -> None:
        """Closes the wrapped policy; the folders of weights stay."""
        self._under.close()


class _FolderPolicy(Forwarding):
    """The policy seen by runs: every request is answered with the weights of the round. The
    caller closes the wrapped policy.
    """

    def __init__(self, policy: Policy, subject: Subject) -> None:
        super().__init__(policy)
        self._subject = subject
        self._adapter: str | None = None
        self._as: dict[str, str | None] = {}
        self._lock = threading.Lock()
        self._asking, self._tokens, self._seconds, self._since = 0, 0, 0.0, 0.0

    @property
    def prompt_form(self) -> PromptForm:
        """The policy's form of prompts in training."""
        return self._subject.prompt_form

    @property
    def drawn(self) -> tuple[int, float]:
        """Returns the number of tokens drawn so far, and the seconds with at least one open
        request.
        """
        return self._tokens, self._seconds

    def answer_as(
        self, adapter: str | None, revision: str | None, adapter_revision: str | None
    ) -> None:
        """Answers with this adapter from now on, and stamps completions with these revisions."""
        identity = self._subject.identity
        self._adapter = adapter
        self._as = {
            "revision": revision,
            "adapter_revision": adapter_revision,
            **identity.model_dump(),
        }

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers in the order of the requests, with the revision of the sampling weights."""
        self._count(1)
        completions: list[Completion] = []
        try:
            completions = self.policy.sample(
                [request.with_(adapter=self._adapter) for request in requests]
            )
        finally:
            self._count(-1, sum(len(completion.token_ids or ()) for completion in completions))
        return [completion.with_(**self._as) for completion in completions]

    def _count(self, step: int, tokens: int = 0) -> None:
        """Adds `step` to the number of open requests, and the time since the last change if any
        was open.
        """
        with self._lock:
            now = time.monotonic()
            if self._asking:
                self._seconds += now - self._since
            self._since = now
            self._asking += step
            self._tokens += tokens

    def close(self) -> None:
        """Does nothing: the sampler closes the wrapped policy."""


def save_whole(model: Any, state: dict[str, torch.Tensor], folder: Path) -> None:
    """Writes the weights for an engine to load."""
    from safetensors.torch import save_file

    weights = without_tied(model, state)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def without_tied(model: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the weights without tied ones that have another name as well."""
    tied = set(model._tied_weights_keys or ()) if model.config.tie_word_embeddings else set()
    return {name: value.contiguous() for name, value in state.items() if name not in tied}


def open_vllm(subject: Subject, options: OnlineOptions, lora: bool) -> FolderSampler:
    """Starts vLLM in this process. Raises PolicyRefused."""
    from kernelwright.policies.vllm.engine_policy import VLLMPolicy

    policy = VLLMPolicy(
        subject.path, engine={"gpu_memory_utilization": ENGINE_MEMORY_SHARE, "enable_lora": lora}
    )
    policy.open()
    take = str if lora else policy.take_weights
    return FolderSampler(
        policy, options.work / "sampled", subject, lora=lora, take=take, together=True
    )


def open_served(
    subject: Subject, options: OnlineOptions, lora: bool, process: ProcessRank = ALONE
) -> FolderSampler:
    """Connects to `openai:MODEL@URL`: a vLLM server that takes whole weights by its transfer API,
    or that has access to the folders of this training.

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
        server,
        options.work / "sampled",
        subject,
        lora=lora,
        take=take,
        send=None if lora else partial(server.send_weights, device=options.device),
        together=False,
        process=process,
    )


def refuse_other_model(policy: OpenAIPolicy, model: str, url: str, subject: Subject) -> None:
    """Raises InputError if the server is not vLLM, or serves another model than the trained
    model.
    """
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
