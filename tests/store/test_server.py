"""A database on a PostgreSQL server: named in every way that people write, refused in one line, shared by many."""

import socket
import sys
import threading
import time

import pytest
import turnmaking as make
from sqlalchemy import inspect, make_url

from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.connection.server import address_of, without_password
from kernelwright.store.database import Store
from kernelwright.store.models import Action, CandidateState
from kernelwright.store.records import CandidateFilter, TrajectoryFilter
from tests.postgres_server import PASSWORD, postgres_server


def refused(trouble, where, **options):
    """Opens it, and gives the one line, which tells nobody the password."""
    with pytest.raises(StoreError) as caught:
        Store.open(where, **options)
    line = str(caught.value)
    assert caught.value.trouble is trouble
    assert "\n" not in line
    assert PASSWORD not in line
    return line


def write_turn(store, trajectory, turn):
    row = store.draft(trajectory.id, make.request(turn, trajectory.sample), action=Action.DRAFT)
    store.complete(
        row.id, make.completion(turn, trajectory.sample), make.source(turn, trajectory.sample)
    )
    store.judge(row.id, make.wrong(turn, trajectory.sample))
    return row.id


def test_the_schemes_that_people_write_mean_the_same_server():
    urls = [
        f"{scheme}://me:{PASSWORD}@there:5433/runs"
        for scheme in ("postgres", "postgresql", "postgresql+psycopg")
    ]
    urls.append(f"postgresql://me@there:5433/runs?password={PASSWORD}")
    expected = make_url(f"postgresql+psycopg://me:{PASSWORD}@there:5433/runs")
    assert [address_of(url) for url in urls] == [expected] * 4
    assert {without_password(url) for url in urls} == {
        "postgresql+psycopg://me:***@there:5433/runs"
    }
    assert without_password("runs.db") == "runs.db"


@pytest.mark.parametrize("rest", ["@host:port/runs", "@[::1/runs"])
def test_what_is_no_url_is_told_without_the_password(rest):
    line = refused(StoreTrouble.UNUSABLE, f"postgresql://me:{PASSWORD}{rest}")
    assert "give FILE.db or postgresql://USER:PASSWORD@HOST:PORT/NAME" in line


def test_a_missing_driver_says_what_to_install(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    line = refused(StoreTrouble.UNREACHABLE, f"postgresql://me:{PASSWORD}@127.0.0.1/runs")
    assert line == "no driver for PostgreSQL: pip install 'kernelwright[postgres]'"


def test_another_driver_and_another_kind_of_server_say_what_there_is():
    line = refused(StoreTrouble.UNREACHABLE, f"postgresql+nosuch://me:{PASSWORD}@127.0.0.1/runs")
    assert line.startswith(
        "no driver for postgresql+nosuch: give postgresql://USER:PASSWORD@HOST:PORT/NAME"
    )
    assert "no driver for nosuch: give FILE.db" in refused(
        StoreTrouble.UNREACHABLE, "nosuch://host/name"
    )


def test_a_wrong_password_user_name_or_port_is_one_line_with_the_servers_own_reason(postgres):
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    good = f"{postgres.url}/postgres"
    wrong = {
        "password authentication failed": good.replace(PASSWORD, "guessed"),
        'database "nosuch" does not exist': f"{postgres.url}/nosuch",
        "onnection refused": good.replace(str(postgres.port), str(unused)),
        "failed to resolve host": good.replace("127.0.0.1", "no-such-host.invalid"),
    }
    for reason, url in wrong.items():
        line = refused(StoreTrouble.UNREACHABLE, url)
        assert reason in line
        assert (
            "check that the server runs, and the URL's user, password, host, port and name" in line
        )


def test_a_server_that_accepts_and_says_nothing_is_not_waited_for_for_ever():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        url = (
            f"postgresql://me:{PASSWORD}@127.0.0.1:{silent.getsockname()[1]}/runs?connect_timeout=2"
        )
        assert "timeout expired" in refused(StoreTrouble.UNREACHABLE, url)
    assert time.monotonic() - began < 30


def test_who_only_reads_makes_no_tables_in_an_empty_database(postgres_url):
    import sqlalchemy

    for options in ({"readonly": True}, {"create": False}):
        assert "holds nothing yet" in refused(StoreTrouble.MISSING, postgres_url, **options)
    engine = sqlalchemy.create_engine(address_of(postgres_url))
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_a_lock_is_waited_for_as_long_as_asked(postgres_url):
    import psycopg

    with Store.open(postgres_url, wait=0.5) as store, psycopg.connect(postgres_url) as other:
        trajectory = store.begin(make.start())
        other.execute("LOCK TABLE trajectory IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError) as caught:
            write_turn(store, trajectory, 0)
        assert caught.value.trouble is StoreTrouble.LOCKED
        other.rollback()
        write_turn(store, trajectory, 0)
        assert len(store.turns(trajectory.id)) == 1


def test_writers_on_several_machines_share_texts_without_deadlock_and_lose_nothing(postgres_url):
    Store.open(postgres_url).close()
    troubles = []

    def write(number):
        try:
            with Store.open(postgres_url) as store:
                run = store.open_run("shared")
                for sample in range(number, 18, 3):
                    trajectory = store.begin(make.start(), run_id=run.id, sample=sample)
                    for turn in range(3):
                        place = sample // 3  # three samples at a time have the same texts
                        row = store.draft(
                            trajectory.id, make.request(turn, place), action=Action.DRAFT
                        )
                        store.complete(
                            row.id, make.completion(turn, place), make.source(turn, place)
                        )
                        store.judge(row.id, make.wrong(turn, place))
                    store.finish(trajectory.id, "turns")
        except StoreError as error:
            troubles.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    with Store.open(postgres_url, readonly=True) as store:
        rows = store.trajectories(TrajectoryFilter(run="shared"), limit=None)
        assert sorted(row.sample for row in rows) == list(range(18))
        for row in rows:
            expected = [make.completion(turn, row.sample // 3) for turn in range(3)]
            assert [turn.completion for turn in store.turns(row.id)] == expected


def test_a_server_that_crashes_ends_what_writes_in_one_line_and_has_all_that_was_finished():
    with postgres_server() as server:
        where = server.new_place()
        with Store.open(where) as store:
            trajectory = store.begin(make.start())
            finished = [write_turn(store, trajectory, turn) for turn in range(3)]
            row = store.draft(trajectory.id, make.request(3), action=Action.DRAFT)
            server.stop()
            with pytest.raises(StoreError) as caught:
                store.complete(row.id, make.completion(3), make.source(3))
            assert caught.value.trouble is StoreTrouble.UNREACHABLE
            assert PASSWORD not in str(caught.value)
            server.start()
            entries = store.candidates(CandidateFilter(state=CandidateState.JUDGED), limit=None)
            assert sorted(entry.candidate.id for entry in entries) == finished
            store.complete(row.id, make.completion(3), make.source(3))
            store.judge(row.id, make.wrong(3))
            assert [turn.state for turn in store.turns(trajectory.id)] == [
                CandidateState.JUDGED
            ] * 4
