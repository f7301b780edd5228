"""Logits to tokens: each row with its own sampling and its own seed, and the log-prob of the distribution really
sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.policies.base import Sampling

if TYPE_CHECKING:
    import torch


class TokenSampler:
    """Draws tokens by inverting the cumulative distribution, with a uniform number per token.

    Each row has its own generator, so a row's tokens do not depend on the other rows.
    """

    def __init__(
        self,
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
        room: int,
        prompts: Sequence[Sequence[int]],
        device: torch.device,
    ) -> None:
        import torch

        draws = [
            torch.rand(room, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            for seed in seeds
        ]
        self._uniform = torch.stack(draws).to(device)
        self._samplings = list(samplings)
        self._prompts = list(prompts)
        self._device = device
        self._used_tokens: torch.Tensor | None = None
        self._set_columns()

    def keep(self, rows: torch.Tensor) -> None:
        """Keeps only the rows with these indices."""
        indices = rows.tolist()
        self._uniform = self._uniform[rows]
        self._samplings = [self._samplings[index] for index in indices]
        self._used_tokens = None if self._used_tokens is None else self._used_tokens[rows]
        self._set_columns()

    def choose(self, logits: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`logits` (rows, vocabulary) -> tokens (rows,) and their log-probs (rows,).

        A greedy row's are at temperature 1.
        """
        import torch

        logits = logits.float()
        if self._penalises:
            logits = self._penalised(logits)
        scaled = logits / self._temperature
        if self._truncates:
            scaled = self._truncated(scaled)
        logprobs = torch.log_softmax(scaled, dim=-1)
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        # Inverse of the cumulative distribution; the total is not exactly 1.
        aim = self._uniform[:, step : step + 1] * cumulative[:, -1:]
        drawn = (
            torch.searchsorted(cumulative, aim, right=True)
            .squeeze(-1)
            .clamp_(max=logits.shape[-1] - 1)
        )
        tokens = torch.where(self._greedy, logprobs.argmax(dim=-1), drawn)
        if self._used_tokens is not None:
            self._used_tokens.scatter_(1, tokens[:, None], True)
        return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)

    def _set_columns(self) -> None:
        import torch

        def column(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, device=self._device)[:, None]

        samplings = self._samplings
        self._greedy = torch.tensor(
            [sampling.temperature == 0.0 for sampling in samplings], device=self._device
        )
        self._temperature = column([sampling.temperature or 1.0 for sampling in samplings])
        self._penalty = column([sampling.repetition_penalty for sampling in samplings])
        self._top_p = column([sampling.top_p for sampling in samplings])
        self._min_p = column([sampling.min_p for sampling in samplings])
        self._top_k = column([float(sampling.top_k or 1 << 30) for sampling in samplings])
        self._penalises = any(sampling.repetition_penalty != 1.0 for sampling in samplings)
        self._truncates = any(
            sampling.top_k is not None or sampling.top_p < 1.0 or sampling.min_p > 0.0
            for sampling in samplings
        )

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        """Tokens of the prompt and of the answer so far, as transformers' own repetition penalty counts them."""
        import torch

        if self._used_tokens is None:
            self._used_tokens = torch.zeros(logits.shape, dtype=torch.bool, device=self._device)
            for row, prompt in enumerate(self._prompts):
                self._used_tokens[row, torch.tensor(list(prompt), device=self._device)] = True
        lowered = torch.where(logits > 0, logits / self._penalty, logits * self._penalty)
        return torch.where(self._used_tokens, lowered, logits)

    def _truncated(self, scaled: torch.Tensor) -> torch.Tensor:
        """Applies top-k, then top-p and min-p to the remaining tokens; the likeliest token always
        stays.
        """
        import torch

        # Sorted by probability, so that each truncation is a prefix.
        ordered, order = scaled.sort(dim=-1, descending=True)
        rank = torch.arange(ordered.shape[-1], device=self._device)[None]
        ordered = ordered.masked_fill(rank >= self._top_k, float("-inf"))
        share = ordered.softmax(dim=-1)
        before = share.cumsum(dim=-1) - share
        out = (before >= self._top_p) | (share < self._min_p * share[:, :1])
        out[:, 0] = False
        ordered = ordered.masked_fill(out, float("-inf"))
        return torch.full_like(scaled, float("-inf")).scatter_(1, order, ordered)
