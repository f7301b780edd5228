"""Measures how far a policy has moved from the one that sampled: effective sample size, KL, and the largest ratio."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import Value

if TYPE_CHECKING:
    import torch

    from kernelwright.rl.training.grpo.rows import ScoredCompletion

SAMPLE_SIZE_METRIC = "drift/effective_sample_size"
"""The name under which it is logged."""
KL_METRIC = "drift/kl"
"""The name under which the KL divergence is logged."""
WORN_EFFECTIVE_SAMPLE_SIZE = 0.3
"""A log with a smaller effective sample size (a share of its rows) is trained on by RFT unless GRPO is asked for."""
MIN_EFFECTIVE_SAMPLE_SIZE = 0.02
"""With less than this share of the rows the importance-weighted gradient is noise: GRPO refuses such a log."""
MIN_ROWS_FOR_SAMPLE_SIZE = 32
"""Rows from which the effective sample size can fall below the minimum; of fewer rows one alone is a larger share."""
MAX_KL_NATS_PER_TOKEN = 0.5
"""Above it the log was sampled by an unrelated policy, whatever the number of rows: GRPO refuses it. A policy some
revisions further is at 0.001 to 0.1; an unrelated model was measured at 7.3."""
MAX_LOGITS_HELD = 1 << 27
"""Logits that are held at once while the drift is measured: half a gigabyte in float32."""


class PolicyDrift(Value):
    """The distance of one policy from the one that sampled the rows."""

    effective: float
    """Effective sample size over the number of rows, 0 to 1: (sum w)^2 / (n sum w^2), w a row's whole ratio (Kong
    1992).
    """
    kl: float
    """Nats a token, estimated on the sampler's tokens: mean of r - 1 - log r, r the token's ratio; never below 0."""
    largest: float
    """The largest absolute log ratio of a token."""
    rows: int

    @property
    def is_worn_out(self) -> bool:
        """Whether importance ratios over this log are noise: too few rows count, or the policies are unrelated."""
        few_count = (
            self.effective < MIN_EFFECTIVE_SAMPLE_SIZE and self.rows >= MIN_ROWS_FOR_SAMPLE_SIZE
        )
        return few_count or self.kl > MAX_KL_NATS_PER_TOKEN

    def figures(self) -> dict[str, float]:
        """The figures under the names by which histories and trackers keep them; KL and log ratios are in nats."""
        return {
            SAMPLE_SIZE_METRIC: self.effective,
            KL_METRIC: self.kl,
            "drift/largest_log_ratio": self.largest,
        }


class DriftSum:
    """Adds rows up, so that a log of any size fits."""

    def __init__(self) -> None:
        self._weights: list[float] = []
        self._kl = self._tokens = self._largest = 0.0

    def add(self, now: torch.Tensor, then: torch.Tensor, mask: torch.Tensor) -> None:
        """Log-probs (rows, tokens) of both policies, and which tokens count. Rows without any are left out."""
        real = mask.sum(dim=1) > 0
        mask = mask[real].float()
        distance = (now[real].float() - then[real].float()) * mask
        self._weights += distance.sum(dim=1).double().tolist()
        capped = distance.clamp(-20.0, 20.0)
        self._kl += float(((capped.exp() - 1.0 - capped) * mask).sum())
        self._tokens += float(mask.sum())
        self._largest = max(self._largest, float(distance.abs().max()) if distance.numel() else 0.0)

    def drift(self) -> PolicyDrift:
        """The drift of the rows that were added; the effective share is (sum w)^2 / (n sum w^2) of their weights."""
        logs = self._weights
        top = max(logs, default=0.0)
        scaled = [math.exp(value - top) for value in logs]
        squares = math.fsum(value * value for value in scaled)
        effective = math.fsum(scaled) ** 2 / squares / len(logs) if logs else 1.0
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
    """The model against the rows' stored log-probs, on evenly spaced rows where there are more than `at_most`."""
    import torch

    count = min(at_most, len(rows))
    spaced = [rows[place * len(rows) // count] for place in range(count)]
    chosen = sorted(spaced, key=lambda row: len(row.prompt_ids) + len(row.completion_ids))
    total, training = DriftSum(), model.training
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
        if part and (len(part) + 1) * (len(row.prompt_ids) + len(row.completion_ids)) > tokens:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _scored(
    model: Any, rows: Sequence[ScoredCompletion], pad: int, temperature: float
) -> tuple[torch.Tensor, ...]:
    """Log-probs now and then, and the mask, each (rows, longest completion)."""
    import torch

    from kernelwright.rl.training.grpo.rows import tensors

    batch = tensors(rows, pad, model.device)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    longest = batch["completion_ids"].size(1)
    logits = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        use_cache=False,
        logits_to_keep=longest + 1,
    ).logits
    logps = torch.log_softmax(logits[:, -longest - 1 : -1].float() / temperature, dim=-1)
    now = logps.gather(-1, batch["completion_ids"][..., None])[..., 0]
    return now, batch["sampling_per_token_logps"], batch["completion_mask"] * batch["tool_mask"]
