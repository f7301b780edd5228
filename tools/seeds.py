"""Seeds every generator of a device, without torch.manual_seed: that one imports dynamo (a second) and notes a stack trace at each call."""

from __future__ import annotations


def seed_everything(seed: int) -> None:
    """The CPU's generator and those of all GPUs that have been used."""
    import torch

    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)
