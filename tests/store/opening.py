"""A store's file as these tests open, fill and look into it."""

import sqlite3
from contextlib import closing, contextmanager

import pytest
import turnmaking as make

from kernelwright.store.connection.errors import StoreError
from kernelwright.store.database import Store
from kernelwright.store.models import Action


def refused(trouble, where, **options):
    """Opens it, and gives the one line."""
    with pytest.raises(StoreError) as caught:
        Store.open(where, **options)
    assert caught.value.trouble is trouble
    assert "\n" not in str(caught.value)
    return str(caught.value)


@contextmanager
def plainly(path):
    """sqlite3 itself, without the store."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def write(store, turns=2):
    trajectory = store.begin(make.start())
    for turn in range(turns):
        row = store.draft(trajectory.id, make.request(turn), action=Action.DRAFT)
        store.complete(row.id, make.completion(turn), make.source(turn))
        store.judge(row.id, make.wrong(turn))
    return trajectory
