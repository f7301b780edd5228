"""What a reference sorts has one answer where elements are equal."""

import pytest
import torch

from kernelwright.tools.references.seeds import stable_sorts

CALLS = {
    "sort": lambda x: torch.sort(x, dim=-1, descending=True)[1],
    "sort by place": lambda x: torch.sort(x, -1, True)[1],
    "method": lambda x: x.sort().indices,
    "method by place": lambda x: x.sort(-1, descending=True)[1],
    "argsort": lambda x: torch.argsort(x, descending=True),
    "argsort method": lambda x: x.argsort(-1, True),
}


@pytest.mark.parametrize("name", CALLS)
def test_equal_elements_keep_their_order(name: str):
    rows = torch.zeros(3, 72)
    with stable_sorts():
        places = CALLS[name](rows)
    assert torch.equal(places, torch.arange(72).expand(3, 72))


def test_other_elements_are_sorted_as_ever():
    x = torch.randn(4, 9)
    with stable_sorts():
        values, places = torch.sort(x, 0, True)
    expected = torch.sort(x, dim=0, descending=True)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)
