"""Search, lineage, taking away: on SQLite and on PostgreSQL."""

import sqlite3
from contextlib import closing

import pytest
import turnmaking as make
from sqlalchemy import select

from kernelwright.store.blobs import TOKENS_PER_LINK
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.lineage import best_candidate, lineage
from kernelwright.store.models import Action, Candidate
from kernelwright.store.records import CandidateFilter
from kernelwright.store.search import CANDIDATE, matching, terms_of

CODE = """import triton.language as tl
def fused_kernel(x_ptr, N: tl.constexpr):
    accumulator += tl.dot(a, b, input_precision="ieee")
    # größer als 100% — naïve 核 🦆 'quoted' "double" a-b C:\\\\path x**2 O(n^2) NEAR(x, y) -- ;DROP TABLE
"""


def turn(store, trajectory, number=0, code=CODE, report=None, parent_id=None, action=Action.DRAFT):
    row = store.draft(trajectory.id, make.request(), action=action, parent_id=parent_id)
    store.complete(row.id, make.completion(number, text=f"```python\n{code}```"), code)
    store.judge(row.id, report or make.wrong(message="tl.dot: shapes (16, 8) do not fit"))
    return row.id


FINDING = [
    "tl.dot", "fused_kernel", "fused", "KERNEL", "accum*",
    "tl.dot accumulator", '"tl dot"', "größer", "naïve", "核",
    "100%",
    "NEAR(x, y)", "a-b", "-b", "x**2", "C:\\path", "'quoted'", '"double', "DROP TABLE", "O(n^2)", "* tl",
    'input_precision="ieee"',
    "(((tl", "tl:", "^tl", "{tl}", "tl\x00dot", "fused_softmax", "mismatch", "shapes (16, 8)", "mask", "candidate.py",
    "tl % 🦆",
]  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def searched(request, tmp_path_factory):
    """A database of each kind that tests only read, and the candidate in it that holds CODE, beside one other."""
    sqlite = request.param == "sqlite"
    where = (
        tmp_path_factory.mktemp("searched") / "runs.db"
        if sqlite
        else request.getfixturevalue("postgres").new_place()
    )
    with Store.open(str(where)) as opened:
        id = turn(opened, opened.begin(make.start()))
        turn(opened, opened.begin(make.start("row_sum")), code="x = 1\n", report=make.right())
        yield opened, id


@pytest.mark.parametrize("query", FINDING)
def test_whatever_is_typed_is_looked_for_as_words(searched, query):
    store, id = searched
    assert [found.entry.candidate.id for found in store.search(query)] == [id]


@pytest.mark.parametrize("query", ["AND tl", "column:tl", "tl OR nothing", "dot.tl", "dot nothing"])
def test_there_is_no_language_of_queries_and_every_term_must_be_there(searched, query):
    store, _ = searched
    assert store.search(query) == []


@pytest.mark.parametrize("query", ["", "%", "+ - *", '"', '""', '" "*', "🦆", "_", "\x00"])
def test_a_query_without_a_word_is_refused_as_bad_input(searched, query):
    store, _ = searched
    with pytest.raises(StoreError, match="give a word") as caught:
        store.search(query)
    assert caught.value.trouble is StoreTrouble.UNUSABLE
    assert caught.value.bad_input


def test_only_a_star_at_the_end_makes_a_beginning_of_a_word(store):
    turn(store, store.begin(make.start()))
    assert store.search("accumu") == []
    assert len(store.search("accumu*")) == len(store.search("tl.do*")) == 1
    assert store.search('"accumu*"') == []


def test_a_search_goes_through_all_ids_range_by_range(store, monkeypatch):
    monkeypatch.setattr("kernelwright.store.finding.FIRST_SEARCHED_IDS", 1)
    trajectory = store.begin(make.start())
    ids = [turn(store, trajectory, number) for number in range(7)]
    store.judge(ids[1], make.wrong(message="judged again"))
    assert [found.entry.candidate.id for found in store.search("accumulator", limit=6)] == ids[
        :0:-1
    ]
    assert [found.entry.candidate.id for found in store.search("again")] == [ids[1]]
    assert [found.entry.candidate.id for found in store.search("shapes")] == [
        id for id in ids[::-1] if id != ids[1]
    ]


def test_results_show_the_line_and_go_on_page_by_page(store):
    trajectory = store.begin(make.start())
    ids = [turn(store, trajectory, number) for number in range(5)]
    first = store.search("tl.dot", limit=2)
    assert [found.entry.candidate.id for found in first] == [ids[4], ids[3]]
    assert first[0].excerpt == "import triton.language as tl"
    assert store.search("accumulator")[0].excerpt.startswith("accumulator += tl.dot(a, b")
    rest = store.search("tl.dot", before=ids[3])
    assert [found.entry.candidate.id for found in rest] == [ids[2], ids[1], ids[0]]
    assert store.search("tl.dot", CandidateFilter(correct=True)) == []


def test_only_the_failure_in_force_is_found(store):
    id = turn(store, store.begin(make.start()))
    assert len(store.search("mismatch")) == 1
    store.judge(id, make.right())
    assert store.search("mismatch") == []
    assert len(store.search("accumulator")) == 1


def test_where_there_is_no_full_text_index_like_finds_the_same(postgres_url):
    with Store.open(postgres_url) as store:
        turn(store, store.begin(make.start()))
        with store._engines.reader.connect() as connection:
            for query in (
                "tl.dot",
                "accum*",
                "accumulator",
                "accum",
                "核",
                "größer 100%",
                "nothing",
                "ot(a",
            ):
                known, plain = (
                    connection.execute(
                        select(Candidate.id).where(
                            Candidate.id.in_(matching(way, CANDIDATE, terms_of(query), (1, 9)))
                        )
                    ).all()
                    for way in ("postgresql", "other")
                )
                assert known == plain, query


def test_the_lineage_knows_parents_forks_and_the_way_to_the_best(store):
    trajectory = store.begin(make.start())
    draft = turn(store, trajectory, code="x = 1\ny = 2\n")
    repaired = turn(
        store,
        trajectory,
        1,
        code="x = 1\ny = 3\n",
        report=make.right(speedup=1.2),
        parent_id=draft,
        action=Action.REPAIR,
    )
    slower = turn(
        store,
        trajectory,
        2,
        report=make.right(speedup=0.8),
        parent_id=repaired,
        action=Action.REFINE,
    )
    graph = lineage(store, trajectory.id)
    assert best_candidate(graph) == repaired
    assert sorted(graph.edges) == [(draft, repaired), (repaired, slower)]
    assert store.candidate(slower).candidate.depth == 2
    fork = store.begin(make.start(), forked_from=repaired)
    faster = turn(
        store, fork, 3, report=make.right(speedup=3.0), parent_id=repaired, action=Action.REFINE
    )
    forked = lineage(store, fork.id)
    assert best_candidate(forked) == faster
    assert sorted(forked.edges) == [(draft, repaired), (repaired, faster)]
    assert set(lineage(store, trajectory.id)) == {draft, repaired, slower}
    assert best_candidate(lineage(store, store.begin(make.start("empty")).id)) is None


def test_a_fork_is_not_taken_for_the_trajectory_it_left(store):
    trajectory = store.begin(make.start())
    id = turn(store, trajectory)
    fork = store.begin(make.start(), forked_from=id)
    assert store.begin(make.start()).id == trajectory.id != fork.id


def test_what_is_forgotten_is_gone_and_what_is_shared_stays(store):
    kept, doomed = store.begin(make.start()), store.begin(make.start("row_sum"))
    same = turn(store, kept, code="shared = 1\n")
    turn(store, doomed, code="shared = 1\n")
    turn(store, doomed, 5, code="lonely = 2\n")
    before = store.turn(same)
    assert (store.gc().blobs, store.gc().links) == (0, 0)
    store.forget(doomed.id)
    swept = store.gc()
    assert swept.blobs > 3
    assert swept.links == 1 + 1799 // TOKENS_PER_LINK
    assert swept.bytes > 500
    assert store.turn(same) == before
    assert store.search("lonely") == []
    assert [found.entry.candidate.id for found in store.search("shared")] == [same]
    assert (store.stats().trajectories, store.gc().blobs) == (1, 0)
    with pytest.raises(StoreError, match="no trajectory"):
        store.forget(doomed.id)


def test_a_trajectory_that_was_forked_is_not_forgotten_before_its_fork(store):
    trajectory = store.begin(make.start())
    id = turn(store, trajectory)
    fork = store.begin(make.start(), forked_from=id)
    with pytest.raises(StoreError, match=f"was forked: delete {fork.id} first"):
        store.forget(trajectory.id)
    store.forget(fork.id)
    store.forget(trajectory.id)
    assert store.count() == 0


def test_gc_gives_the_room_back_to_the_disk(path):
    with Store.open(path) as store:
        trajectory = store.begin(make.start())
        with store.transaction():
            for number in range(60):
                turn(store, trajectory, number)
        large = store.stats().bytes
        store.forget(trajectory.id)
        store.gc()
        assert store.stats().bytes < large / 2
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_stats_count_everything(store):
    run = store.open_run("batch")
    trajectory = store.begin(make.start(), run_id=run.id)
    turn(store, trajectory, report=make.right())
    store.draft(trajectory.id, make.request(), action=Action.REFINE)
    stats = store.stats()
    assert (stats.runs, stats.trajectories, stats.unfinished, stats.verdicts, stats.correct) == (
        1,
        1,
        1,
        1,
        1,
    )
    assert stats.candidates == {"judged": 1, "drafting": 1}
    assert 0 < stats.stored_bytes < stats.blob_bytes
