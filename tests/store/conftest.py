"""Real databases: a SQLite file, and a PostgreSQL server of its own on loopback where Debian's package is installed."""

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kernelwright.store.database import Store

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
NUMBERS = itertools.count()


def _as_postgres(*command):
    """initdb and the server refuse to run as root."""
    prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    done = subprocess.run([*prefix, *map(str, command)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def postgres():
    """The URL of a server, without the name of a database; dies with the tests."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'kernelwright[postgres]'")
    if not BINARIES:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = folder / "data"
    _as_postgres(
        BINARIES[-1] / "initdb",
        "-D",
        data,
        "-A",
        "trust",
        "-U",
        "tester",
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
    )
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    _as_postgres(BINARIES[-1] / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    yield f"postgresql://tester@127.0.0.1:{port}", psycopg
    _as_postgres(BINARIES[-1] / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres):
    """A schema of its own that is empty: made faster than a database."""
    server, psycopg = postgres
    name = f"runs{next(NUMBERS)}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}/postgres?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """A place for a new database, of each kind."""
    return str(tmp_path / "runs.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(where):
    with Store.open(where) as opened:
        yield opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"
