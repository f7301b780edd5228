"""Real databases: a SQLite file, and a PostgreSQL server of its own on loopback where Debian's package is installed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kernelwright.store.database import Store
from tests.postgres_server import postgres_server


@pytest.fixture(scope="session")
def postgres():
    """Dies with the tests."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres):
    return postgres.new_place()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """A place for a new database, of each kind."""
    return (
        str(tmp_path / "runs.db")
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )


@pytest.fixture
def store(where):
    with Store.open(where) as opened:
        yield opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"
