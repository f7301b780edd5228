"""`rl data mistakes`: what a policy got wrong becomes a repair row, with the tools' message and an answer that they
found right.
"""

from __future__ import annotations

import pytest

from kernelwright.errors import InputError
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.rl.data.rows import Kind, Split, read_rows
from kernelwright.rl.data.synth.engine.own_mistakes import (
    MistakesRequest,
    collect_mistakes,
    draft_tasks,
)
from kernelwright.rl.data.synth.engine.tasks import tasks

WRONG = "class ModelNew:\n    pass\n"


@pytest.fixture
def policy():
    return ScriptedPolicy([f"```python\n{WRONG}```"] * 64)


@pytest.mark.slow
def test_every_wrong_draft_becomes_a_repair(policy, tmp_path):
    found = collect_mistakes(
        policy, MistakesRequest(samples=2, at_once=2), 2, tmp_path / "out", 1, lambda _: None
    )
    rows = list(read_rows(tmp_path / "out"))
    assert found.repairs == len(rows) == 2
    assert found.right == 0
    for row in rows:
        assert row.kind is Kind.REPAIR
        assert WRONG.strip() in row.prompt
        assert row.correct
        assert "ModelNew" in row.completion
        assert row.completion not in row.prompt
        assert row.provenance.endswith("a draft of its own")
    assert len({row.problem for row in rows}) == 2


def test_drafts_that_are_the_same_are_judged_once(policy):
    assert draft_tasks(policy, MistakesRequest(samples=3), tasks(Split.TRAIN, 2)) == [
        [WRONG],
        [WRONG],
    ]


def test_a_folder_that_holds_something_is_refused(policy, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").touch()
    with pytest.raises(InputError, match="choose another --out"):
        collect_mistakes(policy, MistakesRequest(), 1, tmp_path / "out", 1, lambda _: None)
