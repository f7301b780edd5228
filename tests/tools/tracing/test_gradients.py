"""Gradients that the tracer works out node by node are those of torch's own engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.tools.tracing.pretended_gpu import gradients


class Doubled(torch.autograd.Function):
    """A Function of Python with two outputs, one of which is seldom used."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        return x * 2, x * x

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return first * 2 + second * 2 * x


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(4)
    return torch.randn(5, 7, requires_grad=True), torch.randn(7, 3, requires_grad=True)


def loss_of(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    first, second = torch.softmax(x @ w, -1).split([1, 2], dim=1)
    return (first.log() * x.mean(1, keepdim=True)).sum() + second.square().sum()


def test_they_are_torch_s_own() -> None:
    x, w = leaves()
    ours, theirs = gradients.grad(loss_of(x, w), [x, w]), torch.autograd.grad(loss_of(x, w), [x, w])
    torch.testing.assert_close(ours, theirs)


def test_of_a_function_of_python_what_did_not_arrive_is_zero() -> None:
    x, _ = leaves()
    (ours,) = gradients.grad(Doubled.apply(x)[1].sum(), x)
    torch.testing.assert_close(ours, 2 * x.detach())


def test_twice_and_of_what_is_no_leaf() -> None:
    x, _ = leaves()
    y = x * 3
    (once,) = gradients.grad((y**3).sum(), y, create_graph=True)
    (twice,) = gradients.grad(once.sum(), x)
    torch.testing.assert_close(once, 3 * y.square())
    torch.testing.assert_close(twice, 18 * y.detach())


def test_backward_adds_to_the_leaves() -> None:
    (x, w), (x2, w2) = leaves(), leaves()
    for _ in range(2):
        gradients.backward(loss_of(x, w))
        loss_of(x2, w2).backward()
    torch.testing.assert_close((x.grad, w.grad), (x2.grad, w2.grad))


def test_what_is_not_used_is_an_error_or_none_or_zeros() -> None:
    x, w = leaves()
    with pytest.raises(RuntimeError, match="not have been used"):
        gradients.grad(x.sum(), [x, w])
    assert gradients.grad(x.sum(), [x, w], allow_unused=True)[1] is None
    assert not gradients.grad(x.sum(), [x, w], materialize_grads=True)[1].any()


def test_only_a_scalar_begins_by_itself() -> None:
    x, _ = leaves()
    with pytest.raises(RuntimeError, match="scalar"):
        gradients.grad(x * 2, x)
    (given,) = gradients.grad(x * 2, x, torch.full_like(x, 0.5))
    assert bool((given == 1).all())
