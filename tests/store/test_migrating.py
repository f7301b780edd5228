"""Files of earlier versions are migrated whole or not at all, to exactly the tables of the models."""

from opening import plainly, refused, write
from sqlalchemy import create_engine, inspect

from kernelwright.store.connection.column_types import StoredRow
from kernelwright.store.connection.engine import open_file
from kernelwright.store.connection.errors import StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.migrations import migrate


def as_version_1(path):
    """The file as the first version wrote it: without an index."""
    with plainly(path) as plain:
        plain.execute("DROP TABLE candidate_text")
        plain.execute("DROP TABLE verdict_text")
        plain.execute("ALTER TABLE candidate DROP COLUMN origin")
        plain.execute("PRAGMA user_version = 1")


def schema_of(path):
    with plainly(path) as plain:
        return plain.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name"
        ).fetchall()


def test_a_file_of_version_1_is_migrated_with_everything_in_it(path, tmp_path):
    with Store.open(path) as store:
        trajectory = write(store, turns=3)
        before = store.turns(trajectory.id)
    as_version_1(path)
    first = tmp_path / "first.db"
    engines = open_file(first, create=True, readonly=False, wait=1.0)
    assert migrate(engines.writer, "first", upto=1) == 1
    engines.dispose()
    assert schema_of(path) == schema_of(first)
    assert f"run agent db migrate --db {path} first" in refused(
        StoreTrouble.OLDER, path, readonly=True
    )
    with Store.open(path) as store:
        assert store.turns(trajectory.id) == before
        assert [found.entry.candidate.turn for found in store.search("offsets_0_2")] == [2]
        assert len(store.search("mind the mask")) == 0
        assert len(store.search('"last block"')) == 3
    with Store.open(tmp_path / "new.db"):
        assert schema_of(path) == schema_of(tmp_path / "new.db")


def test_a_migration_that_fails_leaves_the_version_before_it(path):
    with Store.open(path) as store:
        write(store)
    as_version_1(path)
    with plainly(path) as plain:
        plain.execute("CREATE TABLE verdict_text (words TEXT)")
    before = schema_of(path)
    refused(StoreTrouble.OTHER, path)
    assert schema_of(path) == before
    with plainly(path) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (1,)
        plain.execute("DROP TABLE verdict_text")
    with Store.open(path) as store:
        assert len(store.search("offsets_0_1")) == 1


def describe(inspector):
    tables = {}
    for table in StoredRow.metadata.tables:
        columns = [
            (c["name"], str(c["type"]), c["nullable"], c["primary_key"])
            for c in inspector.get_columns(table)
        ]
        indexes = sorted(
            (i["name"], tuple(i["column_names"]), i["unique"]) for i in inspector.get_indexes(table)
        )
        keys = sorted(
            (tuple(k["constrained_columns"]), k["referred_table"])
            for k in inspector.get_foreign_keys(table)
        )
        unique = sorted(tuple(u["column_names"]) for u in inspector.get_unique_constraints(table))
        tables[table] = (columns, indexes, keys, unique)
    return tables


def test_the_migrations_make_exactly_the_tables_of_the_models(path, tmp_path, postgres_url):
    Store.open(postgres_url).close()
    Store.open(path).close()
    migrated, modelled = (
        create_engine(f"sqlite:///{path}"),
        create_engine(f"sqlite:///{tmp_path / 'models.db'}"),
    )
    StoredRow.metadata.create_all(modelled)
    assert describe(inspect(migrated)) == describe(inspect(modelled))
    assert len(inspect(migrated).get_foreign_keys("trajectory")) == 4
    migrated.dispose()
    modelled.dispose()
