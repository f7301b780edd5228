"""What is saved comes back: on SQLite and on PostgreSQL."""

import sys

import pytest
import turnmaking as make
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from kernelwright.policies.base import FinishReason, PaidReply, Usage
from kernelwright.store.blobs import (
    pack_integers,
    pack_numbers,
    pack_text,
    unpack_numbers,
    unpack_text,
)
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.models import Action, CandidateState
from kernelwright.store.records import (
    CandidateFilter,
    Order,
    TrajectoryFilter,
    dump_report,
    load_report,
)


def write_turn(store, trajectory_id, turn, number=0, report=None, parent_id=None, **changes):
    action = Action.DRAFT if parent_id is None else Action.REPAIR
    candidate = store.draft(
        trajectory_id,
        make.request(turn, number),
        action=action,
        parent_id=parent_id,
        prompt_version="2",
    )
    store.complete(
        candidate.id, make.completion(turn, number, **changes), make.source(turn, number)
    )
    store.judge(candidate.id, report or make.wrong(turn, number), tool_seconds=0.5, gpu_seconds=0.1)
    return candidate.id


def test_a_turn_comes_back_exactly_as_it_was(store):
    trajectory = store.begin(make.start())
    id = write_turn(store, trajectory.id, 0, report=make.right())
    turn = store.turn(id)
    assert turn.messages == make.request(0).messages
    assert turn.sampling == make.request(0).sampling
    assert turn.adapter == "lora/3"
    assert turn.completion == make.completion(0)
    assert turn.source == make.source(0)
    assert turn.report.profile == make.right().profile
    assert (turn.prompt_version, turn.tool_seconds, turn.gpu_seconds) == ("2", 0.5, 0.1)
    assert store.problem(trajectory.id) == make.start().problem.model_copy(update={"title": ""})


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": None, "logprobs": None, "prompt_token_ids": None, "exact": False},
        {"token_ids": (), "logprobs": (), "prompt_token_ids": ()},
        {
            "token_ids": (0, 2**31 - 1, 2**40),
            "logprobs": (0.0, -1e-45, float("-inf")),
            "prompt_token_ids": tuple(range(1024)),
        },
        {"token_ids": (1, 2), "logprobs": (-0.1, -1 / 3)},
        {"text": "", "finish": FinishReason.LENGTH, "seed": None, "revision": None, "latency": 0.0},
        {"text": "a bell \x07, ünïcödé 核 🦆\r\n", "seed": 2**63 - 1},
    ],
    ids=["no tokens", "empty tokens", "extreme numbers", "float64", "empty text", "odd text"],
)
def test_odd_completions_come_back_exactly(store, changes):
    id = write_turn(store, store.begin(make.start()).id, 0, **changes)
    assert store.turn(id).completion == make.completion(0, **changes)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_token_ids_survive_packing(ids):
    assert unpack_numbers(pack_integers(ids)) == tuple(ids)


@given(st.lists(st.floats(allow_nan=False)))
def test_logprobs_survive_packing_bit_for_bit(values):
    assert list(map(float.hex, unpack_numbers(pack_numbers(values)))) == list(
        map(float.hex, values)
    )


@given(st.text(st.characters()))
def test_any_text_survives_packing(text):
    assert unpack_text(pack_text(text)) == text


def test_float32_values_take_four_bytes_each():
    assert len(pack_numbers(make.logprobs(100))) == 401


def test_a_report_with_infinities_is_standard_json_and_comes_back():
    report = make.wrong()
    assert b"NaN" not in dump_report(report)
    again = load_report(dump_report(report))
    assert again.failure.mismatch.wrong == 3
    assert again.failure.mismatch.first.got != again.failure.mismatch.first.got
    assert dump_report(again) == dump_report(report)


def test_the_row_is_there_before_the_policy_is_asked_and_before_the_tools_run(store):
    trajectory = store.begin(make.start())
    row = store.draft(trajectory.id, make.request(), action=Action.DRAFT)
    assert store.candidate(row.id).candidate.state is CandidateState.DRAFTING
    assert store.turn(row.id).completion is None
    store.complete(row.id, make.completion(), make.source(0))
    assert store.candidate(row.id).candidate.state is CandidateState.DRAFTED
    verdict_id = store.judge(
        row.id, make.wrong(), rewards={"gate": 1.0, "correct": 0.0}, formula="v1"
    )
    entry = store.candidate(row.id)
    assert (entry.candidate.state, entry.verdict.id) == (CandidateState.JUDGED, verdict_id)
    assert store.turn(row.id).rewards == {"gate": 1.0, "correct": 0.0}


def test_a_turn_that_was_never_answered_is_asked_again_in_the_same_row(store):
    trajectory = store.begin(make.start())
    first = store.draft(trajectory.id, make.request(0), action=Action.DRAFT, turn=0)
    again = store.draft(trajectory.id, make.request(1), action=Action.DRAFT, turn=0)
    assert first.id == again.id
    assert store.turn(first.id).messages == make.request(1).messages
    store.complete(first.id, make.completion())
    with pytest.raises(StoreError, match="turn 0 of trajectory 1 has its answer already"):
        store.draft(trajectory.id, make.request(0), action=Action.DRAFT, turn=0)
    with pytest.raises(StoreError, match="has its answer already"):
        store.complete(first.id, make.completion())


def test_old_verdicts_are_kept_when_a_candidate_is_judged_again(store):
    id = write_turn(store, store.begin(make.start()).id, 0)
    judged = store.candidate(id).candidate.judged
    second = store.judge(id, make.right(), tool_seconds=9.0)
    first, last = store.verdicts(id)
    assert (first.correct, last.correct, last.id) == (False, True, second)
    assert store.report(first.id).failure.fault == "mismatch"
    assert store.turn(id).report.correct
    entry = store.candidate(id)
    assert (entry.candidate.judged, entry.candidate.tool_seconds) == (judged, 0.5)


def test_rewards_come_later_and_again_and_the_latest_counts(store):
    id = write_turn(store, store.begin(make.start()).id, 0, report=make.right())
    verdict_id = store.candidate(id).verdict.id
    store.reward([(verdict_id, {"correct": 1, "speed": 1.4})], formula="v1")
    store.reward([(verdict_id, {"correct": 1.0, "speed": 0.9})], formula="v2")
    assert store.turn(id).rewards == {"correct": 1.0, "speed": 0.9}
    [sample] = store.samples(CandidateFilter(correct=True), formula="v1")
    assert (sample.rewards, sample.formula) == ({"correct": 1.0, "speed": 1.4}, "v1")


def test_samples_are_judged_turns_in_order_however_many(store, monkeypatch):
    monkeypatch.setattr("kernelwright.store.database.TURNS_PER_PAGE", 7)
    trajectory = store.begin(make.start())
    with store.transaction():
        ids = [write_turn(store, trajectory.id, turn) for turn in range(23)]
    store.draft(trajectory.id, make.request(), action=Action.DRAFT)
    samples = list(store.samples())
    assert [sample.candidate_id for sample in samples] == ids
    assert all(sample.completion == make.completion(sample.turn) for sample in samples)
    assert len(store.turns(trajectory.id)) == 24


def test_lists_are_filtered_and_ordered(store):
    run = store.open_run("level1", {"samples": 2})
    trajectory = store.begin(make.start("row_sum"), run_id=run.id, sample=1)
    other = store.begin(make.start("row_max"))
    ids = [
        write_turn(store, trajectory.id, turn, report=make.right(speedup=1.0 + turn % 3))
        for turn in range(5)
    ]
    failed = write_turn(store, other.id, 0)
    entries = store.candidates(
        CandidateFilter(run="level1", correct=True, min_speedup=2.0), order=Order.FASTEST
    )
    assert [entry.candidate.id for entry in entries] == [ids[2], ids[4], ids[1]]
    assert [
        entry.candidate.id for entry in store.candidates(CandidateFilter(fault="mismatch"))
    ] == [failed]
    page = store.candidates(limit=2)
    assert [entry.candidate.id for entry in page] == [failed, ids[4]]
    assert [entry.candidate.id for entry in store.candidates(before=ids[4], limit=2)] == [
        ids[3],
        ids[2],
    ]
    assert (
        store.count(CandidateFilter(problem="row_sum", exact=True, policy_revision="sha256:abc"))
        == 5
    )
    assert store.count(CandidateFilter(run="another")) == 0
    assert [found.id for found in store.trajectories(TrajectoryFilter(problem="row_max"))] == [
        other.id
    ]
    assert store.trajectories(TrajectoryFilter(since=other.created + 60)) == []
    assert [found.name for found in store.runs()] == ["level1"]


def test_speeds_of_equal_machines_share_a_fingerprint(store):
    trajectory = store.begin(make.start())
    a = store.candidate(write_turn(store, trajectory.id, 0, report=make.right(host="a"))).verdict
    b = store.candidate(write_turn(store, trajectory.id, 1, report=make.right(host="b"))).verdict
    assert a.fingerprint == b.fingerprint
    assert store.count(CandidateFilter(fingerprint=a.fingerprint)) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed": 2**63}, "Candidate.seed was not saved"),
        ({"finish": "nonsense"}, "Candidate.finish was not saved"),
    ],
)
def test_an_answer_that_cannot_be_right_is_refused_whole(store, changes, says):
    row = store.draft(store.begin(make.start()).id, make.request(), action=Action.DRAFT)
    with pytest.raises(StoreError, match=says) as caught:
        store.complete(row.id, make.completion(**changes), "x = 1")
    assert caught.value.trouble is StoreTrouble.INVALID
    assert store.turn(row.id).completion is None
    assert store.stats().candidates == {CandidateState.DRAFTING: 1}


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"logprobs": (0.0,)}, {"logprobs"}),
        ({"logprobs": (float("nan"),) * 200}, {"logprobs"}),
        ({"token_ids": None}, {"logprobs"}),
        ({"token_ids": (2**64,) * 200}, {"token_ids", "logprobs"}),
        ({"prompt_token_ids": (2**64,)}, {"prompt_token_ids"}),
    ],
    ids=[
        "one for many",
        "not a number",
        "without ids",
        "ids that are none",
        "a prompt's that are none",
    ],
)
def test_a_paid_answer_is_stored_without_the_numbers_that_do_not_fit(store, changes, lost):
    id = write_turn(store, store.begin(make.start()).id, 0, **changes)
    stored = make.completion(0, **changes, **dict.fromkeys(lost - set(changes)), exact=False)
    assert store.turn(id).completion == stored.with_(**dict.fromkeys(lost))


def test_what_was_paid_for_nothing_stays_with_the_open_turn_and_adds_up(store):
    row = store.draft(store.begin(make.start()).id, make.request(), action=Action.DRAFT, turn=0)
    usage = Usage(prompt_tokens=10, completion_tokens=2, dollars=0.5)
    store.record_paid(row.id, [PaidReply(text='{"error": "no"}', usage=usage)])
    store.record_paid(row.id, [PaidReply(text="\ud800", usage=usage)] * 2)
    turn = store.turn(row.id)
    assert turn.completion is None
    assert turn.paid_for_nothing == Usage(prompt_tokens=30, completion_tokens=6, dollars=1.5)
    store.complete(row.id, make.completion(), "x = 1")
    assert store.turn(row.id).completion == make.completion()
    assert store.turn(row.id).paid_for_nothing is None
    with pytest.raises(StoreError, match="has its answer already"):
        store.record_paid(row.id, [PaidReply(text="late", usage=usage)])


def test_a_group_of_writes_is_saved_together_or_not_at_all(store):
    trajectory = store.begin(make.start())

    def fail():
        with store.transaction():
            id = write_turn(store, trajectory.id, 0)
            assert store.turn(id).completion == make.completion(0)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert store.count() == 0


def test_a_long_history_takes_room_in_proportion_to_its_length(path):
    def room(turns, number):
        before = store.stats()
        trajectory = store.begin(make.start(f"problem {number}"))
        with store.transaction():
            for turn in range(turns):
                write_turn(store, trajectory.id, turn, number)
        after = store.stats()
        return after.stored_bytes - before.stored_bytes, after.blobs - before.blobs

    with Store.open(path) as store:
        (short, few), (long, many) = room(12, 1), room(36, 2)
    assert long < 3.3 * short
    assert many < 3.3 * few


def test_statements_of_a_turn_do_not_grow_with_its_history(path):
    """One look for the whole chain, one row for what is new."""
    counts = []
    with Store.open(path) as store:
        event.listen(store._engines.writer, "before_cursor_execute", lambda *_: counts.append(1))
        trajectory = store.begin(make.start())
        sizes = []
        for turn in range(6):
            counts.clear()
            store.draft(trajectory.id, make.request(turn), action=Action.DRAFT)
            store.complete(turn + 1, make.completion(turn, prompt_token_ids=None))
            sizes.append(len(counts))
    assert sizes[5] <= sizes[1]


def test_a_row_that_is_missing_says_so(store):
    for look in (store.turn, store.trajectory, store.candidate, store.report, store.problem):
        with pytest.raises(
            StoreError, match=r"no (candidate|trajectory|verdict) 99 in this database"
        ):
            look(99)


def test_big_endian_machines_read_the_same_bytes(monkeypatch):
    """The bytes are little-endian whatever the machine: swapping twice shows that both directions swap."""
    plain = pack_integers([1, 2])
    monkeypatch.setattr(sys, "byteorder", "big")
    assert unpack_numbers(pack_integers([1, 2])) == (1, 2)
    assert pack_integers([1, 2]) != plain
