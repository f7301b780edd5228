"""Column types that keep their promise."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from sqlalchemy import Dialect, String, Text
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel


class EnumText(TypeDecorator[StrEnum]):
    """A StrEnum stored as its value (SQLAlchemy's own Enum stores names)."""

    impl = String(32)
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Returns the member's value as text. Raises ValueError for a value that is no member, which SQLModel would
        save.
        """
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:
        """The member that a stored text names. Raises ValueError where it names none."""
        return None if value is None else self.kind(value)


class JsonText(TypeDecorator[Any]):
    """Plain JSON as text, keys sorted, so that equal values are equal texts. NaN and infinities are refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The value as compact JSON with sorted keys. Raises ValueError for numbers that JSON lacks, as infinity."""
        return (
            None
            if value is None
            else json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
        )

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value that the stored JSON text holds."""
        return None if value is None else json.loads(value)


class StoredRow(SQLModel):
    """A table's row, for reading.

    SQLModel does not validate tables, so rows are written by `store.rows`, which does.
    """
