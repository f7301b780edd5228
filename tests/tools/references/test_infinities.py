"""The draw with infinities holds both, also in small tensors."""

from __future__ import annotations

import torch

from kernelwright.tools.references.input_distributions import Draw, apply


def test_small_tensors_hold_an_infinity_of_each_sign_at_every_seed():
    for seed in range(200):
        x = torch.randn(5, 67, generator=torch.Generator().manual_seed(seed))
        apply(Draw.INFINITE, [x])
        assert (x == float("inf")).any(), seed
        assert (x == float("-inf")).any(), seed
        assert x.isfinite().float().mean() > 0.9
        assert not x.isnan().any()


def test_a_mask_of_ones_does_not_become_infinite_as_a_whole():
    x = (torch.arange(400).reshape(20, 20) % 2).float()
    apply(Draw.INFINITE, [x])
    ones_and_noughts = x[torch.arange(20) % 2 == 0]
    assert ones_and_noughts.isfinite().any()


def test_it_is_a_function_of_the_values_alone():
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
    turned = x.t().contiguous()
    apply(Draw.INFINITE, [x, turned])
    assert torch.equal(x.t(), turned)
