"""Tensors found in nested values."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from kernelwright.tools.nested import leaf_names, put_together, take_apart, tensors_of


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


def test_arguments_with_tensors_inside_are_taken_apart_and_put_together_again() -> None:
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    arguments = [a, [1, 2], [b, ({"left": c, "right": None}, 5)], {"names": "alone"}]
    leaves, form = take_apart(arguments)
    assert list(map(id, leaves)) == list(map(id, (a, arguments[1], b, c, None, 5, arguments[3])))
    assert leaf_names(form) == ["0", "1", "2[0]", "2[1][0][left]", "2[1][0][right]", "2[1][1]", "3"]
    again = put_together(form, leaves)
    assert again == arguments
    assert again[2] is not arguments[2]
