"""Credit by hand: returns along the lineage, baselines inside a group, groups of any size."""

from __future__ import annotations

import pytest

from kernelwright.rl.credit.turn_credit import (
    AdvantageBaseline,
    CreditedTurn,
    credit_of_turns,
    returns,
)


def test_a_turn_is_paid_for_what_comes_of_it():
    chain = [
        CreditedTurn(1, None, 0.0, "a"),
        CreditedTurn(2, 1, 0.5, "b"),
        CreditedTurn(3, 2, 1.0, "c"),
    ]
    assert returns(chain, 0.4) == pytest.approx({1: 0.4 * (0.5 + 0.4), 2: 0.9, 3: 1.0})
    assert returns(chain, 0.0) == {1: 0.0, 2: 0.5, 3: 1.0}


def test_of_several_repairs_the_mean_counts():
    tree = [
        CreditedTurn(1, None, 0.0, "a"),
        CreditedTurn(2, 1, 1.0, "b"),
        CreditedTurn(3, 1, 0.0, "b"),
    ]
    assert returns(tree, 0.4)[1] == pytest.approx(0.2)


def test_a_parent_that_is_not_in_the_log_changes_nothing():
    assert returns([CreditedTurn(5, 4, 1.0, "a")], 0.4) == {5: 1.0}


def test_leave_one_out_compares_with_the_others_only():
    found = credit_of_turns(
        [
            CreditedTurn(1, None, 1.0, "a"),
            CreditedTurn(2, None, 0.0, "a"),
            CreditedTurn(3, None, 0.5, "a"),
        ]
    )
    assert {id: c.advantage for id, c in found.items()} == pytest.approx(
        {1: 1.0 - 0.25, 2: 0.0 - 0.75, 3: 0.5 - 0.5}
    )


def test_the_group_mean_compares_with_all():
    found = credit_of_turns(
        [CreditedTurn(1, None, 1.0, "a"), CreditedTurn(2, None, 0.0, "a")],
        baseline=AdvantageBaseline.MEAN,
    )
    assert [found[1].advantage, found[2].advantage] == [0.5, -0.5]


def test_groups_of_different_sizes_keep_to_themselves():
    moves = [
        CreditedTurn(id, None, reward, group)
        for id, reward, group in [
            (1, 1.0, "a"),
            (2, 0.0, "a"),
            (3, 9.0, "b"),
            (4, 7.0, "b"),
            (5, 8.0, "b"),
        ]
    ]
    found = credit_of_turns(moves)
    assert sum(found[id].advantage for id in (1, 2)) == pytest.approx(0.0)
    assert sum(found[id].advantage for id in (3, 4, 5)) == pytest.approx(0.0)
    assert [found[1].group_size, found[3].group_size] == [2, 3]


def test_a_group_that_all_earned_the_same_and_a_group_of_one_have_no_advantage():
    found = credit_of_turns(
        [
            CreditedTurn(1, None, 0.3, "a"),
            CreditedTurn(2, None, 0.3, "a"),
            CreditedTurn(3, None, 5.0, "b"),
        ]
    )
    assert [c.advantage for c in found.values()] == [0.0, 0.0, 0.0]
    assert found[1].spread == 0.0


def test_order_changes_nothing():
    moves = [
        CreditedTurn(id, None if id < 4 else id - 3, id * 0.37 % 1, id % 2) for id in range(1, 9)
    ]
    assert credit_of_turns(moves) == credit_of_turns(moves[::-1])
