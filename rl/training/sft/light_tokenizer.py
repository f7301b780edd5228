"""A tokenizer that needs no transformers, whose import takes each of many processes longer than its own work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

TEMPLATE_PROBES = ("draft\nx = 1", "\n  y\n\n", "<b>'\"&")
"""Texts that a chat template might trim or escape."""


class LightTokenizer:
    """A tokenizer that does what transformers' own does, for texts without special treatment and chats of one user's
    message.

    Can be sent to other processes.
    """

    def __init__(self, backend: str, before: str, after: str) -> None:
        """`backend`: the `tokenizers` library's JSON.

        `before`, `after`: what the chat template puts round the message.
        """
        self._backend, self._before, self._after = backend, before, after
        self._own: Any = None

    @classmethod
    def of(cls, tokenizer: Any) -> Self | None:
        """Makes one; None where the tokenizer is not of the `tokenizers` library, or its template does more than put
        text round the message.
        """
        if not getattr(tokenizer, "is_fast", False):
            return None
        written = [_written(tokenizer, probe) for probe in TEMPLATE_PROBES]
        before, _, after = written[0].partition(TEMPLATE_PROBES[0])
        if written != [before + probe + after for probe in TEMPLATE_PROBES]:
            return None
        return cls(tokenizer.backend_tokenizer.to_str(), before, after)

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **_: Any) -> str:
        """The text of a conversation of one message, as the template wrote it. Raises ValueError for several."""
        [message] = messages
        return self._before + message["content"] + self._after

    def get_vocab(self) -> dict[str, int]:
        """Returns every token with its id."""
        return dict(self._opened().get_vocab())

    def __call__(
        self, texts: list[str], add_special_tokens: bool = False
    ) -> dict[str, list[list[int]]]:
        """The ids of each text under `input_ids`, as transformers' tokenizers give them."""
        return {
            "input_ids": [
                one.ids
                for one in self._opened().encode_batch(texts, add_special_tokens=add_special_tokens)
            ]
        }

    def _opened(self) -> Any:
        if self._own is None:
            from tokenizers import Tokenizer

            self._own = Tokenizer.from_str(self._backend)
        return self._own


def _written(tokenizer: Any, content: str) -> str:
    chat = [{"role": "user", "content": content}]
    return str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))
