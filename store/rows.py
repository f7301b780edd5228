"""Rows on their way in, each checked first.

Plain SQL, prepared once: a turn is three of these transactions and has a millisecond or two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.engine import Connection

from kernelwright.store.connection.column_types import StoredRow
from kernelwright.store.connection.errors import StoreError, StoreTrouble

AnyRow = TypeVar("AnyRow", bound=StoredRow)


def existing_row(connection: Connection, table: type[AnyRow], id: int) -> AnyRow:
    """Returns the row. Raises StoreError where there is none."""
    if (row := connection.execute(_select(table), {"row_id": id}).first()) is None:
        raise missing(table, id)
    return row_from_values(table, row._asdict())


def check_there(connection: Connection, table: type[StoredRow], id: int) -> None:
    """Raises StoreError where there is no such row."""
    if connection.execute(_select_id(table), {"row_id": id}).first() is None:
        raise missing(table, id)


def row_from_values(table: type[AnyRow], values: Mapping[str, Any]) -> AnyRow:
    """A row for reading, of all its columns; no session knows it."""
    return table.model_construct(**values)


def missing(table: type[StoredRow], id: int) -> StoreError:
    """Returns the error for a row that is not there; the caller raises it."""
    return StoreError(
        f"no {table.__name__.lower()} {id} in this database: `agent inspect` lists what there is",
        StoreTrouble.MISSING,
    )


def add_row(connection: Connection, table: type[StoredRow], values: Mapping[str, Any]) -> int:
    """A new row, its fields' defaults filled in; gives its id.

    Raises StoreError where a value is not what its field says.
    """
    check_values(table, values)
    return int(connection.execute(_insert(table), {**_defaults(table), **values}).scalar_one())


def add_and_read(connection: Connection, table: type[AnyRow], values: Mapping[str, Any]) -> AnyRow:
    """Adds a row and gives it as it is now: plain values need not be read back."""
    id = add_row(connection, table, values)
    return row_from_values(table, {**_defaults(table), **values, "id": id})


def update_row(
    connection: Connection, table: type[StoredRow], id: int, values: Mapping[str, Any]
) -> None:
    """Changes some fields of a row. Raises StoreError where a value does not have its field's type."""
    check_values(table, values)
    connection.execute(_update(table), {**values, "row_id": id})


def check_values(table: type[StoredRow], values: Mapping[str, Any]) -> None:
    """Raises StoreError for the first value that is not what its field says."""
    validators = _validators(table)
    for name, value in values.items():
        try:
            validators[name](value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise StoreError(
                f"{table.__name__}.{name} was not saved: {first['msg']}, got {str(first['input'])[:80]!r}",
                StoreTrouble.INVALID,
            ) from error


@cache
def _validators(table: type[StoredRow]) -> dict[str, Callable[[Any], Any]]:
    """The validators by field; they are strict, so that what is checked is what is saved. The database gives the id."""
    return {name: _validator(field) for name, field in table.model_fields.items() if name != "id"}


def _validator(field: FieldInfo) -> Callable[[Any], Any]:
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated, config=ConfigDict(strict=True)).validate_python


@cache
def _defaults(table: type[StoredRow]) -> dict[str, Any]:
    fields = [(name, field) for name, field in table.model_fields.items() if name != "id"]
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in fields
        if not field.is_required()
    }


@cache
def _select(table: type[StoredRow]) -> Any:
    target = StoredRow.metadata.tables[str(table.__tablename__)]
    return select(target).where(target.c.id == bindparam("row_id"))


@cache
def _select_id(table: type[StoredRow]) -> Any:
    target = StoredRow.metadata.tables[str(table.__tablename__)]
    return select(target.c.id).where(target.c.id == bindparam("row_id"))


@cache
def _insert(table: type[StoredRow]) -> Any:
    target = StoredRow.metadata.tables[str(table.__tablename__)]
    return insert(target).returning(target.c.id)


@cache
def _update(table: type[StoredRow]) -> Any:
    target = StoredRow.metadata.tables[str(table.__tablename__)]
    return update(target).where(target.c.id == bindparam("row_id"))
