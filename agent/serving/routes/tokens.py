"""The clients of a token file, and the client of a request."""

from __future__ import annotations

import hmac
import re
from pathlib import Path

from kernelwright.errors import InputError

ANONYMOUS = "anonymous"
MIN_TOKEN_CHARACTERS = 16
"""Characters of a token."""


class Tokens:
    """Tokens to names of clients. Without any, everyone is `anonymous`."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = {token.encode(): client for token, client in names.items()}

    @classmethod
    def read(cls, file: Path | None) -> Tokens:
        """A line `CLIENT TOKEN` for each client; `#` begins a comment. Raises InputError."""
        if file is None:
            return cls({})
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--token-file {file} cannot be read: {error}") from None
        names: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not (words := line.partition("#")[0].split()):
                continue
            if len(words) != 2 or not re.fullmatch(r"[\w.-]{1,64}", words[0]) or len(words[1]) < MIN_TOKEN_CHARACTERS:
                raise InputError(
                    f"{file}:{number}: write `CLIENT TOKEN`, the token with at least {MIN_TOKEN_CHARACTERS} characters"
                )
            names[words[1]] = words[0]
        if not names:
            raise InputError(f"{file} names no client: write a line `CLIENT TOKEN`")
        return cls(names)

    @property
    def needed(self) -> bool:
        """Whether requests must carry a token."""
        return bool(self._names)

    def client(self, header: str | None) -> str | None:
        """Returns the client of an Authorization header; None where it has no valid token."""
        if not self._names:
            return ANONYMOUS
        kind, _, given = (header or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        found = None
        for token, client in self._names.items():  # all of them: the time tells nothing
            if hmac.compare_digest(token, given.strip().encode("utf-8", "surrogateescape")):
                found = client
        return found
