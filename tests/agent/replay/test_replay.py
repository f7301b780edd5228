"""Replays: the machine again with the stored replies; today's tools on the stored candidates; branches."""

import json
import os
import signal
import threading

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.loop.machine import RunState
from kernelwright.agent.loop.run_verdicts import RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.replay.drift import VerdictAspect, compare_reports
from kernelwright.agent.replay.rejudging import ReplayRequest, replay_all
from kernelwright.agent.replay.replaying import FreshVerdicts, StoredVerdicts, replay
from kernelwright.agent.runtime.errors import Exit
from kernelwright.agent.runtime.worker_threads import WorkerThreads
from kernelwright.policies.base import Completion, FinishReason, Usage
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.report import Failure, Fault, KernelResources, ProfileResult, Report, Timing


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "runs.db")


@pytest.fixture
def scratch(tmp_path):
    with Store.open(tmp_path / "scratch.db") as found:
        yield found


def command(capsys, *arguments):
    """Exit status, what was printed, what was said on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(["replay", *arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_a_replay_shows_the_states_verdicts_and_best_that_the_live_view_had(
    begin, path, does_not_compile, wrong, right, capsys
):
    seen = []
    run = begin(
        [does_not_compile, "no code", wrong, right],
        watch=lambda run, doing: seen.append((run.state, run.current.turn if run.current else 0)),
    )
    run.run()
    [replayed] = replay_all(ReplayRequest(id="last"), path, lambda doing: None).trajectories
    walked = [state for turn in replayed.turns for state in turn.states]
    lived = [state for k, (state,
        _) in enumerate(seen) if state is not RunState.DONE and (k == 0 or state is not seen[k - 1][0])]  # fmt: skip
    assert [s for k, s in enumerate(walked) if k == 0 or s is not walked[k - 1]] == lived
    assert [turn.candidate_id for turn in replayed.turns] == [a.candidate_id for a in run.attempts]
    assert [turn.fault for turn in replayed.turns] == [
        Fault.COMPILE,
        Fault.NO_CODE,
        Fault.MISMATCH,
        None,
    ]
    assert [turn.best for turn in replayed.turns] == [None, None, None, 3]
    assert (replayed.stop_reason, replayed.best_candidate_id) == (
        "target_reached",
        run.best.candidate_id,
    )
    assert not any(turn.departure or turn.drift.changes or turn.judged for turn in replayed.turns)
    status, out, _ = command(capsys, "last", "--db", path)
    assert status == Exit.DONE
    assert "repair > compile > correctness" in out
    assert "stopped  target reached" in out


def test_todays_tools_find_what_the_stored_verdicts_say(
    begin, store, scratch, evaluator, does_not_compile, right
):
    row = store.trajectory(finished(begin, does_not_compile, right))
    judging = RunJudge(evaluator, Options())
    kept = []

    def judge(turns):
        return FreshVerdicts(
            turns,
            row.id,
            judging,
            lambda turn: False,
            lambda turn, report: kept.append(turn.candidate_id),
        )

    replayed = replay(store, row, scratch, judge)
    assert [turn.judged for turn in replayed.turns] == [True, True]
    assert kept == [turn.candidate_id for turn in replayed.turns]
    assert not any(turn.drift.changes for turn in replayed.turns)


def finished(begin, *answers, **settings):
    run = begin(list(answers), **settings)
    run.run()
    return run.trajectory_id


@pytest.mark.slow
def test_a_verdict_that_differs_is_told_and_saved_only_when_that_is_meant(begin, store, path, unfinished, right,
    capsys):  # fmt: skip
    id = finished(begin, unfinished(1), right)
    _, last = store.turns(id)
    store.judge(
        last.candidate_id,
        last.report.with_(
            correct=False, failure=Failure(fault=Fault.NONDETERMINISM, message="once")
        ),
    )
    store.put_best(id, None)
    status, out, _ = command(capsys, str(id), "--execute", "--device", "cpu", "--db", path)
    assert status == Exit.INCORRECT
    assert "verdict: nondeterminism -> correct" in out
    assert "1 of 2 verdicts differ" in out
    assert len(store.verdicts(last.candidate_id)) == 2
    status, out, _ = command(
        capsys, str(id), "--rescore", "--device", "cpu", "--db", path, "--json"
    )
    told = json.loads(out)
    assert (status, told["saved"], told["trajectories"][0]["rescored"]) == (Exit.INCORRECT, 2, 2)
    assert [verdict.correct for verdict in store.verdicts(last.candidate_id)] == [
        True,
        False,
        True,
    ], "old ones kept"
    assert store.turn(last.candidate_id).report.correct, "the new one is in force"
    assert store.trajectory(id).best_id == last.candidate_id


@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_is_rescored_trajectory_by_trajectory_and_goes_on_where_it_was_interrupted(
    batched, tmp_path, monkeypatch
):
    path = tmp_path / "runs.db"
    path.write_bytes(batched.read_bytes())
    asked = ReplayRequest(run="three", rescore=True, workers=1)

    def interrupting(line):
        """Ctrl-C once two of the six are done; this thread goes on when it has reached the main one."""
        if line.startswith("2 of 6") and not asked_to_stop.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            assert asked_to_stop.wait(500)

    asked_to_stop, stop = threading.Event(), WorkerThreads.stop
    with monkeypatch.context() as patch:
        patch.setattr(WorkerThreads, "stop", lambda workers: (stop(workers), asked_to_stop.set()))
        first = replay_all(asked, str(path), interrupting)
    assert first.interrupted
    assert 2 <= len(first.trajectories) < 6
    second = replay_all(asked, str(path), lambda line: None)
    assert len(second.trajectories) == 6
    assert (second.verdicts_changed, second.interrupted) == (0, False)
    with Store.open(path, readonly=True) as store:
        judged = [store.verdicts(entry.candidate.id) for entry in store.candidates(limit=None)]
        readable = [verdicts for verdicts in judged if verdicts[0].fault is not Fault.NO_CODE]
    assert {len(verdicts) for verdicts in readable} == {2}, "each once"
    assert first.saved + second.saved == len(readable)


@pytest.mark.slow
def test_a_branch_goes_on_after_its_turn_and_its_own_command_goes_on_with_it(
    begin, store, path, unfinished, right, tmp_path, capsys
):
    id = finished(begin, unfinished(1), unfinished(2), right)
    script, output = tmp_path / "other.json", str(tmp_path / "kernel.py")
    script.write_text(json.dumps(["not asked", "not asked", unfinished(7)]))
    asked = (str(id), "--fork", "2", "--policy", f"scripted:{script}", "--device", "cpu", "--db", path, "--out", output,
        "--json")  # fmt: skip
    status, out, _ = command(capsys, *asked)
    paused = json.loads(out)
    assert (status, paused["stop_reason"]) == (Exit.BAD_INPUT, "refused"), (
        "the script has no fourth answer"
    )
    script.write_text(json.dumps(["not asked", "not asked", unfinished(7), right]))
    status, out, _ = command(capsys, *asked)
    solved = json.loads(out)
    assert (status, solved["trajectory_id"], solved["resumed"]) == (
        Exit.DONE,
        paused["trajectory_id"],
        True,
    )
    origin, branch = store.turns(id), store.turns(solved["trajectory_id"])
    assert store.trajectory(solved["trajectory_id"]).forked_from_id == origin[1].candidate_id
    assert [(turn.turn, turn.action) for turn in branch] == [(2, Action.REPAIR), (3, Action.REPAIR)]
    assert branch[0].parent_id == origin[1].candidate_id
    assert solved["spent"]["turns"] == 2, "what was inherited was paid for before"
    assert len(store.turns(id)) == 3, "the one it left is as it was"
    [replayed] = replay_all(
        ReplayRequest(id=str(solved["trajectory_id"])), path, lambda doing: None
    ).trajectories
    assert [turn.trajectory_id == id for turn in replayed.turns] == [True, True, False, False]


def test_where_todays_machine_would_go_another_way_is_said(
    store, scratch, path, evaluator, unfinished
):
    from kernelwright.agent.problems.finding import find_by_name

    problem = find_by_name("fused_silu")
    trajectory = store.begin(Settings(policy="scripted:test").start(problem))
    for turn in range(2):
        draft_again(
            store, trajectory, turn, evaluator.evaluate(problem, f"import triton\nx = {turn}\n")
        )
    replayed = replay(store, store.trajectory(trajectory.id), scratch, StoredVerdicts)
    assert [turn.departure for turn in replayed.turns] == ["repair of turn 1", ""]


def draft_again(store, trajectory, turn, report):
    from kernelwright.policies.base import Message, Request, Role

    request = Request(messages=(Message(role=Role.USER, content="again"),))
    row = store.draft(trajectory.id, request, action=Action.DRAFT, turn=turn)
    usage = Usage(prompt_tokens=1, completion_tokens=1, dollars=0.0)
    text = f"import triton\nx = {turn}\n"
    store.complete(
        row.id, Completion(text=text, finish=FinishReason.STOP, usage=usage, policy="p"), text
    )
    store.judge(row.id, report)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a trajectory's number, last, or --run NAME"),
        (("1", "--run", "x"), "not both"),
        (("--run", "nobody"), "no run 'nobody'"),
        (("last",), "holds no trajectory yet"),
        (("one",), "is no trajectory"),
        (("1", "--policy", "embedded"), "say after which turn"),
        (("1", "--fork", "1"), "--fork TURN needs a trajectory and --policy"),
        (
            ("1", "--fork", "1", "--policy", "embedded", "--rescore"),
            "neither --run, --execute nor --rescore",
        ),
        (("1", "--execute", "--device", "tpu"), "choose auto, cpu or cuda:N"),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_one_line(store, path, capsys, arguments, said):
    status, out, err = command(capsys, *arguments, "--db", path)
    assert (status, out, err.count("\n")) == (Exit.BAD_INPUT, "", 1)
    assert said in err


@pytest.mark.parametrize("option", ["--execute", "--rescore"])
def test_a_database_that_is_not_there_is_not_made(tmp_path, capsys, option):
    status, _, err = command(
        capsys, "1", option, "--device", "cpu", "--db", str(tmp_path / "none.db")
    )
    assert status == Exit.BAD_INPUT
    assert "no database at" in err
    assert not (tmp_path / "none.db").exists()


def test_a_turn_that_is_not_there_cannot_be_branched_from(begin, path, unfinished, capsys):
    id = finished(begin, unfinished(1), unfinished(2), budgets=Budgets(turns=2))
    status, _, err = command(capsys, str(id), "--fork", "3", "--policy", "embedded", "--db", path)
    assert status == Exit.BAD_INPUT
    assert f"trajectory {id} has turns 1 to 2" in err


def report(**changes):
    return Report(
        problem="p", problem_hash="h", candidate_hash="c", judged_on="H200", correct=True, **changes
    )


def timed(median, speedup):
    timing = Timing(median=median, low=median * 0.995, high=median * 1.005, mean=median, std=0.0, minimum=median,
        calls=50)  # fmt: skip
    return report(profile=ProfileResult(device="H200", candidate=timing, speedup=speedup))


def test_times_drift_only_beyond_the_noise_and_only_on_one_device():
    assert not compare_reports(timed(1.0, 2.0), timed(1.015, 1.97)).changes
    aspects = {
        change.aspect for change in compare_reports(timed(1.0, 2.0), timed(1.1, 1.8)).changes
    }
    assert aspects == {VerdictAspect.TIME, VerdictAspect.SPEEDUP}
    elsewhere = compare_reports(timed(1.0, 2.0), timed(3.0, 1.0).with_(judged_on="A100"))
    assert not elsewhere.changes
    assert "do not compare" in elsewhere.note


def test_registers_are_compared_kernel_by_kernel_and_never_decide_the_verdict():
    from kernelwright.tools.report import CompileResult

    def compiled(registers):
        kernels = (KernelResources(name="k", config={"BLOCK": 8}, registers=registers, spills=0),)
        return report(compiles=(CompileResult(target="sm_90", kernels=kernels),))

    found = compare_reports(compiled(32), compiled(40))
    [change] = found.changes
    assert (change.aspect, change.was, change.now, change.of) == (
        VerdictAspect.REGISTERS,
        "32",
        "40",
        "k",
    )
    assert not found.verdict_changed
