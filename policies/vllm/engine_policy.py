"""vLLM's engine in this process: exact log-probs, LoRA adapters by request, whole weights that can be moved."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    FinishReason,
    PolicyRefused,
    PromptForm,
    Request,
    Sampling,
    Trouble,
    Usage,
    valid_logprobs,
)
from kernelwright.policies.local.transformers_policy import SEED_LIMIT, on_device, prompt_ids
from kernelwright.policies.model_identity import (
    Identity,
    adapter_folder,
    identity_of,
    model_config,
    weights_revision,
)
from kernelwright.policies.policy_card import read_cards
from kernelwright.policies.vllm.worker import EXTENSION_CLASS, LOAD_METHOD, load_arguments

if TYPE_CHECKING:
    from vllm import RequestOutput

MAX_LORA_RANK = 64
"""The largest rank of a LoRA adapter; the engine reserves memory for it at the start."""


class VLLMPolicy:
    """Opening reads `config.json` only; the engine starts with the first `sample` (a minute, on a large model)."""

    def __init__(
        self, path: str, *, adapter: str | None = None, engine: dict[str, Any] | None = None
    ) -> None:
        """`engine`: vLLM's own EngineArgs by name (tensor_parallel_size, max_model_len, quantization ...)."""
        self._config = model_config(path)
        self._path = str(Path(path).expanduser()) if self._config is not None else path
        self._adapter = adapter
        if adapter is not None:
            adapter_folder(adapter)
        self._engine_args = engine or {}
        self._name = f"vllm:{path}"
        self._prompt_form = read_cards(Path(self._path), adapter).prompt_form
        self._lock = threading.Lock()
        self._engine: Any = None
        self._tokenizer: Any = None
        self._context: int | None = None
        self._identity = Identity()
        self._revision: str | None = None
        self._adapters: dict[str, tuple[Any, str | None]] = {}

    @property
    def name(self) -> str:
        """Returns the policy's name, `vllm:PATH`."""
        return self._name

    @property
    def prompt_form(self) -> PromptForm:
        """The form of prompts the model or its adapter was trained on, by its card."""
        return self._prompt_form

    @property
    def capabilities(self) -> Capabilities:
        """Exact log-probs, seeds and adapters, 1,024 requests at once."""
        context = self._context or (self._config or {}).get("max_position_embeddings")
        return Capabilities(
            token_ids=True,
            logprobs=True,
            adapters=True,
            seeds=True,
            at_once=1024,
            context=context,
            device=on_device("auto"),
        )

    def close(self) -> None:
        """Shuts vLLM's engine down; the next `sample` starts another."""
        with self._lock:
            engine, self._engine = self._engine, None
            if engine is not None:
                engine.llm_engine.engine_core.shutdown()

    def open(self) -> None:
        """Starts the engine now and not with the first question. Raises PolicyRefused."""
        with self._lock:
            if self._engine is None:
                self._start()

    def take_weights(self, folder: Path) -> None:
        """Replaces the engine's weights by those of a folder.

        No request may be running, and the engine must be one without LoRA. Raises PolicyRefused.
        """
        self.open()
        with self._lock:
            try:
                revisions = self._engine.collective_rpc(LOAD_METHOD, kwargs=load_arguments(folder))
            except Exception as error:  # whatever the engine's process has met
                raise PolicyRefused(
                    f"vllm does not take {folder}: {_first_line(error)}", Trouble.MODEL
                ) from error
            if not self._engine.reset_prefix_cache():
                raise PolicyRefused(
                    "vllm keeps what it cached under the old weights", Trouble.MODEL
                )
            self._revision = revisions[0]

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers in the order of the requests. Raises PolicyError with the answers finished."""
        if not requests:
            return []
        self.open()
        with self._lock:
            prompts = [self._prompt(request) for request in requests]
            samplings = [_seeded(request.sampling) for request in requests]
            adapters = [self._lora(request.adapter or self._adapter) for request in requests]
            finished: dict[int, Completion] = {}
            # vLLM 0.32 on a CPU gives a plain request the last adapter's weights when an adapted one is in its batch
            # (seen: tests/policies/vllm/test_real_servers.py), so plain and adapted requests never go together.
            for is_adapted in (False, True):
                indices = [
                    index
                    for index, (lora, _) in enumerate(adapters)
                    if (lora is not None) is is_adapted
                ]
                started = time.monotonic()
                outputs = self._generate(
                    [(prompts[index], samplings[index], adapters[index][0]) for index in indices]
                )
                latency = time.monotonic() - started
                for index, output in zip(indices, outputs, strict=True):
                    finished[index] = self._completion(
                        output, samplings[index], adapters[index][1], latency
                    )
        return [finished[index] for index in range(len(requests))]

    def _start(self) -> None:
        # Standard output is the program's own; the engine's processes take this from the environment and nowhere else.
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        # Beside a training this process has threads and perhaps a CUDA context, and neither survives a fork.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        try:
            import vllm
        except ImportError as error:
            raise PolicyRefused(
                "vllm is not installed: pip install 'kernelwright[vllm]'", Trouble.NOT_INSTALLED
            ) from error
        try:
            self._engine = vllm.LLM(
                model=self._path,
                logprobs_mode="processed_logprobs",
                disable_log_stats=True,
                **self._arguments(),
            )
        except Exception as error:  # the engine raises whatever its many parts do; each means that it does not start
            raise PolicyRefused(
                f"vllm does not start with {self._path}: {_first_line(error)}", Trouble.MODEL
            ) from error
        self._tokenizer = self._engine.get_tokenizer()
        self._context = int(self._engine.llm_engine.model_config.max_model_len)
        self._identity = identity_of(self._tokenizer)
        self._revision = weights_revision(Path(self._path))

    def _arguments(self) -> dict[str, Any]:
        """Returns the arguments of vLLM's engine.

        On a CPU: float32 (twice as slow as bfloat16, and log-probs match training to six digits),
        and prompts are read
        whole, because for a prompt read in parts vLLM 0.32 rewinds the request's generator, which
        fails with a CPU generator
        and kills the engine.
        """
        exact = (
            {"dtype": "float32", "enable_chunked_prefill": False}
            if on_device("auto") == "cpu"
            else {}
        )
        lora = {"enable_lora": True, "max_lora_rank": MAX_LORA_RANK}
        return {
            **exact,
            **lora,
            "use_tqdm_on_load": False,
            "worker_extension_cls": EXTENSION_CLASS,
            **self._engine_args,
        }

    def _prompt(self, request: Request) -> list[int]:
        ids = prompt_ids(self._tokenizer, request, self._path)
        if self._context is not None and len(ids) >= self._context:
            raise PolicyRefused(
                f"the prompt has {len(ids)} tokens and {self._path} holds {self._context}: shorten it",
                Trouble.CONTEXT,
            )
        return ids

    def _generate(self, prepared: list[tuple[list[int], Sampling, Any]]) -> list[Any]:
        if not prepared:
            return []
        tokens: list[Any] = [{"prompt_token_ids": prompt} for prompt, _, _ in prepared]
        parameters = [self._parameters(sampling, len(prompt)) for prompt, sampling, _ in prepared]
        loras = [lora for _, _, lora in prepared]
        return self._engine.generate(
            tokens, parameters, use_tqdm=False, lora_request=loras if any(loras) else None
        )

    def _parameters(self, sampling: Sampling, prompt_tokens: int) -> Any:
        from vllm import SamplingParams

        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            max_tokens=min(sampling.max_tokens, (self._context or 1 << 30) - prompt_tokens),
            seed=sampling.seed,
            stop=list(sampling.stop) or None,
            thinking_token_budget=sampling.thinking_tokens,
            logprobs=0,
        )

    def _completion(
        self,
        output: RequestOutput,
        sampling: Sampling,
        adapter_revision: str | None,
        latency: float,
    ) -> Completion:
        sampled = output.outputs[0]
        ids = tuple(sampled.token_ids)
        drawn = [entry[token].logprob for token, entry in zip(ids, sampled.logprobs, strict=True)]
        logprobs = valid_logprobs(drawn, len(ids))
        return Completion(
            text=sampled.text,
            finish=FinishReason(sampled.finish_reason)
            if sampled.finish_reason in ("stop", "length")
            else FinishReason.OTHER,
            usage=Usage(
                prompt_tokens=len(output.prompt_token_ids), completion_tokens=len(ids), dollars=0.0
            ),
            policy=self._name,
            prompt_token_ids=tuple(output.prompt_token_ids),
            token_ids=ids,
            logprobs=logprobs,
            exact=sampling.exact and logprobs is not None,
            revision=self._revision,
            adapter_revision=adapter_revision,
            tokenizer_hash=self._identity.tokenizer_hash,
            chat_template_hash=self._identity.chat_template_hash,
            seed=sampling.seed,
            latency=latency,
        )

    def _lora(self, adapter: str | None) -> tuple[Any, str | None]:
        """vLLM's request for the adapter, and the revision of its weights."""
        if adapter is None:
            return None, None
        if adapter not in self._adapters:
            from vllm.lora.request import LoRARequest

            folder = adapter_folder(adapter)
            number = len(self._adapters) + 1
            self._adapters[adapter] = (
                LoRARequest(f"adapter-{number}", number, str(folder)),
                weights_revision(folder),
            )
        return self._adapters[adapter]


def _seeded(sampling: Sampling) -> Sampling:
    return (
        sampling
        if sampling.seed is not None
        else sampling.with_(seed=secrets.randbelow(SEED_LIMIT))
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
