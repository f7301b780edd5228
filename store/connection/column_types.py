"""Column types that validate values on writing."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from sqlalchemy import Dialect, String, Text
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel


class EnumText(TypeDecorator[StrEnum]):
    """Stores a StrEnum by value (SQLAlchemy's Enum type stores names)."""

    impl = String(32)
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Returns the value of the enum member as text.

        Raises ValueError for other values, which SQLModel would save.
        """
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:
        """Returns the enum member of a stored text.

        Raises ValueError if there is no such member.
        """
        return None if value is None else self.kind(value)


class JsonText(TypeDecorator[Any]):
    """Stores JSON as text with sorted keys, so that equal values have equal texts.

    NaN and infinities are refused.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str | None:
        """Returns the value as compact JSON with sorted keys.

        Raises ValueError for NaN and infinities.
        """
        if value is None:
            return None
        return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Parses a stored JSON text."""
        return None if value is None else json.loads(value)


class StoredRow(SQLModel):
    """Base class of table rows, used for reading.

    SQLModel does not validate table models, so `store.rows` validates and writes all rows.
    """
