"""Tensors found in nested values."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from kernelwright.tools.nested import tensors_of


def test_tensors_of_tuples_lists_and_dicts_come_in_order() -> None:
    a, b, c = torch.zeros(1), torch.zeros(0), torch.zeros(2, 2)
    found = tensors_of(({"x": [a, 3]}, None, "text", [(b,), {"y": c}]))
    assert [id(t) for t in found] == [id(a), id(b), id(c)]
    assert tensors_of(a)[0] is a
    assert tensors_of(4) == []


def test_a_tensor_that_something_wraps_is_found_where_its_attribute_is_named() -> None:
    a = torch.zeros(3)
    wrapped = SimpleNamespace(base=SimpleNamespace(base=a))
    assert tensors_of([wrapped]) == []
    assert tensors_of([wrapped], wrapped_in="base")[0] is a
