"""Host code may read tensors whose values follow from numbers, until something may have written to them."""

from __future__ import annotations

from typing import Any

import pytest

from kernelwright.tools.report import Fault

LAUNCH = "softmax_kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=4096)"


def _forward(*lines: str) -> str:
    body = "\n        ".join(("y = torch.empty_like(x)", *lines))
    return f"""
    def forward(self, x):
        {body}
        return y
    """


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        ("rates = [r.item() for r in torch.linspace(0, 0.1, 3)]", "assert 0.09 < rates[2] < 0.11", LAUNCH),
        ("assert int(torch.arange(7, device='cuda').sum()) == 21", LAUNCH),
        ("t = torch.full((4,), 3.0)", "assert float((t * 2)[1]) == 6.0", LAUNCH),
        ("t = torch.ones(2).to(x.device)", "assert t.is_cuda and t[1].item() == 1", LAUNCH),
        ("import copy", "a = copy.deepcopy(nn.Linear(3, 5)).cuda()", "assert a.weight.shape == (5, 3)", LAUNCH),
    ],
)  # fmt: skip
def test_what_follows_from_numbers_is_read(offline: Any, lines: tuple[str, ...]) -> None:
    result = offline.compiled(offline.softmax(_forward(*lines)))
    assert result.failure is None, result.failure


@pytest.mark.parametrize(
    "lines",
    [
        ("t = torch.zeros(3, device='cuda')", "t[0:2].fill_(1)", "assert t[0].item() >= 0", LAUNCH),
        ("t = torch.zeros(3, device='cuda')", "one = t[0]", "t[0:2].copy_(x[0, :2])", "assert one.item() >= 0", LAUNCH),
        ("t = torch.zeros(x.shape, device='cuda')[:4, :4]", LAUNCH.replace("y, x.shape", "t, x.shape"),
         "assert t[0, 0].item() >= 0"),
        ("t = torch.zeros(4, 4, device='cuda')", "first = t[0, 0]", LAUNCH.replace("y, x.shape", "t, x.shape"),
         "assert first.item() >= 0"),
        ("t = torch.rand(3)", "assert t[0].item() >= 0", LAUNCH),
        ("assert x[0, 0].item() < 9", LAUNCH),
    ],
)  # fmt: skip
def test_what_may_have_been_written_to_is_not(offline: Any, lines: tuple[str, ...]) -> None:
    failure = offline.compiled(offline.softmax(_forward(*lines))).failure
    assert failure is not None
    assert failure.fault is Fault.UNTRACEABLE
