"""How a step's rows are shared out: between processes, and between the passes of each."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("torch")

from kernelwright.rl.training.grpo.rows import (
    EMPTY_COMPLETION,
    ScoredCompletion,
    split_into_micro_batches,
)

CASES = list(itertools.product(range(1, 12), (1, 3, 4), (1, 2, 3)))
"""Rows, parts, processes."""


def some(count: int) -> list[ScoredCompletion]:
    return [ScoredCompletion((1,) * (1 + number % 3), (2,) * (1 + number), (0.0,) * (1 + number),
        float(number)) for number in range(count)]  # fmt: skip


@pytest.mark.parametrize(("count", "parts", "world"), CASES)
def test_every_process_brings_as_many_rows_to_a_part(count, parts, world):
    """trl gathers a figure a row: with one row more in one of two processes, gloo aborted and two GPUs stood still."""
    shares = [
        split_into_micro_batches(some(count), parts, "dapo", rank, world) for rank in range(world)
    ]
    for same in zip(*shares, strict=True):
        assert len({len(part.rows) for part in same}) == 1
    shared = [
        row
        for share in shares
        for part in share
        for row in part.rows
        if row is not EMPTY_COMPLETION
    ]
    assert sorted(row.advantage for row in shared) == [float(number) for number in range(count)]


@pytest.mark.parametrize(("count", "parts", "world"), CASES)
def test_each_row_weighs_the_same_wherever_it_is(count, parts, world):
    """A mean over a part's rows, times the part's weight, over all parts: one share of the batch a row."""
    for rank in range(world):
        for part in split_into_micro_batches(some(count), parts, "grpo", rank, world):
            for row in part.rows:
                if row is not EMPTY_COMPLETION:
                    assert part.weight / len(part.rows) / (parts * world) == pytest.approx(
                        1 / count
                    )
