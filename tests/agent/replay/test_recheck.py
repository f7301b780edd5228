"""Stored candidates judged again: real SQLite files, the real judge on a CPU, and the command as a user gives it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.replay.rechecking import RecheckRequest, recheck
from kernelwright.agent.runtime.errors import Exit
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.report import CorrectnessResult, Failure, Fault, Rung
from kernelwright.tools.verdict_cache import evaluator_version

ROOT = Path(__file__).parents[3]
OLD = "an older one"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "runs.db")


@pytest.fixture
def judged_before(begin, store):
    """`judged_before(*answers)`: a trajectory whose verdicts an older judge gave; `changes` by place make the last
    one differ from today's.
    """

    def made(*answers, **changes) -> int:
        run = begin(list(answers))
        run.run()
        for turn in store.turns(run.trajectory_id):
            if turn.source is not None:
                last = turn.candidate_id == run.attempts[-1].candidate_id
                report = turn.report.with_(environment=turn.report.environment.with_(evaluator=OLD))
                store.judge(turn.candidate_id, report.with_(**changes) if last else report)
        return run.trajectory_id

    return made


MISMATCH = {
    "correct": False,
    "failure": Failure(fault=Fault.MISMATCH, message="3 of 335 elements differ"),
}


def quiet(step):
    """Says nothing."""


def command(capsys, *arguments):
    """Exit status, what was printed, what was said on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(["recheck", *arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


@pytest.mark.slow
def test_a_verdict_that_todays_judge_does_not_share_is_told_and_saved_and_the_old_one_kept(
    judged_before, store, path, does_not_compile, right, capsys
):
    id = judged_before(does_not_compile, right, **MISMATCH)
    store.put_best(id, None)
    status, out, err = command(capsys, "--db", path, "--device", "cpu", "--quiet")
    broken, good = store.turns(id)
    assert (status, err) == (Exit.DONE, "")
    [line] = [line for line in out.splitlines() if "->" in line and line.startswith("candidate")]
    assert f"candidate {good.candidate_id}  fused_silu" in line
    assert "mismatch -> correct" in line
    assert "3 of 335 elements differ" in line
    assert "1 of 2 verdicts" in out
    assert [v.evaluator for v in store.verdicts(good.candidate_id)][-2:] == [
        OLD,
        evaluator_version(),
    ]
    assert [v.correct for v in store.verdicts(good.candidate_id)][-2:] == [False, True]
    assert (good.report.correct, broken.report.failure.fault) == (True, Fault.COMPILE)
    assert store.trajectory(id).best_id == good.candidate_id, "the best is chosen anew"


def test_what_this_judge_has_judged_is_not_judged_again_and_its_changes_are_still_told(
    judged_before, store, path, right, capsys
):
    judged_before(right, **MISMATCH)
    first = recheck(RecheckRequest(workers=1), path, quiet)
    count = store.stats().verdicts
    status, out, _ = command(capsys, "--db", path, "--device", "cpu", "--json")
    again = json.loads(out)
    assert (status, again["here"], again["before"], again["left"]) == (Exit.DONE, 0, 1, 0)
    assert again["tools"] is None, "nothing was started"
    assert (
        [one["now"] for one in again["changed"]]
        == [one.now for one in first.changed]
        == ["correct"]
    )
    assert again["counts"] == first.counts == {"mismatch -> correct": 1}
    assert store.stats().verdicts == count


@pytest.mark.slow
def test_equal_programs_are_judged_once_and_a_sitting_may_be_limited(
    judged_before, store, path, right
):
    judged_before(right, **MISMATCH)
    judged_before(right, **MISMATCH)
    first = recheck(RecheckRequest(workers=2, limit=1), path, quiet)
    assert (first.here, first.left) == (1, 1)
    judged_before(right, **MISMATCH)
    second = recheck(RecheckRequest(workers=2), path, quiet)
    assert (second.here, second.left, len(second.changed)) == (2, 0, 3)
    reports = [
        store.turn(entry.candidate.id).report
        for entry in store.candidates(CandidateFilter(), limit=None)
    ]
    assert sorted(report.cached for report in reports) == [False, False, True]


def test_a_verdict_of_a_gpu_is_not_replaced_by_one_of_a_cpu(judged_before, store, path, right):
    on_a_gpu = CorrectnessResult(device="NVIDIA H200", interpreted=False)
    id = judged_before(right, judged_on="NVIDIA H200", correctness=on_a_gpu, rung=Rung.CORRECTNESS)
    found = recheck(RecheckRequest(workers=1), path, quiet)
    assert (found.here, found.only_on_a_gpu, found.left) == (0, 1, 0)
    assert store.turns(id)[0].report.judged_on == "NVIDIA H200"


@pytest.mark.slow
def test_rewards_are_computed_for_the_new_verdict_and_stay_with_the_old_one(
    judged_before, store, path, right
):
    id = judged_before(right, **MISMATCH)
    [turn] = store.turns(id)
    store.reward([(turn.verdict_id, {"correct": 0.0})], formula="execution@1")
    store.reward([(turn.verdict_id, {"correct": 0.5})], formula="mine@3+0123abcd")
    found = recheck(RecheckRequest(workers=1), path, quiet)
    by_name = {one.formula: one for one in found.rewards}
    assert by_name["execution@1"].stored == 1
    assert "--reward FILE.json" in by_name["mine@3+0123abcd"].note
    [now] = store.turns(id)
    assert (now.formula, now.rewards["correct"]) == ("execution@1", 1.0)
    assert now.verdict_id != turn.verdict_id
    assert store.stats().rewards == 3, "those of the older judge's verdict are still there"


def test_a_reference_that_cannot_be_used_keeps_one_candidate_and_not_the_others(
    judged_before, store, path, right
):
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
    from kernelwright.store.models import Action
    from kernelwright.tools.problem import Problem

    judged_before(right, **MISMATCH)
    broken = Problem(name="broken", source="x = 1\n")
    trajectory = store.begin(Settings(policy="scripted:test").start(broken))
    request = Request(messages=(Message(role=Role.USER, content="write it"),))
    row = store.draft(trajectory.id, request, action=Action.DRAFT)
    code = (
        "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\nclass ModelNew:\n    def forward(self, x):\n "
        "       k[(1,)](x)\n        return x\n"
    )
    usage = Usage(prompt_tokens=1, completion_tokens=1, dollars=0.0)
    store.complete(
        row.id, Completion(text=code, finish=FinishReason.STOP, usage=usage, policy="p"), code
    )
    [known] = [t for t in store.samples() if t.problem == "fused_silu"]
    store.judge(row.id, known.report)
    found = recheck(RecheckRequest(workers=2), path, quiet)
    assert [(one.problem, "lacks Model" in one.why) for one in found.not_judged] == [
        ("broken", True)
    ]
    assert (found.here, found.left) == (1, 0)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_recheck_that_is_killed_or_interrupted_goes_on_where_it_stopped(
    sign, judged_before, store, path, wrong, does_not_compile, right
):
    id = judged_before(does_not_compile, wrong, right, **MISMATCH)
    candidates = [turn.candidate_id for turn in store.turns(id)]
    arguments = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "recheck",
        "--db",
        path,
        "--device",
        "cpu",
        "--workers",
        "1",
    ]
    started = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: any(judged_by_today(store, id) for id in candidates), 120, started)
    started.send_signal(sign)
    started.communicate(timeout=500)
    reached = [id for id in candidates if judged_by_today(store, id)]
    assert started.returncode == (Exit.INTERRUPTED if sign is signal.SIGINT else -signal.SIGKILL)
    assert 1 <= len(reached) < len(candidates)
    found = recheck(RecheckRequest(workers=1), path, quiet)
    assert (found.before, found.here, found.left) == (
        len(reached),
        len(candidates) - len(reached),
        0,
    )
    assert {judged_by_today(store, id) for id in candidates} == {1}, "each once"
    assert found.counts == {"mismatch -> correct": 1}


def judged_by_today(store, id) -> int:
    """How many verdicts the newest judge has given after the older one's."""
    evaluators = [verdict.evaluator for verdict in store.verdicts(id)]
    return len(evaluators) - 1 - evaluators.index(OLD)


def wait_until(reached, seconds, process):
    deadline = time.monotonic() + seconds
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_database_that_is_not_there_is_refused_in_one_line_and_not_made(tmp_path, capsys):
    status, out, err = command(capsys, "--db", str(tmp_path / "none.db"))
    assert (status, out, err.count("\n")) == (Exit.BAD_INPUT, "", 1)
    assert "no database at" in err
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--run", "nobody"), "no run 'nobody'"),
        (("--device", "tpu"), "choose auto, cpu or cuda:N"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(store, path, capsys, arguments, said):
    status, out, err = command(capsys, "--db", path, *arguments)
    assert (status, out, err.count("\n")) == (Exit.BAD_INPUT, "", 1)
    assert said in err


def test_the_database_may_be_named_without_the_option_which_is_told(path, capsys):
    Store.open(path).close()
    status, out, err = command(capsys, path, "--device", "cpu")
    assert (status, err.count("\n")) == (Exit.DONE, 1)
    assert "give the database with --db" in err
    assert "of 0 candidates" in out
    status, _, err = command(capsys, path, "--db", path)
    assert (status, err.count("\n")) == (Exit.BAD_INPUT, 1)
    assert "two databases" in err


def test_a_folder_is_no_database_and_is_called_a_folder(tmp_path, capsys):
    status, _, err = command(capsys, "--db", str(tmp_path))
    assert (status, err.count("\n")) == (Exit.BAD_INPUT, 1)
    assert "is a folder: name a file in it" in err


def test_a_file_that_is_no_database_is_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    status, _, err = command(capsys, "--db", str(tmp_path / "notes.txt"))
    assert (status, err.count("\n")) == (Exit.BAD_INPUT, 1)


def test_an_empty_database_has_nothing_to_judge_and_nothing_is_started(path, capsys):
    Store.open(path).close()
    status, out, _ = command(capsys, "--db", path, "--device", "cpu")
    assert status == Exit.DONE
    assert "0 now, 0 before, of 0 candidates" in out
