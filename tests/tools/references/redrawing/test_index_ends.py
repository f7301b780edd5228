"""Whole numbers reach both ends of what they index; offsets, permutations and signed numbers stay."""

from __future__ import annotations

import torch

from kernelwright.tools.references.input_distributions import Draw, apply_draw


def test_targets_name_the_first_and_the_last_class():
    logits, targets = torch.randn(40, 67), torch.randint(0, 50, (40,))
    apply_draw(Draw.INDEX_ENDS, [logits, targets])
    assert bool((targets[::4] == 0).all())
    assert bool((targets[1::4] == 66).all())
    assert int((targets == 66).sum()) == 10


def test_offsets_permutations_and_signed_numbers_stay():
    for numbers in (torch.arange(0, 50, 5), torch.randperm(50), torch.randint(-9, 9, (50,))):
        held = numbers.clone()
        apply_draw(Draw.INDEX_ENDS, [torch.randn(60, 60), held])
        assert torch.equal(held, numbers)


def test_without_a_dimension_that_fits_the_largest_number_is_the_last_index():
    numbers = torch.randint(0, 9, (50,))
    largest = int(numbers.max())
    apply_draw(Draw.INDEX_ENDS, [torch.randn(1000), numbers])
    assert int(numbers.max()) == largest
    assert int((numbers == largest).sum()) >= 12
