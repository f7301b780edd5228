"""`rl evaluate --against`: two evaluations are compared problem by problem, on the problems that they share."""

import json

import pytest

from kernelwright.errors import InputError
from kernelwright.rl.cli import main
from kernelwright.rl.evaluating.comparing import (
    RecordedEvaluation,
    compare_evaluations,
    read_earlier,
)
from kernelwright.rl.evaluating.page import format_comparison
from kernelwright.rl.evaluating.rollouts import Rollout, RolloutTurn
from tests.rl.novice import KERNEL, OPERATIONS, write_problems


def rollout(name: str, sample: int, *right: bool) -> Rollout:
    turns = tuple(RolloutTurn(compiled=True, correct=correct) for correct in right)
    return Rollout(
        trajectory_id=sample,
        problem=name,
        family="",
        sample=sample,
        finished=True,
        stop_reason="",
        turns=turns,
    )


def evaluation(
    where: str, right: dict[str, list[tuple[bool, ...]]], **settings
) -> RecordedEvaluation:
    """right: for each problem its samples, and of a sample whether each turn was right."""
    rollouts = {
        name: [rollout(name, number, *turns) for number, turns in enumerate(samples)]
        for name, samples in right.items()
    }
    turns = max(len(turns) for samples in right.values() for turns in samples)
    return RecordedEvaluation(
        where, f"policy of {where}", turns, settings, {name: name for name in right}, rollouts
    )


NO, YES = (False,), (True,)


def test_the_difference_is_paired_by_problem_and_says_which_were_won_and_lost():
    before = evaluation("before", {"a": [NO, NO], "b": [YES, NO], "c": [YES, YES], "d": [NO, NO]})
    after = evaluation("after", {"a": [YES, YES], "b": [YES, NO], "c": [YES, NO], "d": [YES, NO]})
    compared = compare_evaluations(before, after)
    assert [(one.problem, one.before, one.after) for one in compared.won] == [
        ("a", 0.0, 1.0),
        ("d", 0.0, 0.5),
    ]
    assert [one.problem for one in compared.lost] == ["c"]
    one, two = compared.passes
    assert (one.k, one.before, one.after, one.difference) == (1, 0.375, 0.625, 0.25)
    assert one.low <= 0.25 <= one.high
    assert (two.k, two.before, two.after) == (2, 0.5, 1.0)
    assert not compared.is_worse


def test_a_fall_that_chance_does_not_explain_is_worse():
    names = [f"p{number}" for number in range(20)]
    before = evaluation("before", {name: [YES] for name in names})
    after = evaluation(
        "after", {name: [NO] for name in names[:15]} | {name: [YES] for name in names[15:]}
    )
    assert compare_evaluations(before, after).is_worse
    assert not compare_evaluations(after, before).is_worse
    assert not compare_evaluations(before, before).is_worse


def test_only_shared_problems_count_and_the_others_are_counted():
    before = evaluation("before", {"a": [YES], "b": [NO], "c": [NO]})
    compared = compare_evaluations(before, evaluation("after", {"a": [YES], "d": [YES]}))
    assert (compared.shared, compared.only_before, compared.only_after) == (1, 2, 1)
    assert compared.pass_at_1.difference == 0.0
    assert "1 shared problems (2 only before and 1 only after are left out)" in "\n".join(
        format_comparison(compared)
    )
    with pytest.raises(InputError, match="no problem has a finished rollout in both"):
        compare_evaluations(before, evaluation("after", {"d": [YES]}))


def test_other_settings_are_named_and_the_fewer_turns_count():
    before = evaluation("before", {"a": [(False, True)]}, temperature=1.0, device="cpu")
    compared = compare_evaluations(
        before, evaluation("after", {"a": [NO]}, temperature=1.6, device="cpu")
    )
    assert compared.pass_at_1.turns == 1
    assert compared.pass_at_1.before == 0.0
    assert len(compared.remarks) == 2
    assert "turns differ (2 and 1): compared within 1" in compared.remarks
    assert "temperature differs: 1.0 before, 1.6 after" in compared.remarks


def script(path, right: set[str]):
    """A policy that answers the named problems rightly and all others wrongly."""
    parts = [
        {
            "when": f"return {reference}",
            "answers": [KERNEL.format(good if name in right else bad)] * 4,
        }
        for name, (reference, good, bad) in OPERATIONS.items()
    ]
    path.write_text(json.dumps({"parts": parts}))
    return f"scripted:{path}"


def evaluate(capsys, tmp_path, policy: str, suite: str, out: str, *more: str):
    words = [
        "evaluate",
        "--policy",
        policy,
        "--suite",
        suite,
        "--turns",
        "1",
        "--device",
        "cpu",
        "--workers",
        "1",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out", str(tmp_path / out), *more])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.mark.slow
def test_the_command_compares_with_a_folder_or_a_database_and_refuses_what_shares_nothing(
    tmp_path, capsys
):
    suite = str(write_problems(tmp_path / "toys"))
    weak, strong = (
        script(tmp_path / "weak.json", set()),
        script(tmp_path / "strong.json", set(OPERATIONS)),
    )
    assert evaluate(capsys, tmp_path, weak, suite, "before")[0] == 0
    code, out, _ = evaluate(
        capsys, tmp_path, strong, suite, "after", "--against", str(tmp_path / "before"), "--json"
    )
    compared = json.loads(out)["comparison"]
    assert (
        code,
        compared["shared"],
        len(compared["won"]),
        compared["passes"][0]["difference"],
    ) == (0, 3, 3, 1.0)
    assert json.loads((tmp_path / "after" / "comparison.json").read_text()) == compared
    assert "Won: " in (tmp_path / "after" / "comparison.md").read_text()

    database = str(tmp_path / "after" / "rollouts.db")
    code, out, _ = evaluate(capsys, tmp_path, weak, suite, "before", "--against", database)
    assert code == 1, "pass@1 fell from 100 to 0 %"
    assert "lost  3" in out

    refused = evaluate(
        capsys, tmp_path, weak, "catalogue", "other", "--limit", "1", "--against", database
    )
    assert (refused[0], refused[2].count("\n")) == (2, 1)
    assert "none of its 3 problems is among the 1 of this suite" in refused[2]
    assert not (tmp_path / "other").exists()
    with pytest.raises(InputError, match="there is no evaluation"):
        read_earlier(tmp_path / "toys")
