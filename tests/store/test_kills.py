"""kill -9 at any moment, two processes on one database: no finished turn is lost, no row is half written, nobody's
turn is taken.
"""

import random
import sqlite3
import threading
import time
from contextlib import closing
from multiprocessing import get_context

import pytest
import turnmaking as make

from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.models import Action, CandidateState
from kernelwright.store.records import CandidateFilter, TrajectoryFilter

FORK = get_context("fork")
SAMPLES, TURNS, KILLS = 40, 5, 50


def batch(path, said):
    """Finishes every trajectory of the run from where it is; says which turn is finished after it is."""
    with Store.open(path) as store:
        said.send("open")
        run = store.open_run("batch")
        for sample in range(SAMPLES):
            trajectory = store.begin(make.start(), run_id=run.id, sample=sample)
            if trajectory.finished is None:
                solve(store, trajectory, said)


def solve(store, trajectory, said):
    there = store.turns(trajectory.id)
    for number in range(TURNS):
        turn = there[number] if number < len(there) else None
        if turn is None or turn.state is CandidateState.DRAFTING:
            row = store.draft(
                trajectory.id,
                make.request(number, trajectory.sample),
                action=Action.DRAFT,
                turn=number,
            )
            store.complete(
                row.id,
                make.completion(number, trajectory.sample),
                make.source(number, trajectory.sample),
            )
            id = row.id
        else:
            id = turn.candidate_id
        if turn is None or turn.state is not CandidateState.JUDGED:
            store.judge(
                id, make.wrong(number, trajectory.sample), rewards={"gate": 1.0}, formula="v1"
            )
            said.send((trajectory.sample, number))
    store.finish(trajectory.id, "turns", best_id=id)


def started(path):
    """The process, and what it says."""
    heard, said = FORK.Pipe(duplex=False)
    process = FORK.Process(target=batch, args=(path, said))
    process.start()
    said.close()
    assert heard.recv() == "open"
    return process, heard


def killed_in_the_middle(path, draws):
    """Starts the batch, kills it some turns and some microseconds later; gives the turns that it said were finished."""
    process, heard = started(path)
    finished = []
    try:
        for _ in range(draws.randrange(5)):
            finished.append(heard.recv())
        time.sleep(draws.uniform(0, 0.01))
    except EOFError:
        pass
    process.kill()
    process.join()
    try:
        while True:
            finished.append(heard.recv())
    except EOFError:
        return finished


def outcome(path):
    """Everything but ids and times."""
    with Store.open(path, readonly=True) as store:
        found = {}
        for trajectory in store.trajectories(TrajectoryFilter(run="batch"), limit=None):
            turns = [
                (
                    t.turn,
                    t.state,
                    t.messages,
                    t.sampling,
                    t.completion,
                    t.source,
                    t.report.candidate_hash,
                    t.rewards,
                )
                for t in store.turns(trajectory.id)
                if t.state is CandidateState.JUDGED
            ]
            found[trajectory.sample] = (trajectory.stop_reason, turns)
        return found


def finished_turns(path):
    with Store.open(path, readonly=True) as store:
        entries = store.candidates(CandidateFilter(state=CandidateState.JUDGED), limit=None)
        return {(entry.trajectory.sample, entry.candidate.turn) for entry in entries}


def check_whole(path):
    """Nothing half written: SQLite's own checks, and every row has what its state promises."""
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert plain.execute("PRAGMA foreign_key_check").fetchall() == []
        half = (
            "SELECT count(*) FROM candidate WHERE (state = 'drafting') != (reply_id IS NULL) OR (state = "
            "'judged') != (verdict_id IS NOT "
            "NULL)"
        )
        assert plain.execute(half).fetchone() == (0,)
        lost = (
            "SELECT count(*) FROM candidate WHERE state != 'drafting' AND id NOT IN (SELECT id FROM "
            "candidate_text_docsize)"
        )
        assert plain.execute(lost).fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_batch_that_is_killed_fifty_times_ends_as_one_that_was_not(path, tmp_path):
    draws = random.Random(2)
    acknowledged = []
    for _ in range(KILLS):
        acknowledged += killed_in_the_middle(path, draws)
        check_whole(path)
        assert finished_turns(path).issuperset(acknowledged)
    assert len(acknowledged) == len(set(acknowledged)) > KILLS
    assert len(finished_turns(path)) < SAMPLES * TURNS, "it was done before the last kill"
    for place in (path, tmp_path / "uninterrupted.db"):
        process, heard = started(place)
        while process.is_alive() or heard.poll():
            try:
                heard.recv()
            except EOFError:
                break
        process.join()
        assert process.exitcode == 0
    assert outcome(path) == outcome(tmp_path / "uninterrupted.db")
    assert all(
        reason == "turns" and len(turns) == TURNS for reason, turns in outcome(path).values()
    )


def write_alone(path, sample, turns):
    with Store.open(path) as store:
        trajectory = store.begin(make.start(), run_id=store.open_run("batch").id, sample=sample)
        for turn in range(turns):
            row = store.draft(trajectory.id, make.request(turn, sample), action=Action.DRAFT)
            store.complete(row.id, make.completion(turn, sample), make.source(turn, sample))
            store.judge(row.id, make.wrong(turn, sample))
        store.finish(trajectory.id, "turns")


@pytest.mark.parametrize("new", [True, False], ids=["a new database", "one that is there"])
def test_two_processes_write_to_one_database_and_readers_see_whole_turns_meanwhile(path, new):
    if not new:
        Store.open(path).close()
    writers = [FORK.Process(target=write_alone, args=(path, sample, 25)) for sample in range(2)]
    for writer in writers:
        writer.start()
    while not path.exists():
        time.sleep(0.01)
    with Store.open(path) as reader:
        while any(writer.is_alive() for writer in writers):
            for turn in reader.samples():
                assert turn.completion == make.completion(
                    turn.turn, 0 if turn.messages[1].content == "Problem 0" else 1
                )
            time.sleep(0.02)
        assert [writer.exitcode for writer in writers] == [0, 0]
        assert reader.stats().trajectories == 2
        assert len(list(reader.samples())) == 50


def test_many_threads_share_one_store(store):
    def work(number):
        trajectory = store.begin(make.start(), resume=False)
        for turn in range(4):
            row = store.draft(trajectory.id, make.request(turn, number), action=Action.DRAFT)
            store.complete(row.id, make.completion(turn, number), make.source(turn, number))
            store.judge(row.id, make.wrong(turn, number))
            assert store.turn(row.id).completion == make.completion(turn, number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(store.samples())) == 32


def test_the_same_command_goes_on_at_the_exact_turn(store):
    trajectory = store.begin(make.start(target="sm_90"))
    row = store.draft(trajectory.id, make.request(), action=Action.DRAFT)
    store.pause(trajectory.id, "interrupted", message="Ctrl-C")
    assert (
        store.trajectories(TrajectoryFilter(key=make.start(target="sm_90").key, finished=False))[
            0
        ].stop_reason
        == "interrupted"
    )
    again = store.begin(make.start(target="sm_90"))
    assert (again.id, again.stop_reason) == (trajectory.id, None)
    assert [
        turn.candidate_id for turn in store.turns(again.id) if turn.state is CandidateState.DRAFTING
    ] == [row.id]
    assert store.begin(make.start(target="sm_80")).id != trajectory.id
    store.finish(trajectory.id, "plateau", best_id=row.id, spent={"turns": 1, "dollars": None})
    done = store.trajectory(trajectory.id)
    assert (done.stop_reason, done.best_id, done.spent, done.owner) == (
        "plateau",
        row.id,
        {"dollars": None, "turns": 1},
        "",
    )
    assert store.begin(make.start(target="sm_90")).sample == 1
    with pytest.raises(StoreError, match="is finished: fork it to go on"):
        store.draft(trajectory.id, make.request(), action=Action.DRAFT)


def test_a_stop_reason_that_is_no_word_is_refused(store):
    trajectory = store.begin(make.start())
    with pytest.raises(StoreError, match="stop_reason was not saved"):
        store.finish(trajectory.id, "Ran out of luck!")


def take_and_wait(where, said, wait):
    with Store.open(where) as store:
        store.begin(make.start(), run_id=store.open_run("batch").id, sample=0)
        said.send("mine")
        wait.wait(500)


def test_a_trajectory_that_a_live_process_works_on_is_not_taken_and_a_dead_ones_is(where):
    Store.open(where).close()
    heard, said = FORK.Pipe(duplex=False)
    other = FORK.Process(target=take_and_wait, args=(where, said, FORK.Event()))
    other.start()
    assert heard.recv() == "mine"
    with Store.open(where) as store:
        run = store.open_run("batch")
        with pytest.raises(StoreError, match="is worked on by") as caught:
            store.begin(make.start(), run_id=run.id, sample=0)
        assert caught.value.trouble is StoreTrouble.BUSY
        assert store.begin(make.start(), run_id=run.id, sample=1).sample == 1
        other.kill()
        other.join()
        taken = store.begin(make.start(), run_id=run.id, sample=0)
        assert taken.owner == store.owner
        assert store.begin(make.start(), run_id=run.id, sample=0).id == taken.id


def test_what_a_closed_store_of_this_process_could_not_let_go_of_is_free(where):
    """As where the disk was full: nothing was written at its end."""
    open_one = Store.open(where)
    with Store.open(where) as closed:
        mine, theirs = closed.begin(make.start()), open_one.begin(make.start("another"))
    with Store.open(where) as store:
        assert store.begin(make.start()).id == mine.id
        assert store.begin(make.start("another")).id != theirs.id
    open_one.close()


def test_another_host_is_believed_for_an_hour(path, monkeypatch):
    with Store.open(path) as far:
        monkeypatch.setattr(far, "owner", "faraway-1/42/1234/abcd")
        trajectory = far.begin(make.start())
    with Store.open(path) as store:
        assert store.begin(make.start()).id != trajectory.id
        with pytest.raises(StoreError, match="worked on by faraway-1/42/1234"):
            store.draft(trajectory.id, make.request(), action=Action.DRAFT)
        later = time.time() + 3700
        monkeypatch.setattr(time, "time", lambda: later)
        assert (
            store.draft(trajectory.id, make.request(), action=Action.DRAFT).trajectory_id
            == trajectory.id
        )
