"""Every way in which a database may not be what it should: one line that says what to do, and nothing changed or
lost.
"""

import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest
import turnmaking as make
from opening import plainly, refused, write

from kernelwright.store.connection.engine import network_disk, open_file, set_journal
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.migrations import APPLICATION_ID, CURRENT_VERSION
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryFilter

FORK = get_context("fork")


def test_a_new_file_is_ours_and_in_wal_mode_with_foreign_keys(path):
    with Store.open(path) as store:
        write(store)
        with plainly(path) as plain:
            assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert plain.execute("PRAGMA user_version").fetchone() == (CURRENT_VERSION,)
            assert plain.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert plain.execute("PRAGMA foreign_key_check").fetchall() == []
        with store._engines.writer.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    assert not path.with_name("runs.db-wal").exists()


def test_a_url_of_sqlite_is_a_path(path):
    with Store.open(f"sqlite:///{path}") as store:
        assert store.where == str(path)


def test_a_missing_file_is_only_made_when_that_is_meant(path):
    assert "--db names another" in refused(StoreTrouble.MISSING, path, create=False)
    assert "--db names another" in refused(StoreTrouble.MISSING, path, readonly=True)
    assert not path.exists()


def test_a_missing_folder_and_a_folder_are_refused(tmp_path):
    assert "make it first" in refused(StoreTrouble.MISSING, tmp_path / "no" / "runs.db")
    assert "cannot be opened" in refused(StoreTrouble.MISSING, tmp_path)


def test_a_file_that_is_no_database_is_left_alone(path):
    path.write_text("import torch\n" * 100)
    assert "is not a kernelwright database" in refused(StoreTrouble.FOREIGN, path)
    assert path.read_text() == "import torch\n" * 100


def test_the_database_of_another_program_is_left_alone(path):
    with plainly(path) as other:
        other.execute("CREATE TABLE candidate (id INTEGER)")
    before = path.read_bytes()
    assert "belongs to another program" in refused(StoreTrouble.FOREIGN, path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(path):
    Store.open(path).close()
    with plainly(path) as newer:
        newer.execute(f"PRAGMA user_version = {CURRENT_VERSION + 1}")
    assert (
        f"schema version {CURRENT_VERSION + 1}, this program knows {CURRENT_VERSION}: update kernelwright"
        in refused(StoreTrouble.NEWER, path)
    )


@pytest.mark.parametrize("where", ["sqlite://", ":memory:", "sqlite:///:memory:"])
def test_a_database_in_memory_is_refused(where):
    assert "would be lost" in refused(StoreTrouble.UNUSABLE, where)


def test_nonsense_urls_and_missing_drivers_are_told_apart():
    assert "is no database URL" in refused(StoreTrouble.UNUSABLE, "://")
    assert "no driver for nosuch" in refused(StoreTrouble.UNREACHABLE, "nosuch://host/name")


def test_tables_of_another_program_on_a_server_are_left_alone(postgres_url):
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("CREATE TABLE run (id INTEGER)")
    assert "belongs to another program" in refused(StoreTrouble.FOREIGN, postgres_url)


def test_a_damaged_file_says_how_to_save_the_rest(path):
    with Store.open(path) as store:
        write(store)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with (
        pytest.raises(StoreError, match=r"sqlite3 FILE .recover") as caught,
        Store.open(path) as store,
    ):
        store.trajectories()
    assert caught.value.trouble is StoreTrouble.CORRUPT


def hold_the_lock(path, locked, let_go):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    locked.set()
    let_go.wait(500)
    connection.execute("COMMIT")


@contextmanager
def locked_by_another_process(path):
    locked, let_go = FORK.Event(), FORK.Event()
    other = FORK.Process(target=hold_the_lock, args=(path, locked, let_go))
    other.start()
    assert locked.wait(500)
    yield
    let_go.set()
    other.join(500)


def test_while_another_process_holds_the_lock_we_read_and_wait_and_then_go_on(path):
    Store.open(path).close()
    with Store.open(path, wait=0.2) as store:
        trajectory = write(store)
        with locked_by_another_process(path):
            with pytest.raises(
                StoreError, match="is locked by another process: wait for it or stop it"
            ) as caught:
                store.draft(trajectory.id, make.request(2), action=Action.DRAFT)
            assert caught.value.trouble is StoreTrouble.LOCKED
            assert len(store.turns(trajectory.id)) == 2
            refused(StoreTrouble.LOCKED, path, wait=0.2)
            with Store.open(path, readonly=True) as reader:
                assert reader.count() == 2
        assert store.draft(trajectory.id, make.request(2), action=Action.DRAFT).turn == 2


def in_child(work, *arguments):
    """Runs it in a fork, whose limits and user are its own; gives what it returned."""
    receiver, sender = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: sender.send(work(*arguments)))
    child.start()
    sender.close()
    result = receiver.recv()
    child.join(500)
    return result


def read_as_nobody(path):
    """What somebody sees who may read, and no more."""
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        Store.open(path).close()
    except StoreError as error:
        writing = error.trouble
    else:
        writing = None
    with Store.open(path, readonly=True) as store:
        try:
            store.begin(make.start())
        except StoreError as error:
            return (
                writing,
                error.trouble,
                store.count(),
                len(store.search("offsets_0_1")),
                store.stats().verdicts,
            )
    return None


def test_a_database_that_may_only_be_read_is_read_and_says_so_when_it_is_written():
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-"))
    path = folder / "runs.db"
    with Store.open(path) as store:
        write(store)
    path.chmod(0o444)
    folder.chmod(0o555)
    assert in_child(read_as_nobody, path) == (
        StoreTrouble.READ_ONLY,
        StoreTrouble.READ_ONLY,
        2,
        1,
        2,
    )
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 3 MB, with 1 MB of ballast that can be taken away."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=False
        ).returncode
    ):
        pytest.skip("only root can mount a small disk")
    (folder / "ballast").write_bytes(bytes(1_000_000))
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(store, trajectory):
    """Writes turns until it cannot; gives how many were finished."""
    for turn in range(1000):
        try:
            row = store.draft(trajectory.id, make.request(turn), action=Action.DRAFT, turn=turn)
            store.complete(
                row.id, make.completion(turn, text=os.urandom(20_000).hex()), make.source(turn)
            )
            store.judge(row.id, make.wrong(turn))
        except StoreError as error:
            return turn, error
    raise AssertionError("the disk is too large")


def go_on(store, trajectory, turn):
    """What the same command does: takes the turn up where it is."""
    there = [found for found in store.turns(trajectory.id) if found.turn == turn]
    if not there or there[0].state == "drafting":
        row = store.draft(trajectory.id, make.request(turn), action=Action.DRAFT, turn=turn)
        store.complete(row.id, make.completion(turn), make.source(turn))
        store.judge(row.id, make.wrong(turn))
    else:
        store.judge(there[0].candidate_id, make.wrong(turn))


def test_a_full_disk_loses_nothing_and_the_same_command_goes_on_when_there_is_room(small_disk):
    with Store.open(small_disk / "runs.db") as store:
        trajectory = store.begin(make.start())
        finished, error = fill(store, trajectory)
        assert error.trouble is StoreTrouble.FULL
        assert "free some space, then run the same command again" in str(error)
        assert finished > 2
        assert len(list(store.samples())) == finished
        (small_disk / "ballast").unlink()
        go_on(store, trajectory, finished)
        assert len(list(store.samples())) == finished + 1
    with plainly(small_disk / "runs.db") as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def write_under_a_limit(path):
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Store.open(path) as store:
        trajectory = store.begin(make.start())
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        finished, error = fill(store, trajectory)
        return finished, error.trouble, len(list(store.samples()))


def test_a_quota_is_a_full_disk(path):
    finished, trouble, samples = in_child(write_under_a_limit, path)
    assert (trouble, samples) == (StoreTrouble.FULL, finished)
    with Store.open(path) as store:
        assert len(list(store.samples())) == finished > 0


def test_a_network_disk_is_recognised_by_its_mount(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path}/far\\040away nfs4 rw 0 0\ntmpfs {tmp_path}/near tmpfs rw 0 0\n"
    )
    assert network_disk(tmp_path / "far away" / "runs.db", mounts) == "nfs4"
    assert network_disk(tmp_path / "near" / "runs.db", mounts) is None
    assert network_disk(tmp_path / "runs.db", mounts) is None
    assert network_disk(tmp_path / "runs.db", tmp_path / "nothing") is None


def test_on_a_network_disk_the_journal_is_no_wal(path, monkeypatch, caplog):
    monkeypatch.setattr("kernelwright.store.connection.engine.network_disk", lambda path: "nfs4")
    with Store.open(path) as store:
        write(store)
        assert store.count() == 2
        with plainly(path) as plain:
            assert plain.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert "network disk (nfs4)" in caplog.text


def test_a_server_is_migrated_once_and_found_again(postgres_url):
    with Store.open(postgres_url) as store:
        trajectory = write(store)
    with Store.open(postgres_url, readonly=True) as store:
        assert len(store.turns(trajectory.id)) == 2
        assert store.trajectories(TrajectoryFilter(finished=False))[0].id == trajectory.id
        with pytest.raises(StoreError, match="reading only"):
            store.begin(make.start())


def test_the_journals_mode_waits_for_who_writes_the_new_file_at_that_moment(tmp_path):
    """SQLite gives up at once where the mode is to be changed and another holds the write lock."""
    path = tmp_path / "runs.db"
    engines = open_file(path, create=True, readonly=False, wait=5.0)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE early (x)")
    timer = threading.Timer(0.4, other.execute, ("COMMIT",))
    timer.start()
    set_journal(engines, 5.0)
    timer.join()
    other.close()
    engines.dispose()
    with closing(sqlite3.connect(path)) as late:
        assert late.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
