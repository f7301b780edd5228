"""Memory between calls, put together of two states."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from kernelwright.tools.replaying.kept_memory import mixture, restore

State = list[torch.Tensor]


def mixtures(states: Sequence[State]) -> Iterator[State]:
    yield from itertools.takewhile(
        lambda mixed: mixed is not None, (mixture(states, n) for n in itertools.count())
    )


def test_a_mixture_has_parts_of_both_states_and_leaves_equal_tensors():
    first, second = torch.arange(64.0), torch.arange(64.0) + 100
    locks = torch.zeros(4, dtype=torch.int32)
    for mixed, same in mixtures([[first, locks], [second, locks.clone()]]):
        assert torch.equal(same, locks)
        assert bool(((mixed == first) | (mixed == second)).all())
        assert not torch.equal(mixed, first)
        assert not torch.equal(mixed, second)


def test_of_several_tensors_each_is_once_of_the_other_state_alone():
    states = [[torch.full((8,), float(n)) for _ in range(3)] for n in (1, 2)]
    alone = [[int(t[0]) for t in mixed] for mixed in mixtures(states)][:3]
    assert alone == [[2, 1, 1], [1, 2, 1], [1, 1, 2]]


def test_equal_states_have_no_mixture():
    state = [torch.randn(5), torch.full((3,), float("nan"))]
    assert [*mixtures([state, [t.clone() for t in state]])] == []


def test_a_state_is_put_back_beside_a_tensor_that_is_expanded():
    """Torch refuses to write into it, and an honest candidate may keep one beside its scratch."""
    scratch = torch.arange(8.0)
    scale = torch.ones(1).expand(8)
    first = [scratch.clone(), scale.clone()]
    second = [scratch + 1, scale.clone()]
    for mixed in mixtures([first, second]):
        restore([scratch, scale], mixed)
        assert torch.equal(scratch, mixed[0])
    spread = torch.zeros(1)
    restore([spread, spread.expand(8)], [torch.ones(1), torch.ones(8)])
    assert spread.item() == 1
