"""The exception that every floor may raise for unusable user input.

This module lies below `tools` and `policies` and imports nothing, so that every floor can import it. It holds only what
all of them need; an exception of one floor belongs to that floor.
"""

from __future__ import annotations


class InputError(ValueError):
    """Something that the user gave cannot be used. The message is one line and says what to do."""
