"""Version 3: where a candidate's text came from. What older rows say of it is in their policy's name."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

ADD_COLUMN = "ALTER TABLE candidate ADD COLUMN origin VARCHAR(32) NOT NULL DEFAULT 'policy'"
FILL_COLUMN = "UPDATE candidate SET origin = policy WHERE policy IN ('compiler', 'file')"


def apply(connection: Connection) -> None:
    """Adds the column that says who wrote a candidate, and fills it for the rows that are there."""
    connection.execute(text(ADD_COLUMN))
    connection.execute(text(FILL_COLUMN))
