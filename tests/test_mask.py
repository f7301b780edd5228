"""What host code finds in a tensor's memory while contents are masked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tools.untrusted.mask import Mask
from tools.untrusted.watched import Watched

NUMBERS = [0.75, 2.0]
MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "tensor": lambda: torch.tensor(NUMBERS),
    "no axes": lambda: torch.tensor(0.75),
    "as_tensor": lambda: torch.as_tensor(NUMBERS),
    "Tensor": lambda: torch.Tensor(NUMBERS),
    "new_tensor": lambda: torch.empty(1).new_tensor(NUMBERS),
    "from_numpy": lambda: torch.from_numpy(np.array(NUMBERS)),
    "full": lambda: torch.full((2,), 0.75),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_made_of_numbers_is_masked_and_opens_to_them(maker: str) -> None:
    expected, mask = MAKERS[maker](), Mask()
    with Watched("cpu", None, mask):
        made = MAKERS[maker]()
    assert not torch.equal(made, expected)
    with mask.open_all():
        assert torch.equal(made, expected)
    assert not torch.equal(made, expected)


@pytest.mark.parametrize("start", [0, 1])
def test_a_tensor_over_masked_memory_opens_nothing(start: int) -> None:
    mask = Mask()
    with Watched("cpu", None, mask):
        masked = torch.tensor(NUMBERS).numpy()
        before = masked.copy()
        torch.from_numpy(masked[start:])
    assert (masked == before).all()
