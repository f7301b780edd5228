"""Validates and writes rows.

Statements are plain SQL, prepared once: a turn takes three transactions and has a budget of about
a millisecond.
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
    """Returns the row with this id. Raises StoreError if there is none."""
    if (row := connection.execute(_select(table), {"row_id": id}).first()) is None:
        raise missing(table, id)
    return row_from_values(table, row._asdict())


def check_there(connection: Connection, table: type[StoredRow], id: int) -> None:
    """Raises StoreError if there is no row with this id."""
    if connection.execute(_select_id(table), {"row_id": id}).first() is None:
        raise missing(table, id)


def row_from_values(table: type[AnyRow], values: Mapping[str, Any]) -> AnyRow:
    """Creates a row for reading from all column values, detached from any session."""
    return table.model_construct(**values)


def missing(table: type[StoredRow], id: int) -> StoreError:
    """Returns the StoreError for a missing row, for the caller to raise."""
    return StoreError(
        f"no {table.__name__.lower()} {id} in this database: `agent inspect` lists what there is",
        StoreTrouble.MISSING,
    )


def add_row(connection: Connection, table: type[StoredRow], values: Mapping[str, Any]) -> int:
    """Adds a row with defaults filled in and returns its id.

    Raises StoreError if a value contradicts its field's type.
    """
    check_values(table, values)
    return int(connection.execute(_insert(table), {**_defaults(table), **values}).scalar_one())


def add_and_read(connection: Connection, table: type[AnyRow], values: Mapping[str, Any]) -> AnyRow:
    """Adds a row and returns the row without reading from the database."""
    id = add_row(connection, table, values)
    return row_from_values(table, {**_defaults(table), **values, "id": id})


def update_row(
    connection: Connection, table: type[StoredRow], id: int, values: Mapping[str, Any]
) -> None:
    """Changes fields of a row. Raises StoreError if a value contradicts its field's type."""
    check_values(table, values)
    connection.execute(_update(table), {**values, "row_id": id})


def check_values(table: type[StoredRow], values: Mapping[str, Any]) -> None:
    """Raises StoreError for the first value that contradicts its field's type."""
    validators = _validators(table)
    for name, value in values.items():
        try:
            validators[name](value)
        except ValidationError as error:
            # Only the first fault of the first bad field: the message is a single line.
            first = error.errors(include_url=False)[0]
            raise StoreError(
                f"{table.__name__}.{name} was not saved: {first['msg']}, got {str(first['input'])[:80]!r}",
                StoreTrouble.INVALID,
            ) from error


@cache
def _validators(table: type[StoredRow]) -> dict[str, Callable[[Any], Any]]:
    """Returns a strict validator for each field, so that values are saved unconverted.

    The database assigns `id`.
    """
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
