"""Draws completions from a loaded causal model: many rows at once, each with its own sampling, seed and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelwright.policies.base import FinishReason, Sampling
from kernelwright.policies.local.sampling import TokenSampler
from kernelwright.policies.local.stepping import CacheKind, Stepper, make_stepper

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Spell = Callable[[Sequence[int]], str]
"""Token ids -> text, without special tokens."""


@dataclass
class SequenceInDecoding:
    """A prompt with the tokens drawn so far."""

    prompt: Sequence[int]
    sampling: Sampling
    seed: int
    limit: int
    """Maximum number of tokens to draw: `max_tokens`, or the rest of the context."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    latency: float = 0.0
    room: int = 0
    """Maximum number of tokens of thought and answer, where `limit` is that of the thought."""

    def text(self, spell: Spell) -> str:
        """Returns the text, cut before the first stop string."""
        text = spell(self.token_ids)
        return text[
            : min(
                (position for stop in self.sampling.stop if (position := text.find(stop)) >= 0),
                default=None,
            )
        ]

    def take(self, token: int, logprob: float, ends: frozenset[int], spell: Spell) -> None:
        """Appends a drawn token with its log-prob (nats), and sets `finish` if the row ends."""
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        if token in ends or (self.sampling.stop and self._stopped(spell)):
            self.finish = FinishReason.STOP
        elif len(self.token_ids) >= self.limit:
            self.finish = FinishReason.LENGTH

    def _stopped(self, spell: Spell) -> bool:
        """Looks at the tail only: every token spells a byte at least."""
        longest = max(len(stop.encode()) for stop in self.sampling.stop)
        tail = spell(self.token_ids[-longest - 4 :])
        return any(stop in tail for stop in self.sampling.stop)


def draw(
    model: PreTrainedModel,
    rows: Sequence[SequenceInDecoding],
    ends: frozenset[int],
    pad: int,
    spell: Spell,
    cache: CacheKind,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Draws tokens until all rows have ended.

    With a growing cache, ended rows are dropped once they are half of the batch. `between`:
    called before each step; an
    exception from it ends the drawing.
    """
    import torch

    started = time.monotonic()
    room = max(row.limit for row in rows)
    prompts = [row.prompt for row in rows]
    with torch.inference_mode():
        chooser = TokenSampler(
            [row.sampling for row in rows], [row.seed for row in rows], room, prompts, model.device
        )
        stepper = make_stepper(model, prompts, pad, room, cache)
        logits = stepper.prefill()
        batch = list(rows)
        for step in range(room):
            between()
            tokens, logprobs = chooser.choose(logits, step)
            _record(batch, tokens, logprobs, ends, spell, started)
            if all(row.finish for row in batch):
                return
            batch, tokens = _without_ended(batch, tokens, stepper, chooser)
            logits = stepper.step(tokens)


def _record(
    batch: list[SequenceInDecoding],
    tokens: torch.Tensor,
    logprobs: torch.Tensor,
    ends: frozenset[int],
    spell: Spell,
    started: float,
) -> None:
    for row, token, logprob in zip(batch, tokens.tolist(), logprobs.tolist(), strict=True):
        if row.finish is None:
            row.take(token, logprob, ends, spell)
            row.latency = time.monotonic() - started


def _without_ended(
    batch: list[SequenceInDecoding], tokens: torch.Tensor, stepper: Stepper, chooser: TokenSampler
) -> tuple[list[SequenceInDecoding], torch.Tensor]:
    import torch

    going = [index for index, row in enumerate(batch) if row.finish is None]
    if not stepper.shrinks or len(going) * 2 > len(batch):
        return batch, tokens
    indices = torch.tensor(going, device=tokens.device)
    stepper.keep(indices)
    chooser.keep(indices)
    return [batch[index] for index in going], tokens[indices]
