"""Fast policy for small models on a CPU: no import of transformers, fast loading, several tokens
per step.

Requests with an adapter, stop strings or a truncated distribution go to transformers, which is
then loaded too.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    PolicyRefused,
    Request,
    Trouble,
    Usage,
)
from kernelwright.policies.local.decoding import SequenceInDecoding
from kernelwright.policies.local.lookahead import NgramTable, draw_with_lookahead, fits_lookahead
from kernelwright.policies.local.small_model import SmallModel, is_small, load_small
from kernelwright.policies.local.transformers_policy import (
    SEED_LIMIT,
    TransformersPolicy,
    prompt_ids,
)
from kernelwright.policies.model_identity import Identity, identity_of, weights_revision

MAX_ROWS_AT_ONCE = 32
"""Maximum number of rows per batch."""


class SmallTokenizer:
    """The part of a transformers tokenizer a policy needs, read from its files: ids, text and
    the chat template.
    """

    def __init__(self, folder: Path) -> None:
        """Reads the tokenizer. Raises OSError, ValueError, KeyError for a folder without such a
        tokenizer.
        """
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        notes = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.chat_template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        end: int | None = self.backend_tokenizer.token_to_id(notes["eos_token"])
        if end is None:
            raise ValueError("the end token is not in the vocabulary")
        self.eos_token_id = end
        # These are the settings with which transformers renders templates.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(self.chat_template)

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        """The token ids of a conversation with the beginning of the answer, without special tokens added."""
        text = self._template.render(messages=messages, add_generation_prompt=True)
        return list(self.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids, without special tokens."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=True))


class SmallPolicy(TransformersPolicy):
    """`TransformersPolicy` for a folder `small_model.is_small` accepts."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._small: _Small | None = None

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of transformers' policy; on a CPU `MAX_ROWS_AT_ONCE` requests at once by default."""
        inherited = super().capabilities
        return (
            inherited
            if self._at_once or not self._on_cpu
            else inherited.with_(at_once=MAX_ROWS_AT_ONCE)
        )

    @property
    def _on_cpu(self) -> bool:
        if self._device == "auto":
            import torch

            return not torch.cuda.is_available()
        return self._device == "cpu"

    def _free(self) -> None:
        super()._free()
        self._small = None

    def _sample(self, requests: Sequence[Request], finished: dict[int, Completion]) -> None:
        plain = self._on_cpu and self._adapter is None and self._dtype in ("auto", "float32")
        if not (plain and all(r.adapter is None and fits_lookahead(r.sampling) for r in requests)):
            super()._sample(requests, finished)
            return
        if self._small is None:
            self._small = _load(Path(self._path))
        small = self._small
        rows = [small.row(request) for request in requests]
        at_once = self.capabilities.at_once
        for start in range(0, len(rows), at_once):
            batch = rows[start : start + at_once]
            draw_with_lookahead(
                small.model,
                batch,
                small.ends,
                small.tokenizer.decode,
                small.common,
                between=self._check_answering,
            )
            for index, row in enumerate(batch, start):
                finished[index] = self._small_completion(requests[index], row, small)

    def _small_completion(
        self, request: Request, row: SequenceInDecoding, small: _Small
    ) -> Completion:
        assert row.finish is not None
        return Completion(
            text=row.text(small.tokenizer.decode), finish=row.finish, policy=self.name,
            usage=Usage(prompt_tokens=len(row.prompt), completion_tokens=len(row.token_ids), dollars=0.0),
            prompt_token_ids=tuple(row.prompt), token_ids=tuple(row.token_ids),
            logprobs=tuple(min(value, 0.0) for value in row.logprobs), exact=request.sampling.exact,
            revision=small.revision, tokenizer_hash=small.identity.tokenizer_hash,
            chat_template_hash=small.identity.chat_template_hash, seed=row.seed, latency=row.latency,
        )  # fmt: skip


class _Small:
    """Model and tokenizer in memory."""

    def __init__(self, folder: Path, model: SmallModel, tokenizer: SmallTokenizer) -> None:
        self.folder, self.model, self.tokenizer = folder, model, tokenizer
        self.identity: Identity = identity_of(tokenizer)
        self.revision = weights_revision(folder)
        self.ends = frozenset({tokenizer.eos_token_id})
        self.common = NgramTable()

    def row(self, request: Request) -> SequenceInDecoding:
        """Returns a request as a row of a batch. Raises PolicyRefused for a prompt that is too long."""
        prompt = prompt_ids(self.tokenizer, request, str(self.folder))
        room = min(request.sampling.max_tokens, self.model.context - len(prompt))
        if room < 1:
            raise PolicyRefused(
                f"the prompt has {len(prompt)} tokens and {self.folder} holds {self.model.context}: "
                "shorten it, or choose a policy with a longer context (--policy openai:MODEL)",
                Trouble.CONTEXT,
            )
        seed = (
            request.sampling.seed
            if request.sampling.seed is not None
            else secrets.randbelow(SEED_LIMIT)
        )
        return SequenceInDecoding(prompt=prompt, sampling=request.sampling, seed=seed, limit=room)


def _load(folder: Path) -> _Small:
    try:
        return _Small(folder, load_small(folder), SmallTokenizer(folder))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise PolicyRefused(
            f"cannot load {folder}: {type(error).__name__}: {error}", Trouble.MODEL
        ) from error


def open_local(path: str, **options: Any) -> TransformersPolicy:
    """Returns the faster policy for a folder or a hub name. Loads nothing yet."""
    small = options.get("adapter") is None and is_small(Path(path).expanduser())
    return (SmallPolicy if small else TransformersPolicy)(path, **options)
