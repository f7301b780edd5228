"""Trajectories and batch runs side by side, over real databases."""

import json
from typing import NamedTuple

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.command_line.records.compare import _compared
from kernelwright.agent.comparison.runs import compare_batches
from kernelwright.agent.comparison.tables import (
    describe_divergence,
    run_tables,
    tables_markdown,
    trajectory_tables,
)
from kernelwright.agent.comparison.trajectories import DivergenceKind, compare_trajectories
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.errors import InputError
from kernelwright.policies.base import (
    Completion,
    FinishReason,
    Message,
    Request,
    Role,
    Sampling,
    Usage,
)
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.report import (
    Environment,
    Failure,
    Fault,
    ProfileResult,
    Report,
    Rung,
    Timing,
)

SILU = find_by_name("fused_silu")


def verdict(speedup=None, fault=None, rung=Rung.COMPILE):
    base = Report(problem=SILU.name, problem_hash=SILU.hash, candidate_hash="c", rung=rung)
    if fault is not None:
        return base.with_(failure=Failure(fault=fault, message="no"))
    timing = Timing(
        median=1 / speedup, low=0.9, high=1.1, mean=1.0, std=0.01, minimum=0.9, calls=50
    )
    profile = ProfileResult(device="NVIDIA H200", candidate=timing, speedup=speedup)
    return base.with_(rung=Rung.PROFILE, correct=True, judged_on="NVIDIA H200", profile=profile)


def trajectory(
    store,
    turns,
    *,
    problem=SILU,
    policy="openai:m",
    run_id=None,
    sample=0,
    seed=7,
    forked_from=None,
):
    """turns: (prompt, program, report)."""
    start = TrajectoryStart(problem=problem, policy=policy, options={"seed": seed})
    row = store.begin(start, run_id=run_id, sample=sample, resume=False, forked_from=forked_from)
    first = 0 if forked_from is None else store.candidate(forked_from).candidate.turn + 1
    parent = forked_from
    for number, (prompt, program, report) in enumerate(turns, first):
        request = Request(
            messages=(Message(role=Role.USER, content=prompt),), sampling=Sampling(seed=seed)
        )
        action = Action.DRAFT if parent is None else Action.REPAIR
        made = store.draft(row.id, request, action=action, parent_id=parent, turn=number)
        usage = Usage(prompt_tokens=100, completion_tokens=20, dollars=0.5)
        answer = Completion(
            text=program, finish=FinishReason.STOP, usage=usage, policy=policy, latency=2.0
        )
        store.complete(made.id, answer, program)
        store.judge(made.id, report, tool_seconds=1.0, gpu_seconds=0.25)
        parent = made.id
    store.finish(row.id, "turns", spent={"seconds": 10.0 * len(turns)})
    return row.id


BROKEN = ("p1", "A = 1\n", verdict(fault=Fault.COMPILE))
FAST = ("p2", "A = 2\n", verdict(2.0))


def part(store, one, other):
    return compare_trajectories(store, [one, other]).partings[0]


def test_the_first_turn_that_differs_is_named_with_how_and_why(store):
    first = trajectory(store, [BROKEN, FAST])
    assert part(store, first, trajectory(store, [BROKEN, FAST])).kind is DivergenceKind.SAME
    for turns, kind, turn in [
        ([BROKEN, ("p2", "A = 3\n", verdict(1.0))], DivergenceKind.REPLY, 2),
        ([BROKEN, ("p2", "A  =  2  # the same\n", verdict(2.0))], DivergenceKind.WORDS, 2),
        ([BROKEN, ("other", "A = 2\n", verdict(2.0))], DivergenceKind.PROMPT, 2),
        ([("p1", "A = 1\n", verdict(fault=Fault.TIMEOUT)), FAST], DivergenceKind.VERDICT, 1),
        ([BROKEN], DivergenceKind.GOES_ON, 2),
        ([BROKEN, ("p2", "A = 2\n", verdict(2.1))], DivergenceKind.SAME, None),
    ]:
        found = part(store, first, trajectory(store, turns))
        assert (found.kind, found.turn) == (kind, turn)
    reseeded = part(store, first, trajectory(store, [("p1", "A = 9\n", BROKEN[2])], seed=8))
    assert reseeded.because == ("seed 7 against 8",)
    assert "at turn 1: the same prompt, another program (seed 7 against 8)" in describe_divergence(
        reseeded
    )
    elsewhere = trajectory(store, [BROKEN], problem=find_by_name("vector_add"))
    assert part(store, first, elsewhere).kind is DivergenceKind.PROBLEM


def test_turns_are_aligned_and_what_it_took_is_set_against_the_first(store):
    one = trajectory(store, [BROKEN, FAST])
    two = trajectory(store, [("p1", "A = 2\n", verdict(1.5)), ("p3", "A = 4\n", verdict(3.0)), ("p4", "B = 1\n",
        verdict(fault=Fault.SHAPE))])  # fmt: skip
    found = compare_trajectories(store, [one, two])
    assert [row.number for row in found.turns] == [1, 2, 3]
    assert found.turns[2].cells[0] is None
    assert found.turns[0].cells[1].same_as == 2, "the first one's program of turn 2"
    about, parts, turns = trajectory_tables(found)
    rows = {row[0]: row[1:] for row in about.rows}
    assert rows["turns"] == ("2", "3 (+1)")
    assert rows["tokens"] == ("240", "360 (+120)")
    assert rows["seconds"] == ("20.0", "30.0 (+10.0)")
    assert rows["dollars"] == ("1.0000", "1.5000 (+0.5000)")
    assert rows["best speedup"] == ("2", "3 (+1)")
    assert rows["rungs reached"] == ("profile 1, compile 1", "profile 2, compile 1")
    assert rows["turns to the first correct"] == ("2", "1 (-1)")
    assert "another program" in parts.rows[0][1]
    assert turns.rows[0] == (
        "1",
        "draft: compile at compile",
        "draft: correct 1.5x, the program of turn 2",
    )


def test_speeds_of_two_environments_are_not_set_against_each_other(store):
    other = verdict(3.0).with_(environment=Environment(gpu="NVIDIA A100"))
    ids = [trajectory(store, [BROKEN, FAST]), trajectory(store, [BROKEN, ("p2", "A = 2\n", other)])]
    rows = {row[0]: row[1:] for row in trajectory_tables(compare_trajectories(store, ids))[0].rows}
    assert rows["best speedup"] == ("2", "3"), "no difference"
    assert len(set(rows["environment"])) == 2


def test_a_fork_is_aligned_with_the_trajectory_it_came_from(store):
    one = trajectory(store, [BROKEN, BROKEN, FAST])
    origin = store.turns(one)[0].candidate_id
    two = trajectory(store, [("p1", "A = 7\n", verdict(fault=Fault.SHAPE))], forked_from=origin)
    found = compare_trajectories(store, [one, two])
    assert (found.partings[0].kind, found.partings[0].turn) == (DivergenceKind.REPLY, 2)
    same = trajectory(store, [BROKEN])
    assert (
        trajectory_tables(compare_trajectories(store, [one, same]))[2].rows[0][2]
        == "draft: compile at compile, same program"
    )
    assert ("forked after", "-", f"turn 1 of {one}") in trajectory_tables(found)[0].rows


@pytest.fixture
def runs(store):
    """`night` and `day`: fused SiLU parts at turn 2, vector add is the same, row sum is in one of them only."""
    adding = find_by_name("vector_add")
    for name, speed in (("night", 2.0), ("day", 3.0)):
        run = store.open_run(name, {})
        for sample in range(2):
            second = ("p2", f"A = {speed}\n", verdict(speed))
            trajectory(store, [BROKEN, second], run_id=run.id, sample=sample)
            trajectory(store, [BROKEN], run_id=run.id, sample=sample, problem=adding)
    trajectory(store, [BROKEN], run_id=store.open_run("day").id, problem=find_by_name("row_sum"))
    store.open_run("empty")
    return store


def test_runs_are_compared_problem_by_problem_and_sample_by_sample(runs):
    found = compare_batches(runs, ["night", "day"])
    assert found.partings == ({"other_program": 2, "same": 2},)
    speed = next(test for test in found.tests[0] if test.measure == "speedup")
    assert (speed.wins, speed.losses) == (0, 1)
    tables = {table.title: table for table in run_tables(found)}
    assert [row for row in tables["problems"].rows if row[0] == "fused_silu"] == [
        ("fused_silu", "2 of 2 correct, 2x", "2 of 2 correct, 3x", "other program x2", "2")
    ]
    assert next(row for row in tables["problems"].rows if row[0] == "row_sum")[1] == "-"
    rows = {row[0]: row[1:] for row in tables["runs"].rows}
    assert rows["trajectories"] == ("4", "5 (+1)")
    assert rows["correct"] == ("2", "2 (+0)")
    assert "night against day" in tables


def test_markdown_holds_no_broken_row_whatever_the_names_are(store):
    one = trajectory(store, [BROKEN], policy="a|b\n<x>")
    text = tables_markdown("a|b", trajectory_tables(compare_trajectories(store, [one, one])))
    assert "a\\|b &lt;x>" in text
    assert all(line.startswith(("|", "#")) for line in text.splitlines() if line)


def test_runs_and_trajectories_are_not_mixed(runs):
    for which, said in [
        (["night", "1"], "compare runs with runs"),
        (["night", "moon"], "no run 'moon'"),
        (["1", "moon"], "no trajectory"),
        (["night", "empty"], "holds no trajectory yet"),
    ]:
        with pytest.raises(InputError, match=said):
            _compared(runs, which)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def agent(capsys, monkeypatch):
    """The command as `main` runs it, in this process."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["compare", *map(str, arguments)])
        return Done(end.value.code, *capsys.readouterr())

    return called


def test_the_command_prints_tables_markdown_or_json_and_refuses_in_one_line(runs, agent):
    where = ("--db", runs.where)
    shown = agent("1", "3", "last", *where)
    assert shown.returncode == 0, shown.stderr
    for part in ("where they part", "rungs reached", "turns", "best speedup"):
        assert part in shown.stdout
    assert agent("night", "day", "--markdown", *where).stdout.startswith("# night against day")
    assert json.loads(agent("night", "day", "--json", *where).stdout)["sides"][1]["run"] == "day"
    for line, said in [
        (("1",), "two or more"),
        (("1", "99"), "no trajectory 99"),
        (("1", "2", "--json", "--markdown"), "choose one"),
    ]:
        refused = agent(*line, *where)
        assert refused.returncode in (2, 3)
        assert said in refused.stderr
        assert refused.stderr.count("\n") == 1
