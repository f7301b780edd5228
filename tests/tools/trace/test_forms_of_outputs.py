"""How outputs hang together, what memory they share, and whether a problem only moves values."""

from __future__ import annotations

from dataclasses import make_dataclass

import pytest
import torch

from kernelwright.tools.expected.movement import only_moves
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.trace.forms_of_outputs import (
    describe_difference,
    flatten,
    overlaps,
    paths,
    shared_memory,
)


def drawn(reference, *shapes):
    """Two draws of a reference's inputs and outputs."""
    found = []
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(shape, generator=generator) for shape in shapes]
        found.append(ExpectedOutputs(inputs, flatten(reference(*inputs)), None, seed, None))
    return found


def test_a_dict_is_taken_by_its_keys_and_not_in_their_order():
    assert flatten({"b": 1, "a": (2, {"d": 3, "c": 4})}) == [2, 4, 3, 1]
    assert paths({"b": 1, "a": (2, 3)}) == ["[a][0]", "[a][1]", "[b]"]
    answer = make_dataclass("Answer", ["b", "a"])(1, (2, 3))
    assert (flatten(answer), paths(answer)) == ([2, 3, 1], ["[a][0]", "[a][1]", "[b]"])


@pytest.mark.parametrize(
    ("mine", "told"),
    [
        ({"dict": {"low": {"t": 1}, "high": {"t": 2}}}, ""),
        ({"tuple": [{"t": 1}, {"t": 2}]}, "nested otherwise"),
        ({"dict": {"a": {"t": 1}, "high": {"t": 2}}}, "[low]"),
        ({"t": 1}, "returns 1 outputs"),
    ],
)
def test_outputs_that_are_nested_otherwise_are_told(mine, told):
    wanted = {"low": torch.zeros(1), "high": torch.ones(1)}
    found = describe_difference(mine, paths(wanted), flatten(wanted))
    assert (told in found) if told else not found


def test_a_plain_number_among_outputs_is_the_references():
    wanted = (torch.zeros(1), 7, 0.5, None)
    mine = [{"t": 1}, 7, 0.5, None]
    assert not describe_difference(mine, paths(wanted), flatten(wanted))
    assert "is not 7" in describe_difference(
        [{"t": 1}, 8, 0.5, None], paths(wanted), flatten(wanted)
    )
    assert describe_difference(
        [{"t": 1}, 7, {"float": "nan"}, None], paths(wanted), flatten(wanted)
    )
    assert describe_difference(
        [{"t": 1}, 7, {"float": "no number"}, None], paths(wanted), flatten(wanted)
    )


def test_windows_over_one_memory_overlap_and_a_diagonal_does_not():
    memory = torch.zeros(100)
    assert overlaps(memory.unfold(0, 4, 1))
    assert overlaps(memory[:3].expand(5, 3))
    assert not overlaps(memory.unfold(0, 4, 4))
    assert not overlaps(memory.view(10, 10).diagonal())
    assert not overlaps(memory.view(10, 10).t())


def test_parts_beside_each_other_share_no_memory_and_the_same_part_twice_does():
    memory = torch.zeros(4, 6)
    left, right = memory.chunk(2, dim=1)
    assert shared_memory([left, right]) == [None, None]
    assert shared_memory([left, right, memory[1]]) == [None, None, 0]
    assert shared_memory([left.clone(), None, left]) == [None, None, None]


@pytest.mark.parametrize(
    "reference",
    [
        lambda x: x.t().contiguous(),
        lambda x: torch.nn.functional.pad(x, (1, 2), value=3.0),
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.to(torch.bfloat16).float().flip(0),
        lambda x: torch.tril(x),
    ],
)
def test_a_problem_that_only_moves_values_is_known(reference):
    assert only_moves(drawn(reference, (13, 13)))


@pytest.mark.parametrize(
    "reference",
    [
        torch.relu,
        lambda x: torch.nn.functional.max_pool2d(x[None, None], 3, 2)[0, 0],
        lambda x: x.sort(-1).values,
        lambda x: x.amax(1),
        lambda x: x * 2,
        lambda x: torch.ones_like(x),
    ],
)
def test_a_problem_that_chooses_among_values_or_computes_moves_nothing(reference):
    assert not only_moves(drawn(reference, (13, 13)))


def test_what_is_too_large_to_examine_is_not_said_to_move_or_to_compute():
    large = drawn(lambda x: x.t().contiguous(), (1 << 11, (1 << 10) + 1))
    assert only_moves(large) is None
