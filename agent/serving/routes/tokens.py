"""The clients of a token file, what each may do, and the client of a request."""

from __future__ import annotations

import hmac
import re
import secrets
from enum import StrEnum
from pathlib import Path

from kernelwright.errors import InputError

ANONYMOUS = "anonymous"
OWNER = "owner"
"""The client of a token that the server made itself."""
MIN_TOKEN_CHARACTERS = 16
"""Characters of a token."""
LINE_FORM = (
    f"write `CLIENT TOKEN`, the token with at least {MIN_TOKEN_CHARACTERS} characters, "
    "then `names-only` or `admin`"
)


class Right(StrEnum):
    """What a line of a token file says of its client."""

    NAMES_ONLY = "names-only"
    """It names problems of the server, and sends no references."""
    ADMIN = "admin"
    """It may delete verdicts of every client, and have them judged again."""


class Tokens:
    """Tokens to names of clients. Without any, everyone is `anonymous`."""

    def __init__(
        self, names: dict[str, str], rights: dict[str, frozenset[Right]] | None = None
    ) -> None:
        """names: the client of each token. rights: of each client that has any."""
        self._names = {token.encode(): client for token, client in names.items()}
        self._rights = rights or {}

    @classmethod
    def read(cls, file: Path) -> Tokens:
        """Reads a line `CLIENT TOKEN [names-only|admin]` for each client; `#` begins a comment. Raises InputError."""
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--token-file {file} cannot be read: {error}") from None
        names: dict[str, str] = {}
        rights: dict[str, frozenset[Right]] = {}
        for number, line in enumerate(lines, 1):
            if not (words := line.partition("#")[0].split()):
                continue
            client, token, line_rights = _read_line(words, f"{file}:{number}")
            if rights.setdefault(client, line_rights) != line_rights:
                raise InputError(
                    f"{file}:{number}: {client} has other rights in an earlier line: give it the same ones"
                )
            names[token] = client
        if not names:
            raise InputError(f"{file} names no client: {LINE_FORM}")
        return cls(names, rights)

    @classmethod
    def generate(cls) -> tuple[Tokens, str]:
        """Makes the tokens of a server of one user, who may do everything, and returns them with the token."""
        token = secrets.token_urlsafe(24)
        return cls({token: OWNER}, {OWNER: frozenset({Right.ADMIN})}), token

    def take_over(self, other: Tokens) -> None:
        """Replaces every client and right by those of another value; requests under way go on."""
        self._names, self._rights = other._names, other._rights

    @property
    def needed(self) -> bool:
        """Whether requests must carry a token."""
        return bool(self._names)

    def has(self, client: str, right: Right) -> bool:
        """Whether a client's line says this of it."""
        return right in self._rights.get(client, ())

    def client(self, header: str | None) -> str | None:
        """Returns the client of an Authorization header; None where it has no valid token."""
        if not self._names:
            return ANONYMOUS
        kind, _, given = (header or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        known = None
        for token, client in self._names.items():  # all of them: the time tells nothing
            if hmac.compare_digest(token, given.strip().encode("utf-8", "surrogateescape")):
                known = client
        return known


def _read_line(words: list[str], line: str) -> tuple[str, str, frozenset[Right]]:
    """Returns the client, its token and its rights. Raises InputError."""
    rights = frozenset(Right(word) for word in words[2:] if word in list(Right))
    is_name = re.fullmatch(r"[\w.-]{1,64}", words[0])
    if not is_name or len(words) != 2 + len(rights) or len(words[1]) < MIN_TOKEN_CHARACTERS:
        raise InputError(f"{line}: {LINE_FORM}")
    return words[0], words[1], rights
