"""What of a problem may be told to a candidate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec


def test_a_spec_says_what_a_candidate_may_know_and_no_more(offline: Any) -> None:
    spec = input_spec(offline.matmul_problem)
    sent = spec.model_dump(mode="json")
    assert sent["inputs"][0] == {
        "tensor": {"shape": [1024, 1024], "stride": [1024, 1], "dtype": "float32"}
    }
    assert [(o.shape, o.dtype) for o in spec.outputs] == [((1024, 1024), "float32")]
    assert "problem" not in sent
    assert "@" not in str(sent)
    assert input_spec(offline.matmul_problem, {"size": 8}).outputs[0].shape == (8, 8)


def test_a_reference_that_reads_values_is_described_at_small_sizes(offline: Any) -> None:
    source = offline.matmul_problem.source.replace(
        "return a @ b", "return a @ b * a.abs().max().item()"
    )
    spec = input_spec(offline.matmul_problem.model_copy(update={"source": source}))
    assert (spec.tensors, spec.sizes, spec.outputs[0].shape) == ("cpu", {"size": 33}, (33, 33))


def test_whole_numbers_are_described_with_their_bounds(offline: Any) -> None:
    source = offline.matmul_problem.source.replace(
        "torch.randn(size, size)]", "torch.randint(3, 17, (size,))]"
    ).replace("return a @ b", "return a[b % 3]")
    spec = input_spec(offline.matmul_problem.model_copy(update={"source": source}))
    assert spec.inputs[1]["tensor"] == {
        "shape": [1024],
        "stride": [1],
        "dtype": "int64",
        "low": 3,
        "high": 17,
    }


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("kind", "two"), [("LSTM", True), ("GRU", False), ("RNN", True)])
def test_recurrent_layers_are_described_without_going_through_their_steps(
    kind: str, two: bool, first: bool
) -> None:
    source = f"""
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.{kind}(7, 5, num_layers=2, bidirectional={two}, batch_first={first})
    def forward(self, x):
        y, h = self.layer(x)
        return [y, *(h if isinstance(h, tuple) else (h,))]
def get_inputs():
    return [torch.randn(3, 11, 7)]
def get_init_inputs():
    return []
"""
    names: dict[str, Any] = {}
    exec(source, names)
    real = names["Model"]()(torch.randn(3, 11, 7))
    spec = input_spec(Problem(name=kind, source=source))
    assert spec.tensors == "meta"
    assert [o.shape for o in spec.outputs] == [tuple(t.shape) for t in real]
