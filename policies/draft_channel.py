"""The channel on which a sandboxed draft process answers."""

from __future__ import annotations

from typing import Any, Protocol


class DraftChannel(Protocol):
    """The part of the sandbox's channel that a draft process needs."""

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message of JSON values."""
