"""GRPO's advantage over the samples that have a verdict. Importing this module registers `kernel_grpo` with verl."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est


@register_adv_est("kernel_grpo")
def kernel_grpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's own GRPO advantage of the samples with a reward; 0 for those whose reward is NaN, which then weigh nothing
    and are no part of their group's mean and deviation.

    token_level_rewards, response_mask: (samples, tokens). index: the group of each sample.
    """
    scored = ~torch.isnan(token_level_rewards).any(dim=-1)
    advantages = torch.zeros_like(response_mask, dtype=torch.float32)
    if scored.any():
        kept, _ = compute_grpo_outcome_advantage(
            token_level_rewards[scored],
            response_mask[scored],
            np.asarray(index)[scored.cpu().numpy()],
            **settings,
        )
        advantages[scored] = kept.to(advantages.dtype)
    return advantages, advantages
