"""Kernels of several groups become a module that chooses by dtype, rank or extent, with weights of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.agent.shapes.dispatch_text import (
    KernelGroup,
    TensorOfCall,
    condition,
    dispatching_text,
)

KERNELS = """import torch
import torch.nn as nn
from torch import nn


def scale():
    return {scale}


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x, bias=0.0):
        return self.layer(x) * scale() + bias
"""


def tensor(*shape: int, dtype: str = "float32") -> TensorOfCall:
    return TensorOfCall(dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        ([tensor(4, 8)], [tensor(2, 4, 8)], "x.dim() == 2"),
        ([tensor(4), tensor(1, 2, 3, 4)], [tensor(4, 8)], "x.dim() in (1, 4)"),
        ([tensor(4, 8, dtype="bfloat16")], [tensor(4, 8)], "x.dtype == torch.bfloat16"),
        ([tensor(1, 8)], [tensor(4, 8), tensor(64, 8)], "x.shape[0] == 1"),
        ([tensor(1, 8), tensor(2, 8)], [tensor(4, 8)], "x.shape[0] <= 2"),
        ([tensor(16, 8), tensor(8, 8)], [tensor(4, 8)], "x.shape[0] >= 8"),
        (
            [tensor(4, 8, dtype="float16")],
            [tensor(4, 8), tensor(1, 4, 8, dtype="float16"), tensor(1, 4, 8)],
            "x.dtype == torch.float16 and x.dim() == 2",
        ),
        (
            [tensor(1, 8), tensor(9, 8)],
            [tensor(4, 8)],
            "(x.shape[0] == 1) or (x.shape[0] == 9)",
        ),
        (
            [tensor(1, 8, dtype="bfloat16"), tensor(9, 8, dtype="bfloat16")],
            [tensor(9, 8), tensor(4, 8, dtype="bfloat16")],
            "x.dtype == torch.bfloat16 and ((x.shape[0] == 1) or (x.shape[0] == 9))",
        ),
    ],
)
def test_the_condition_is_a_single_fact_where_one_is_enough(
    ours: list[TensorOfCall], theirs: list[TensorOfCall], text: str
):
    assert condition([{"x": t} for t in ours], [{"x": t} for t in theirs]) == text


def test_all_kernels_compute_with_the_weights_of_the_module():
    groups = [
        KernelGroup(shapes=("flat",), source=KERNELS.format(scale=1), calls=({"x": tensor(4, 8)},)),
        KernelGroup(
            shapes=("3 d",), source=KERNELS.format(scale=2), calls=({"x": tensor(1, 4, 8)},)
        ),
    ]
    namespace: dict[str, Any] = {}
    exec(compile(dispatching_text(groups), "candidate.py", "exec"), namespace)
    module = namespace["ModelNew"](8)
    reference = torch.nn.Linear(8, 8)
    module.load_state_dict({f"layer.{k}": v for k, v in reference.state_dict().items()})
    module, reference = module.double(), reference.double()
    x = torch.randn(4, 8, dtype=torch.float64)
    assert torch.equal(module(x, bias=1.0), reference(x) + 1.0)
    assert torch.equal(module(x[None]), reference(x[None]) * 2)


def test_names_that_differ_in_case_alone_give_different_kernels():
    shapes = {"first": tensor(4, 8), "ABc": tensor(1, 4, 8), "Abc": tensor(1, 1, 4, 8)}
    groups = [
        KernelGroup(shapes=(name,), source=KERNELS.format(scale=scale), calls=({"x": shape},))
        for scale, (name, shape) in enumerate(shapes.items(), 1)
    ]
    namespace: dict[str, Any] = {}
    exec(compile(dispatching_text(groups), "candidate.py", "exec"), namespace)
    module, x = namespace["ModelNew"](8), torch.randn(4, 8)
    torch.testing.assert_close(module(x[None]), module(x)[None] * 2)
    torch.testing.assert_close(module(x[None, None]), module(x)[None, None] * 3)


def test_a_single_group_stays_as_it_is():
    group = KernelGroup(shapes=("own",), source=KERNELS, calls=({"x": tensor(4, 8)},))
    assert dispatching_text([group]) == KERNELS
