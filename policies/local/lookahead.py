"""Exact decoding of several tokens per step: probable next tokens are verified in one forward
pass.

Each token is drawn from the model's own distribution with the row's random number for that
position, so token ids
and log-probs equal those of decoding one token per step. Only the number of steps changes: a
repair copies most of
its code from the prompt, and kernels resemble each other.

Example: after `x = tl.load(` an earlier `tl.load(x_ptr` proposes [`x_ptr`, ` +`]. The model reads
both at once and
draws `x_ptr`, ` -`: the first draw agrees, the second does not and ends the step, two tokens
after one pass.

Prompt lookup: Saxena 2023; speculative sampling: Leviathan et al. 2023 (arXiv:2211.17192).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.policies.base import Sampling
from kernelwright.policies.local.decoding import SequenceInDecoding, Spell
from kernelwright.policies.local.small_model import KeyValueCache, SmallModel

if TYPE_CHECKING:
    import torch

MAX_TOKENS_AHEAD = {1: 10, 4: 6, 8: 4}
"""Maximum number of proposed tokens, by the largest number of rows for which this pays.

A single row is bound by memory, many rows by arithmetic.
"""
TOKENS_AHEAD_OF_MANY_ROWS = 3
MAX_NGRAM_TOKENS = 3
MAX_NGRAMS = 200_000
"""Keys of earlier answers kept."""


def fits_lookahead(sampling: Sampling) -> bool:
    """The model's own distribution at any temperature, or greedily, without stop strings."""
    plain = sampling.top_p == 1.0 and sampling.top_k is None and sampling.min_p == 0.0
    return plain and sampling.repetition_penalty == 1.0 and not sampling.stop


class NgramTable:
    """Maps the last few tokens to the token that most recently followed them, in a row or in all
    answers.
    """

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        for end in range(1, len(tokens)):
            self._learn(tokens, end)

    def _learn(self, tokens: Sequence[int], end: int) -> None:
        for width in range(2, MAX_NGRAM_TOKENS + 1):
            if end >= width:
                self._after[tuple(tokens[end - width : end])] = tokens[end]

    def grow(self, tokens: Sequence[int]) -> None:
        """The last of `tokens` is new."""
        self._learn(tokens, len(tokens) - 1)

    def remember(self, tokens: Sequence[int]) -> None:
        """Adds all tokens of an answer."""
        if len(self._after) > MAX_NGRAMS:
            self._after.clear()
        for end in range(1, len(tokens)):
            self._learn(tokens, end)

    def after(self, tokens: Sequence[int], width: int) -> int | None:
        """The token that followed the last `width` of these tokens when they were seen last, None for never."""
        return self._after.get(tuple(tokens[-width:]))


def propose_tokens(
    tokens: Sequence[int], row_table: NgramTable, common: NgramTable, most: int
) -> list[int]:
    """Returns at most `most` probable next tokens, by the longest known n-gram; the row's own
    table has precedence.
    """
    tail = list(tokens[-MAX_NGRAM_TOKENS:])
    proposed: list[int] = []
    while len(proposed) < most:
        for width in range(MAX_NGRAM_TOKENS, 1, -1):
            token = row_table.after(tail, width)
            token = common.after(tail, width) if token is None else token
            if token is not None:
                break
        else:
            break
        proposed.append(token)
        tail = [*tail[1 - MAX_NGRAM_TOKENS :], token]
    return proposed


class _ActiveRow:
    """A row in decoding. The cache holds all of its tokens but the last."""

    def __init__(self, row: SequenceInDecoding) -> None:
        import torch

        self.row = row
        self.tokens = list(row.prompt)
        self.table = NgramTable(self.tokens)
        generator = torch.Generator().manual_seed(row.seed)
        self.uniform = torch.rand(row.limit, generator=generator, dtype=torch.float64)
        self.guess: list[int] = []

    @property
    def remaining(self) -> int:
        """Tokens that may still be drawn for the row."""
        return self.row.limit - len(self.row.token_ids)


def draw_with_lookahead(
    model: SmallModel,
    rows: Sequence[SequenceInDecoding],
    ends: frozenset[int],
    spell: Spell,
    common: NgramTable,
    most: int | None = None,
    between: Callable[[], None] = lambda: None,
) -> int:
    """Draws tokens until all rows have ended, and returns the number of steps. Rows must satisfy
    `fits_lookahead`.

    most: maximum number of proposed tokens. between: called before each step; an exception from
    it ends the drawing.
    """
    import torch

    started = time.monotonic()
    going = [_ActiveRow(row) for row in rows]
    length = max(len(row.prompt) + row.limit for row in rows)
    ahead = _max_lookahead(len(rows)) if most is None else most
    steps = 0
    with torch.inference_mode():
        cache = KeyValueCache(model, len(rows), length + max(ahead, *MAX_TOKENS_AHEAD.values()) + 1)
        logits = _read_prompts(model, going, cache)[:, None]
        while True:
            between()
            steps += 1
            _keep_agreeing_draws(going, logits, ends, spell, started)
            for active in going:
                if active.row.finish is not None:
                    common.remember(active.row.token_ids)
            going = _without_ended(going, cache)
            if not going:
                return steps
            ahead = _max_lookahead(len(going)) if most is None else most
            logits = _read_ahead(model, going, cache, common, ahead)


def _max_lookahead(rows: int) -> int:
    return next(
        (ahead for up_to, ahead in MAX_TOKENS_AHEAD.items() if rows <= up_to),
        TOKENS_AHEAD_OF_MANY_ROWS,
    )


def _read_prompts(
    model: SmallModel, going: Sequence[_ActiveRow], cache: KeyValueCache
) -> torch.Tensor:
    """Logits after each prompt, (rows, vocabulary). Equal prompts are read once."""
    import torch

    different = list(dict.fromkeys(tuple(active.row.prompt) for active in going))
    width = max(map(len, different))
    ids = torch.tensor([list(prompt) + [0] * (width - len(prompt)) for prompt in different])
    read = KeyValueCache(model, len(different), width)
    last = torch.tensor([len(prompt) - 1 for prompt in different])
    logits = model.forward(ids, torch.zeros(len(different), dtype=torch.long), read, last)
    of = torch.tensor([different.index(tuple(active.row.prompt)) for active in going])
    for mine, theirs in ((cache.keys, read.keys), (cache.values, read.values)):
        for target, source in zip(mine, theirs, strict=True):
            target[:, :, :width] = source[of]
    return logits[of]


def _read_ahead(
    model: SmallModel,
    going: Sequence[_ActiveRow],
    cache: KeyValueCache,
    common: NgramTable,
    most: int,
) -> torch.Tensor:
    """Reads each row's last token and its proposed tokens. Returns logits (rows, 1 + proposed
    tokens, vocabulary).
    """
    import torch

    for active in going:
        active.guess = propose_tokens(
            active.tokens, active.table, common, min(most, active.remaining - 1)
        )
    width = 1 + max(len(active.guess) for active in going)
    ids = torch.tensor(
        [
            [active.tokens[-1], *active.guess] + [0] * (width - 1 - len(active.guess))
            for active in going
        ]
    )
    starts = torch.tensor([len(active.tokens) - 1 for active in going])
    return model.forward(ids, starts, cache)


def _keep_agreeing_draws(
    going: Sequence[_ActiveRow],
    logits: torch.Tensor,
    ends: frozenset[int],
    spell: Spell,
    started: float,
) -> None:
    """Draws a token at every position read, and appends a row's draws up to the first that
    differs from its proposal.
    """
    tokens, logprobs = _draw_tokens(going, logits)
    for active, drawn, probable in zip(going, tokens.tolist(), logprobs.tolist(), strict=True):
        for position, (token, logprob) in enumerate(zip(drawn, probable, strict=True)):
            active.tokens.append(token)
            active.table.grow(active.tokens)
            active.row.take(token, logprob, ends, spell)
            if (
                active.row.finish is not None
                or position >= len(active.guess)
                or active.guess[position] != token
            ):
                break
        active.row.latency = time.monotonic() - started


def _draw_tokens(
    going: Sequence[_ActiveRow], logits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and log-probs, both (rows, places), as `Chooser` draws them: the inverse of the cumulative
    distribution.
    """
    import torch

    width = logits.shape[1]
    temperature = torch.tensor([active.row.sampling.temperature or 1.0 for active in going])[
        :, None, None
    ]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    greedy = torch.tensor([active.row.sampling.temperature == 0.0 for active in going])
    best = logprobs.argmax(dim=-1)
    if bool(greedy.all()):
        tokens = best
    else:
        # Each position has its random number, whether it is read one by one or ahead.
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        aim = torch.zeros((len(going), width, 1), dtype=torch.float64)
        for index, active in enumerate(going):
            uniform = active.uniform[len(active.row.token_ids) : len(active.row.token_ids) + width]
            aim[index, : len(uniform), 0] = uniform
        drawn = torch.searchsorted(cumulative, aim * cumulative[..., -1:], right=True).squeeze(-1)
        tokens = torch.where(greedy[:, None], best, drawn.clamp_(max=logits.shape[-1] - 1))
    return tokens, logprobs.gather(-1, tokens[..., None]).squeeze(-1)


def _without_ended(going: list[_ActiveRow], cache: KeyValueCache) -> list[_ActiveRow]:
    """Rows that have ended leave the batch."""
    import torch

    remaining = [index for index, active in enumerate(going) if active.row.finish is None]
    if len(remaining) < len(going) and remaining:
        cache.keep(torch.tensor(remaining))
    return [going[index] for index in remaining]
