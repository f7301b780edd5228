"""Drawing several tokens a step, exactly: what probably follows is looked up and read along, and kept as far as the
draws agree with it.

Each token is still drawn from the model's own distribution with the row's own number for its place, so ids and
log-probs are those of drawing one token a step. Only the number of steps changes: a repair copies most of its code from
the prompt, and kernels resemble each other.
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
"""Tokens looked up at most, by the number of rows up to which that pays; one row waits for memory, many for
arithmetic.
"""
TOKENS_AHEAD_OF_MANY_ROWS = 3
MAX_NGRAM_TOKENS = 3
MAX_NGRAMS = 200_000
"""Keys of earlier answers that are kept."""


def fits_lookahead(sampling: Sampling) -> bool:
    """The model's own distribution at any temperature, or greedily, without stop strings."""
    plain = sampling.top_p == 1.0 and sampling.top_k is None and sampling.min_p == 0.0
    return plain and sampling.repetition_penalty == 1.0 and not sampling.stop


class NgramTable:
    """A table of the token that followed the last few, most recently: of one row, or of all answers so far."""

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
        """Adds a whole answer."""
        if len(self._after) > MAX_NGRAMS:
            self._after.clear()
        for end in range(1, len(tokens)):
            self._learn(tokens, end)

    def after(self, tokens: Sequence[int], width: int) -> int | None:
        """The token that followed the last `width` of these tokens when they were seen last, None for never."""
        return self._after.get(tuple(tokens[-width:]))


def propose_tokens(
    tokens: Sequence[int], own: NgramTable, common: NgramTable, most: int
) -> list[int]:
    """Returns at most `most` tokens that probably follow: by the longest key that is known, the row's own before all
    others'.
    """
    tail = list(tokens[-MAX_NGRAM_TOKENS:])
    found: list[int] = []
    while len(found) < most:
        for width in range(MAX_NGRAM_TOKENS, 1, -1):
            token = own.after(tail, width)
            token = common.after(tail, width) if token is None else token
            if token is not None:
                break
        else:
            break
        found.append(token)
        tail = [*tail[1 - MAX_NGRAM_TOKENS :], token]
    return found


class _Going:
    """One row on its way: what the cache holds is all but the last token."""

    def __init__(self, row: SequenceInDecoding, place: int) -> None:
        import torch

        self.row, self.place = row, place
        self.tokens = list(row.prompt)
        self.own = NgramTable(self.tokens)
        generator = torch.Generator().manual_seed(row.seed)
        self.uniform = torch.rand(row.limit, generator=generator, dtype=torch.float64)
        self.guess: list[int] = []

    @property
    def left(self) -> int:
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
    """Fills the rows; each must fit (`fits_lookahead`). Returns how many steps it took.

    most: tokens looked up at most. between: called before each step; what it raises ends the drawing.
    """
    import torch

    started = time.monotonic()
    going = [_Going(row, place) for place, row in enumerate(rows)]
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
            for own in going:
                if own.row.finish is not None:
                    common.remember(own.row.token_ids)
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


def _read_prompts(model: SmallModel, going: Sequence[_Going], cache: KeyValueCache) -> torch.Tensor:
    """Logits after each prompt, (rows, vocabulary). Equal prompts are read once."""
    import torch

    different = list(dict.fromkeys(tuple(own.row.prompt) for own in going))
    width = max(map(len, different))
    ids = torch.tensor([list(prompt) + [0] * (width - len(prompt)) for prompt in different])
    read = KeyValueCache(model, len(different), width)
    last = torch.tensor([len(prompt) - 1 for prompt in different])
    logits = model.forward(ids, torch.zeros(len(different), dtype=torch.long), read, last)
    of = torch.tensor([different.index(tuple(own.row.prompt)) for own in going])
    for mine, theirs in ((cache.keys, read.keys), (cache.values, read.values)):
        for target, source in zip(mine, theirs, strict=True):
            target[:, :, :width] = source[of]
    return logits[of]


def _read_ahead(
    model: SmallModel, going: Sequence[_Going], cache: KeyValueCache, common: NgramTable, most: int
) -> torch.Tensor:
    """Reads each row's last token and what probably follows it. Logits (rows, 1 + tokens looked up, vocabulary)."""
    import torch

    for own in going:
        own.guess = propose_tokens(own.tokens, own.own, common, min(most, own.left - 1))
    width = 1 + max(len(own.guess) for own in going)
    ids = torch.tensor(
        [[own.tokens[-1], *own.guess] + [0] * (width - 1 - len(own.guess)) for own in going]
    )
    starts = torch.tensor([len(own.tokens) - 1 for own in going])
    return model.forward(ids, starts, cache)


def _keep_agreeing_draws(
    going: Sequence[_Going],
    logits: torch.Tensor,
    ends: frozenset[int],
    spell: Spell,
    started: float,
) -> None:
    """Draws for every place that was read, and keeps a row's draws up to the first that is not what was looked up."""
    tokens, logprobs = _draw_tokens(going, logits)
    for own, drawn, probable in zip(going, tokens.tolist(), logprobs.tolist(), strict=True):
        for place, (token, logprob) in enumerate(zip(drawn, probable, strict=True)):
            own.tokens.append(token)
            own.own.grow(own.tokens)
            own.row.take(token, logprob, ends, spell)
            if own.row.finish is not None or place >= len(own.guess) or own.guess[place] != token:
                break
        own.row.latency = time.monotonic() - started


def _draw_tokens(
    going: Sequence[_Going], logits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and log-probs, both (rows, places), as `Chooser` draws them: the inverse of the cumulative
    distribution.
    """
    import torch

    width = logits.shape[1]
    temperature = torch.tensor([own.row.sampling.temperature or 1.0 for own in going])[
        :, None, None
    ]
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    greedy = torch.tensor([own.row.sampling.temperature == 0.0 for own in going])
    best = logprobs.argmax(dim=-1)
    if bool(greedy.all()):
        tokens = best
    else:
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        aim = torch.zeros((len(going), width, 1), dtype=torch.float64)
        for place, own in enumerate(going):
            given = own.uniform[len(own.row.token_ids) : len(own.row.token_ids) + width]
            aim[place, : len(given), 0] = given
        drawn = torch.searchsorted(cumulative, aim * cumulative[..., -1:], right=True).squeeze(-1)
        tokens = torch.where(greedy[:, None], best, drawn.clamp_(max=logits.shape[-1] - 1))
    return tokens, logprobs.gather(-1, tokens[..., None]).squeeze(-1)


def _without_ended(going: list[_Going], cache: KeyValueCache) -> list[_Going]:
    """Rows that have ended leave the batch."""
    import torch

    left = [place for place, own in enumerate(going) if own.row.finish is None]
    if len(left) < len(going) and left:
        cache.keep(torch.tensor(left))
    return [going[place] for place in left]
