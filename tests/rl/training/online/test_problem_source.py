"""Which problems a step is trained on."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.rl.training.online.problem_source import ProblemSource, held_out  # noqa: E402


# ---------------------------------------------------------------- problems, and what is refused
def test_the_problems_of_a_step_are_a_function_of_the_step(problems):
    one, other = ProblemSource((problems, "synth"), 3), ProblemSource((problems, "synth"), 3)
    other.at(5, 4)
    assert [p.hash for p in one.at(2, 4)] == [p.hash for p in other.at(2, 4)]
    assert [p.hash for p in one.at(2, 4)] != [p.hash for p in one.at(3, 4)]


def test_generated_problems_never_come_twice_and_held_out_ones_are_of_another_split():
    source = ProblemSource(("synth",), 0)
    hashes = [p.hash for step in range(4) for p in source.at(step, 8)]
    assert len(set(hashes)) == 32
    assert not set(hashes) & {p.hash for p in held_out(("synth:depth",), 8, 0)["synth:depth"]}
    with pytest.raises(InputError, match="choose synth, synth:train"):
        ProblemSource(("synth:nothing",), 0)


def test_a_stream_that_is_named_twice_gives_twice_as_many():
    found = [
        p.name.split("/")[1]
        for p in ProblemSource(("synth", "synth:depth", "synth:depth"), 0).at(0, 6)
    ]
    assert found.count("held_out_depth") == 4
    assert (
        len({p.hash for p in ProblemSource(("synth", "synth:depth", "synth:depth"), 0).at(0, 12)})
        == 12
    )


def test_problems_in_the_place_of_flat_groups_are_others_and_come_at_once(problems):
    one, other = ProblemSource(("synth", problems), 3), ProblemSource(("synth", problems), 3)
    found = [p.hash for p in one.replacements(40, 4)]
    assert found == [p.hash for p in other.replacements(40, 4)]
    assert not set(found[:2]) & {p.hash for step in range(41) for p in one.at(step, 4)[:2]}
