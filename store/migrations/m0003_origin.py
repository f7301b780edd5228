"""Version 3: author of a candidate's text. Older rows name the author as their policy."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

ADD_COLUMN = "ALTER TABLE candidate ADD COLUMN origin VARCHAR(32) NOT NULL DEFAULT 'policy'"
FILL_COLUMN = "UPDATE candidate SET origin = policy WHERE policy IN ('compiler', 'file')"


def apply(connection: Connection) -> None:
    """Adds the column `origin` and fills existing rows."""
    connection.execute(text(ADD_COLUMN))
    connection.execute(text(FILL_COLUMN))
