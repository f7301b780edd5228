"""A model in this process, through transformers: batched, left padded, exact log-probs, LoRA adapters by request."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    FinishReason,
    PolicyError,
    PolicyRefused,
    PromptForm,
    Request,
    Trouble,
    Usage,
)
from kernelwright.policies.deadlines import check_deadline, latest_deadline
from kernelwright.policies.local.decoding import SequenceInDecoding, draw
from kernelwright.policies.local.quantised_weights import has_int8, read_int8
from kernelwright.policies.local.stepping import CacheKind
from kernelwright.policies.local.thinking_budget import answer_after, append_answer
from kernelwright.policies.model_identity import (
    ChatTokenizer,
    Identity,
    adapter_folder,
    identity_of,
    model_config,
    weights_revision,
)
from kernelwright.policies.policy_card import read_cards

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

SEED_LIMIT = 1 << 31


class TransformersPolicy:
    """Opening reads `config.json` only; the weights are loaded by the first `sample`."""

    def __init__(
        self,
        path: str,
        *,
        adapter: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        at_once: int | None = None,
        cache: CacheKind = CacheKind.AUTO,
        name: str | None = None,
        prompt_form: PromptForm | None = None,
    ) -> None:
        """`dtype` auto: bfloat16 on a GPU, float32 on a CPU. `at_once` rows a batch: 256 on a GPU, 16 on a CPU."""
        self._config = model_config(path)
        self._path = str(Path(path).expanduser()) if self._config is not None else path
        self._adapter = adapter
        if adapter is not None:
            adapter_folder(adapter)
        self._device, self._dtype, self._cache = device, dtype, cache
        self._at_once = at_once
        self._name = name or f"transformers:{path}"
        self._prompt_form = prompt_form or read_cards(Path(self._path), adapter).prompt_form
        self._loaded: LoadedModel | None = None
        self._lock = threading.Lock()
        self._free_when_idle = False
        self._answers_no_more = False
        self._deadline: float | None = None

    @property
    def name(self) -> str:
        """The name given, else `transformers:PATH`."""
        return self._name

    @property
    def prompt_form(self) -> PromptForm:
        """Returns the form set at opening, else the form in the model's or adapter's card."""
        return self._prompt_form

    @property
    def capabilities(self) -> Capabilities:
        """Exact log-probs, seeds and adapters; 256 requests at once on a GPU and 16 on a CPU by default."""
        context = (
            self._loaded.context
            if self._loaded
            else (self._config or {}).get("max_position_embeddings")
        )
        device = on_device(self._device)
        at_once = self._at_once or (256 if device.startswith("cuda") else 16)
        return Capabilities(
            token_ids=True,
            logprobs=True,
            adapters=True,
            seeds=True,
            at_once=at_once,
            context=context,
            device=device,
        )

    def close(self) -> None:
        """Frees the model without waiting; a thread that is sampling finishes first. The next
        `sample` loads it again.
        """
        self._free_when_idle = True
        self._free_if_idle()

    def stop_answering(self) -> None:
        """Nobody is answered any more: who waits gets KeyboardInterrupt, within a step or a burst of them. For good."""
        self._answers_no_more = True

    def _check_between_steps(self) -> None:
        self._check_answering()
        check_deadline(self._deadline)

    def _check_answering(self) -> None:
        if self._answers_no_more:
            raise KeyboardInterrupt

    def _free_if_idle(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._free()
            finally:
                self._lock.release()

    def _free(self) -> None:
        self._loaded = None

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers in the order of the requests.

        Raises PolicyError with the answers that were finished, and after `stop_answering` KeyboardInterrupt.
        """
        finished: dict[int, Completion] = {}
        with self._lock:
            self._free_when_idle = False
            self._check_answering()
            try:
                self._sample(requests, finished)
            except PolicyError as error:
                error.finished = finished
                raise
        if self._free_when_idle:
            self._free_if_idle()
        return [finished[index] for index in range(len(requests))]

    def _sample(self, requests: Sequence[Request], finished: dict[int, Completion]) -> None:
        if self._loaded is None:
            self._loaded = load(self._path, on_device(self._device), self._dtype)
            self._loaded.between = self._check_between_steps
        self._deadline = latest_deadline(requests)
        rows = [self._loaded.row(request) for request in requests]
        adapters = [request.adapter or self._adapter for request in requests]
        at_once = self.capabilities.at_once
        with own_gpu(self._loaded.model):
            # Rows of a batch share an adapter.
            for adapter in dict.fromkeys(adapters):
                indices = [
                    index for index, row_adapter in enumerate(adapters) if row_adapter == adapter
                ]
                for start in range(0, len(indices), at_once):
                    batch = indices[start : start + at_once]
                    revision = self._loaded.draw(
                        [rows[index] for index in batch], adapter, self._cache
                    )
                    for index in batch:
                        finished[index] = self._completion(requests[index], rows[index], revision)

    def _completion(
        self, request: Request, row: SequenceInDecoding, adapter_revision: str | None
    ) -> Completion:
        assert self._loaded is not None
        assert row.finish is not None
        usage = Usage(
            prompt_tokens=len(row.prompt), completion_tokens=len(row.token_ids), dollars=0.0
        )
        return Completion(
            text=row.text(self._loaded.spell),
            finish=row.finish,
            usage=usage,
            policy=self._name,
            prompt_token_ids=tuple(row.prompt),
            token_ids=tuple(row.token_ids),
            logprobs=tuple(min(value, 0.0) for value in row.logprobs),
            exact=request.sampling.exact,
            revision=self._loaded.revision,
            adapter_revision=adapter_revision,
            tokenizer_hash=self._loaded.identity.tokenizer_hash,
            chat_template_hash=self._loaded.identity.chat_template_hash,
            seed=row.seed,
            latency=row.latency,
        )


class LoadedModel:
    """Model and tokenizer in memory."""

    def __init__(
        self, path: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self._path, self.base, self._tokenizer = path, model, tokenizer
        self._model: Any = model
        self._adapters: dict[str, str | None] = {}
        self.between: Callable[[], None] = lambda: None
        """Callback before each sampling step; an exception from it ends the sampling."""
        self.context = int(getattr(model.config, "max_position_embeddings", 0)) or None
        self.identity: Identity = identity_of(tokenizer)
        self.revision = weights_revision(Path(path)) or getattr(model.config, "_commit_hash", None)
        self.ends = frozenset(
            _as_id_list(tokenizer.eos_token_id) + _as_id_list(model.generation_config.eos_token_id)
        )
        self._pad = next(iter(_as_id_list(tokenizer.pad_token_id) + sorted(self.ends)), 0)

    @property
    def model(self) -> Any:
        """The model with the adapters asked for so far."""
        return self._model

    def finish(self, row: SequenceInDecoding) -> FinishReason:
        """Why a row drawn elsewhere has ended."""
        return FinishReason.STOP if row.token_ids[-1] in self.ends else FinishReason.LENGTH

    def spell(self, ids: Sequence[int]) -> str:
        """Returns the text of tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def row(self, request: Request) -> SequenceInDecoding:
        """Returns a request as a row of a batch. Raises PolicyRefused for a prompt that is too long."""
        prompt = prompt_ids(self._tokenizer, request, self._path)
        sampling = request.sampling
        room = (
            sampling.max_tokens
            if self.context is None
            else min(sampling.max_tokens, self.context - len(prompt))
        )
        if room < 1:
            raise PolicyRefused(
                f"the prompt has {len(prompt)} tokens and {self._path} holds {self.context}: "
                "shorten it, or choose a policy with a longer context (--policy openai:MODEL)",
                Trouble.CONTEXT,
            )
        seed = sampling.seed if sampling.seed is not None else secrets.randbelow(SEED_LIMIT)
        limit = min(room, sampling.thinking_tokens or room)
        return SequenceInDecoding(
            prompt=prompt, sampling=sampling, seed=seed, limit=limit, room=room
        )

    def draw(
        self, rows: Sequence[SequenceInDecoding], adapter: str | None, cache: CacheKind
    ) -> str | None:
        """Draws the rows' tokens, with the adapter if there is one, and returns the adapter's
        revision.
        """
        import torch

        started = time.monotonic()
        try:
            if adapter is None and self._adapters:
                with self._model.disable_adapter():
                    self._draw_answers(rows, cache)
                return None
            revision = None if adapter is None else self._set_adapter(adapter)
            self._draw_answers(rows, cache)
        except torch.OutOfMemoryError as error:
            raise PolicyRefused(
                f"out of GPU memory with {len(rows)} rows at once: give a smaller --reply-tokens, "
                "or --at-once (rl train: --places)",
                Trouble.MEMORY,
            ) from error
        log.debug("%d rows in %.2f s", len(rows), time.monotonic() - started)
        return revision

    def _draw_answers(self, rows: Sequence[SequenceInDecoding], cache: CacheKind) -> None:
        """Draws the rows' tokens; rows that reach their thinking budget get an end of the thought
        and are drawn on.
        """
        draw(self._model, rows, self.ends, self._pad, self.spell, cache, self.between)
        answers = [(row, answer) for row in rows if (answer := answer_after(row, self._tokenizer))]
        if not answers:
            return
        drawn = [answer for _, answer in answers]
        draw(self._model, drawn, self.ends, self._pad, self.spell, cache, self.between)
        for row, answer in answers:
            append_answer(row, answer)

    def _set_adapter(self, adapter: str) -> str | None:
        if adapter not in self._adapters:
            folder = adapter_folder(adapter)
            self._model = _with_adapter(
                self._model, folder, f"a{len(self._adapters)}", bool(self._adapters)
            )
            self._adapters[adapter] = weights_revision(folder)
        self._model.set_adapter(f"a{list(self._adapters).index(adapter)}")
        return self._adapters[adapter]


def own_gpu(model: PreTrainedModel) -> AbstractContextManager[Any]:
    """Makes the model's GPU current for this thread, since streams and graphs belong to the
    current GPU.
    """
    if model.device.type != "cuda":
        return nullcontext()
    import torch

    return torch.cuda.device(model.device)


def load(path: str, device: str, dtype: str) -> LoadedModel:
    """Loads a model and its tokenizer. Raises PolicyRefused (one line) for all failures of
    transformers.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise PolicyRefused(
            f"{error.name} is not installed: pip install torch transformers", Trouble.NOT_INSTALLED
        ) from error
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model: Any = (
            read_int8(Path(path)).to(getattr(torch, dtype))
            if has_int8(Path(path))
            else AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
        )
        model = model.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise PolicyRefused(
            f"{path} does not fit on {device}: use a smaller model", Trouble.MEMORY
        ) from error
    except (
        Exception
    ) as error:  # a foreign folder may raise anything; each means that this is no usable model
        raise PolicyRefused(f"cannot load {path}: {_first_line(error)}", Trouble.MODEL) from error
    return LoadedModel(path, model, tokenizer)


def prompt_ids(tokenizer: ChatTokenizer, request: Request, path: str) -> list[int]:
    """The prompt as the model's own chat template writes it."""
    if tokenizer.chat_template is None:
        raise PolicyRefused(
            f"{path} has no chat template: use an instruct model, or run `rl sft` on it",
            Trouble.MODEL,
        )
    messages = [
        {"role": str(message.role), "content": message.content} for message in request.messages
    ]
    thinking = request.sampling.thinking
    switch = {} if thinking is None else {"enable_thinking": thinking}
    try:
        ids = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **switch
        )
    except (
        Exception
    ) as error:  # templates are programs: some forbid a system message, or two of a role in a row
        raise PolicyRefused(
            f"the chat template of {path} refuses the messages: {_first_line(error)}",
            Trouble.REQUEST,
        ) from error
    return list(ids)


def _with_adapter(model: PreTrainedModel, folder: Path, key: str, is_peft: bool) -> Any:
    try:
        from peft import PeftModel

        if is_peft:
            model.load_adapter(str(folder), adapter_name=key)
            return model
        return PeftModel.from_pretrained(model, str(folder), adapter_name=key).eval()
    except ImportError as error:
        raise PolicyRefused(
            "peft is not installed: pip install 'kernelwright[train]'", Trouble.NOT_INSTALLED
        ) from error
    except Exception as error:  # peft raises whatever the mismatch meets first
        raise PolicyRefused(
            f"the adapter {folder} does not fit this model: {_first_line(error)}", Trouble.MODEL
        ) from error


def on_device(device: str) -> str:
    """Returns the device; `auto` is the GPU if torch has one."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _as_id_list(value: int | list[int] | None) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
