"""What the events claim against what the judge's own clock saw: the part of the clock that needs no GPU."""

import pytest

from tools.clock import _within_wall
from tools.results import Cheat, Failed
from tools.timing import MOST_DOUBTED, Block, Samples

HONEST, DELAYED = Block([3.1], seen=3.0), Block([3.1], seen=9.2)
LYING = Block([0.01], seen=3.0)


def test_a_machine_that_delays_all_blocks_but_one_refuses_nobody():
    samples = Samples([DELAYED] * 5 + [HONEST])
    _within_wall(samples)
    assert samples.candidate == [3.1]


def test_a_clock_that_lies_in_every_block_is_a_cheat():
    with pytest.raises(Failed) as refused:
        _within_wall(Samples([LYING] * MOST_DOUBTED))
    assert refused.value.failure.cheat is Cheat.CLOCK
    assert "claim 0.01 ms" in refused.value.failure.message


def test_what_is_claimed_in_a_block_that_cannot_be_believed_is_not_timed():
    samples = Samples([LYING, LYING, LYING, HONEST])
    _within_wall(samples)
    assert samples.candidate == [3.1]


def test_more_blocks_are_taken_while_none_is_believed_and_only_so_many():
    assert Samples([DELAYED]).doubted
    assert Samples([LYING] * (MOST_DOUBTED - 1)).doubted
    assert not Samples([LYING] * MOST_DOUBTED).doubted
    assert not Samples([DELAYED, HONEST, DELAYED]).doubted


def test_a_block_too_short_for_the_judges_clock_is_believed():
    assert Block([0.004, 0.006], seen=-0.2).believed
