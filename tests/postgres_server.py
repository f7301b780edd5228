"""A PostgreSQL server of the tests' own on loopback, where Debian's package is installed."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
PASSWORD = "not-for-you"
NUMBERS = itertools.count()


class PostgresServer:
    """Stopped and started again as a test likes; its users need the password."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"postgresql://tester:{PASSWORD}@127.0.0.1:{self.port}"
        """Without the name of a database."""
        (folder / "password").write_text(PASSWORD)
        words = (
            "-A",
            "scram-sha-256",
            "-U",
            "tester",
            "--pwfile",
            folder / "password",
            "-E",
            "UTF8",
        )
        _as_postgres(
            BINARIES[-1] / "initdb", "-D", self._data, "--no-sync", "--locale=C.UTF-8", *words
        )
        self.start()

    def start(self) -> None:
        """Returns when it takes connections."""
        options = f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = self._folder / "log"
        _as_postgres(
            BINARIES[-1] / "pg_ctl", "-D", self._data, "-w", "-l", log, "-o", options, "start"
        )

    def stop(self) -> None:
        """At once, as if it had crashed: it recovers when it is started again."""
        _as_postgres(BINARIES[-1] / "pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def new_place(self) -> str:
        """The URL of an empty schema, which is made faster than a database."""
        import psycopg

        name = f"runs{next(NUMBERS)}"
        with psycopg.connect(f"{self.url}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}/postgres?options=-csearch_path%3D{name}"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Skips the test where no server or no driver is installed."""
    pytest.importorskip(
        "psycopg", reason="psycopg is not installed: pip install 'kernelwright[postgres]'"
    )
    if not BINARIES:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    server = PostgresServer(folder)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _as_postgres(*command: str | Path) -> None:
    """initdb and the server refuse to run as root."""
    prefix = (
        ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        if os.geteuid() == 0
        else []
    )
    done = subprocess.run(
        [*prefix, *map(str, command)], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
