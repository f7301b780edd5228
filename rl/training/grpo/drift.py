"""Measures the distance of a policy from the sampling policy: effective sample size, KL, and the
largest log ratio.

Example: two rows of two tokens. The policy gives one token probability 0.8 and the sampler gave
0.4; all other probabilities agree. The rows' weights are 2 and 1, so the effective sample size is
(2 + 1)^2 / (2 * (4 + 1)) = 0.9. The KL is the mean of r - 1 - log r over four tokens, (2 - 1 -
0.693) / 4 = 0.077 nats a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import Value

if TYPE_CHECKING:
    import torch

    from kernelwright.rl.training.grpo.rows import ScoredCompletion

SAMPLE_SIZE_METRIC = "drift/effective_sample_size"
"""Logged name of the effective sample size."""
KL_METRIC = "drift/kl"
"""Logged name of the KL divergence."""
WORN_EFFECTIVE_SAMPLE_SIZE = 0.3
"""Effective sample size (a share of the rows) below which a log is trained on by RFT, unless GRPO
is requested.
"""
MIN_EFFECTIVE_SAMPLE_SIZE = 0.02
"""Effective sample size (a share of the rows) below which GRPO refuses a log: the
importance-weighted gradient is noise.
"""
MIN_ROWS_FOR_SAMPLE_SIZE = 32
"""Number of rows from which the effective sample size can fall below the minimum; of fewer rows a
single row is a larger share.
"""
MAX_KL_NATS_PER_TOKEN = 0.5
"""KL above which an unrelated policy sampled the log, whatever the number of rows; GRPO refuses
such a log. A policy some revisions away is at 0.001 to 0.1; an unrelated model was measured at
7.3.
"""
MAX_LOGITS_HELD = 1 << 27
"""Largest number of logits in memory while the drift is measured: half a gigabyte in float32."""


class PolicyDrift(Value):
    """The distance of a policy from the policy that sampled the rows."""

    effective: float
    """Effective sample size over the number of rows, 0 to 1: (sum w)^2 / (n sum w^2), with w the
    ratio of a whole row (Kong 1992).
    """
    kl: float
    """Nats a token, estimated on the sampler's tokens: mean of r - 1 - log r, with r the token's
    ratio; never below 0.
    """
    largest: float
    """Largest absolute log ratio of a token."""
    rows: int

    @property
    def is_worn_out(self) -> bool:
        """Whether importance ratios on this log are noise: too few rows have weight, or the
        policies are unrelated.
        """
        few_count = (
            self.effective < MIN_EFFECTIVE_SAMPLE_SIZE and self.rows >= MIN_ROWS_FOR_SAMPLE_SIZE
        )
        return few_count or self.kl > MAX_KL_NATS_PER_TOKEN

    def figures(self) -> dict[str, float]:
        """Returns the figures by their logged names; KL and log ratios are in nats."""
        return {
            SAMPLE_SIZE_METRIC: self.effective,
            KL_METRIC: self.kl,
            "drift/largest_log_ratio": self.largest,
        }


class DriftSum:
    """Accumulates the drift over parts of a log of any size."""

    def __init__(self) -> None:
        self._weights: list[float] = []
        self._kl = self._tokens = self._largest = 0.0

    def add(self, now: torch.Tensor, then: torch.Tensor, mask: torch.Tensor) -> None:
        """Adds log-probs (rows, tokens) of both policies; `mask` selects tokens. Rows without a
        selected token are left out.
        """
        is_real = mask.sum(dim=1) > 0
        mask = mask[is_real].float()
        log_ratio = (now[is_real].float() - then[is_real].float()) * mask
        # The ratio of a whole row is the product of its tokens' ratios.
        self._weights += log_ratio.sum(dim=1).double().tolist()
        # The KL estimate r - 1 - log r overflows for large ratios.
        capped = log_ratio.clamp(-20.0, 20.0)
        self._kl += float(((capped.exp() - 1.0 - capped) * mask).sum())
        self._tokens += float(mask.sum())
        if log_ratio.numel():
            self._largest = max(self._largest, float(log_ratio.abs().max()))

    def drift(self) -> PolicyDrift:
        """Returns the drift of all added rows; the effective share is (sum w)^2 / (n sum w^2) of
        their weights.
        """
        logs = self._weights
        # Scaled by the largest weight, which cancels out: exp of a long row's sum would overflow.
        top = max(logs, default=0.0)
        weights = [math.exp(value - top) for value in logs]
        squares = math.fsum(weight * weight for weight in weights)
        effective = math.fsum(weights) ** 2 / squares / len(logs) if logs else 1.0
        return PolicyDrift(
            effective=effective,
            kl=max(self._kl, 0.0) / max(self._tokens, 1.0),
            largest=self._largest,
            rows=len(logs),
        )


def measure_drift(
    model: Any,
    rows: Sequence[ScoredCompletion],
    pad: int,
    temperature: float,
    *,
    at_most: int = 512,
) -> PolicyDrift:
    """Compares the model with the rows' stored log-probs, on at most `at_most` evenly spaced
    rows.
    """
    import torch

    count = min(at_most, len(rows))
    # Evenly spaced rows represent the whole log.
    spaced = [rows[index * len(rows) // count] for index in range(count)]
    chosen = sorted(spaced, key=lambda row: len(row.prompt_ids) + len(row.completion_ids))
    total, training = DriftSum(), model.training
    # The logits of all tokens of a part are in memory at once.
    tokens_at_once = max(512, MAX_LOGITS_HELD // model.config.get_text_config().vocab_size)
    model.eval()
    with torch.no_grad():
        for part in _within(chosen, tokens_at_once):
            now, then, mask = _scored(model, part, pad, temperature)
            total.add(now, then, mask)
    model.train(training)
    return total.drift()


def _within(rows: Sequence[ScoredCompletion], tokens: int) -> Iterator[list[ScoredCompletion]]:
    part: list[ScoredCompletion] = []
    for row in rows:
        # Rows come in ascending length, so the new row is the width of the part.
        if part and (len(part) + 1) * (len(row.prompt_ids) + len(row.completion_ids)) > tokens:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _scored(
    model: Any, rows: Sequence[ScoredCompletion], pad: int, temperature: float
) -> tuple[torch.Tensor, ...]:
    """Returns current and stored log-probs, and the mask, each of shape (rows, longest
    completion).
    """
    import torch

    from kernelwright.rl.training.grpo.rows import tensors

    batch = tensors(rows, pad, model.device)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    # Left padding: positions count from the first real token.
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    longest = batch["completion_ids"].size(1)
    logits = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        use_cache=False,
        logits_to_keep=longest + 1,
    ).logits
    # The logits at a position predict the next token, hence the shift by one.
    logps = torch.log_softmax(logits[:, -longest - 1 : -1].float() / temperature, dim=-1)
    now = logps.gather(-1, batch["completion_ids"][..., None])[..., 0]
    return now, batch["sampling_per_token_logps"], batch["completion_mask"] * batch["tool_mask"]
