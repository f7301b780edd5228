"""kill -9 in the middle of a batch, at random moments: no finished turn lost, none twice, and the end is that of a
batch that was left alone.
"""

import random
import sqlite3
import threading
import time
from contextlib import closing
from multiprocessing import get_context

import pytest

from kernelwright.agent.batch.runs import Batch, list_jobs
from kernelwright.agent.judging.lanes import Lanes, PolicyLane
from kernelwright.agent.loop.run_verdicts import RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.policies.scripted import Script, ScriptedPolicy, ScriptPart
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.report import Report
from kernelwright.tools.source import candidate_hash, read_source

FORK = get_context("fork")
PROBLEMS = ("fused_silu", "row_sum", "vector_add")
SAMPLES, TURNS, AT_ONCE = 5, 6, 4
TOTAL = len(PROBLEMS) * SAMPLES * TURNS


class Reading:
    """The first rung alone, which is all that these programs get to: the verdict that every evaluator gives,
    without its processes.
    """

    def evaluate(self, problem, source, options=None, progress=None):
        failure = read_source(source)
        assert failure is not None
        return Report(
            problem=problem.name,
            problem_hash=problem.hash,
            candidate_hash=candidate_hash(source),
            failure=failure,
        )


class Silenced(ScriptedPolicy):
    """Answers so often and no more: however late the kill comes, the batch is not at its end."""

    def __init__(self, script, answers):
        super().__init__(script)
        self.left = threading.Semaphore(answers)

    def sample(self, requests):
        for _ in requests:
            self.left.acquire()
        return super().sample(requests)


def batch(path, answers, given, said):
    """What `agent batch` does, in a process that can be killed; says that its store is open."""
    policy = Silenced(Script(parts=(ScriptPart(answers=answers),), seconds=0.004), given)
    settings = Settings(policy="scripted:kills", budgets=Budgets(turns=TURNS))
    lanes = Lanes(AT_ONCE, 2, gpu=False)
    with Store.open(path) as store:
        run = store.open_run("kills")
        judging = RunJudge(Reading(), Options())
        lane = PolicyLane(policy, lanes.policy, lanes.close, together=False)
        work = Batch(
            store,
            run,
            list_jobs([find_by_name(name) for name in PROBLEMS], SAMPLES),
            lane,
            judging,
            settings,
            lanes,
        )
        said.send("open")
        work.run(AT_ONCE)


def started(path, answers, given=TOTAL):
    heard, said = FORK.Pipe(duplex=False)
    process = FORK.Process(target=batch, args=(path, answers, given, said))
    process.start()
    said.close()
    return process, heard


def killed_in_the_middle(path, answers, draws, turns):
    """After about so many more turns, and at any moment of the one that comes next."""
    before = len(finished(path))
    process, heard = started(path, answers, TOTAL - 1 - begun(path))
    heard.poll(60)
    deadline = time.monotonic() + 400
    while (
        process.is_alive() and len(finished(path)) < before + turns and time.monotonic() < deadline
    ):
        time.sleep(0.002)
    time.sleep(draws.uniform(0, 0.02))
    process.kill()
    process.join()


def finished(path):
    """By problem, sample and turn: the id of the verdict in force, as it was first written."""
    with Store.open(path, readonly=True) as store:
        entries = store.candidates(CandidateFilter(state=CandidateState.JUDGED), limit=None)
        return {
            (e.trajectory.problem, e.trajectory.sample, e.candidate.turn): e.candidate.verdict_id
            for e in entries
        }


def begun(path):
    with Store.open(path, readonly=True) as store:
        return len(store.candidates(CandidateFilter(), limit=None))


def check_whole(path):
    """SQLite's own checks, and every row has what its state promises."""
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert plain.execute("PRAGMA foreign_key_check").fetchall() == []
        half = (
            "SELECT count(*) FROM candidate WHERE (state = 'drafting') != (reply_id IS NULL) OR (state = "
            "'judged') != (verdict_id IS NOT "
            "NULL)"
        )
        assert plain.execute(half).fetchone() == (0,)


def outcome(path):
    """Everything that two batches of one script must share."""
    with Store.open(path, readonly=True) as store:
        found = {}
        for row in store.trajectories(limit=None):
            turns = store.turns(row.id)
            places = {turn.candidate_id: turn.turn for turn in turns}
            told = [
                (t.turn, t.action, places.get(t.parent_id), t.messages, t.source, t.report.failure)
                for t in turns
            ]
            found[row.problem, row.sample] = (
                row.stop_reason,
                row.spent["turns"],
                row.spent["tokens"],
                told,
            )
        return found


def killed_so_often(tmp_path, unfinished, kills):
    path, draws = tmp_path / "killed.db", random.Random(3)
    answers = tuple(unfinished(k) for k in range(TURNS))
    Store.open(path).close()
    known = {}
    for _ in range(kills):
        most = 2 + TOTAL // (2 * kills) if len(known) < TOTAL // 2 else 1
        killed_in_the_middle(path, answers, draws, draws.randrange(most))
        check_whole(path)
        now = finished(path)
        assert {turn: now.get(turn) for turn in known} == known, (
            "what was finished is there, and was not judged again"
        )
        known = now
    assert 0 < len(known) < TOTAL, "nothing was done, or all of it before the last kill"
    for place in (path, tmp_path / "whole.db"):
        process, _ = started(place, answers)
        process.join(500)
        assert process.exitcode == 0
    ended = outcome(path)
    assert ended == outcome(tmp_path / "whole.db")
    assert len(ended) == len(PROBLEMS) * SAMPLES
    assert {(reason, turns) for reason, turns, _, _ in ended.values()} == {("turns", TURNS)}
    with Store.open(path, readonly=True) as store:
        assert all(
            len(store.verdicts(entry.candidate.id)) == 1 for entry in store.candidates(limit=None)
        )


@pytest.mark.slow
def test_a_batch_killed_at_random_moments_ends_as_one_that_was_not(tmp_path, unfinished):
    killed_so_often(tmp_path, unfinished, kills=6)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_batch_killed_fifty_times_ends_as_one_that_was_not(tmp_path, unfinished):
    killed_so_often(tmp_path, unfinished, kills=50)


@pytest.mark.slow
def test_two_batches_on_one_database_share_the_work_and_neither_does_the_other_s(
    tmp_path, unfinished
):
    path, answers = tmp_path / "runs.db", tuple(unfinished(k) for k in range(TURNS))
    Store.open(path).close()
    both = [started(path, answers) for _ in range(2)]
    for process, _ in both:
        process.join(500)
    assert [process.exitcode for process, _ in both] == [0, 0]
    check_whole(path)
    assert len(finished(path)) == TOTAL
    with Store.open(path, readonly=True) as store:
        owners = {row.owner for row in store.trajectories(limit=None)}
        assert all(
            len(store.verdicts(entry.candidate.id)) == 1 for entry in store.candidates(limit=None)
        )
    assert owners == {""}, "nobody holds anything any more"
