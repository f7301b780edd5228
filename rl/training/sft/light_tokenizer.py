"""A tokenizer without transformers, whose import takes each of many processes longer than its
work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

TEMPLATE_PROBES = ("draft\nx = 1", "\n  y\n\n", "<b>'\"&")
"""Texts that a chat template might trim or escape."""


class LightTokenizer:
    """A tokenizer equal to transformers' for plain texts and for chats of a single user message.
    Can be sent to other processes.
    """

    def __init__(self, backend: str, before: str, after: str) -> None:
        """Takes `backend`, the `tokenizers` library's JSON, and the chat template's text `before`
        and `after` the message.
        """
        self._backend, self._before, self._after = backend, before, after
        self._loaded: Tokenizer | None = None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Self | None:
        """Converts a tokenizer of transformers. Returns None for one outside the `tokenizers`
        library, or if its template does more than surround the message with text.
        """
        if not getattr(tokenizer, "is_fast", False):
            return None
        fast: Any = tokenizer
        written = [_written(fast, probe) for probe in TEMPLATE_PROBES]
        # A template that only surrounds the message does so alike for every probe.
        before, _, after = written[0].partition(TEMPLATE_PROBES[0])
        if written != [before + probe + after for probe in TEMPLATE_PROBES]:
            return None
        return cls(fast.backend_tokenizer.to_str(), before, after)

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **_: object) -> str:
        """Returns the text of a conversation of one message, as the template wrote it. Raises
        ValueError for several messages.
        """
        [message] = messages
        return self._before + message["content"] + self._after

    def get_vocab(self) -> dict[str, int]:
        """Returns every token with its id."""
        return dict(self._opened().get_vocab())

    def __call__(
        self, texts: list[str], add_special_tokens: bool = False
    ) -> dict[str, list[list[int]]]:
        """Returns the ids of each text under `input_ids`, as transformers' tokenizers do."""
        encodings = self._opened().encode_batch(texts, add_special_tokens=add_special_tokens)
        return {"input_ids": [encoding.ids for encoding in encodings]}

    def _opened(self) -> Tokenizer:
        if self._loaded is None:
            from tokenizers import Tokenizer

            self._loaded = Tokenizer.from_str(self._backend)
        return self._loaded


def _written(tokenizer: PreTrainedTokenizerBase, content: str) -> str:
    chat = [{"role": "user", "content": content}]
    return str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))
