"""The clients of a token file, what each may do, and the client of a request."""

from __future__ import annotations

import hmac
import re
import secrets
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from kernelwright.errors import InputError

ANONYMOUS = "anonymous"
OWNER = "owner"
"""The client of a token that the server made itself."""
MIN_TOKEN_CHARACTERS = 16
"""Characters of a token."""
LINE_FORM = (
    f"write `CLIENT TOKEN`, the token with at least {MIN_TOKEN_CHARACTERS} characters, "
    "then `names-only`, `admin` or `seconds=N`"
)
BUDGET_WORD = re.compile(r"seconds=(\d{1,9}(?:\.\d{1,3})?)")
"""Judge seconds of a client within an hour, as a line says them."""


class Right(StrEnum):
    """What a line of a token file says of its client."""

    NAMES_ONLY = "names-only"
    """It names problems of the server, and sends no references."""
    ADMIN = "admin"
    """It may delete verdicts of every client, and have them judged again."""


class ClientTerms(NamedTuple):
    """What the lines of a token file say of one client beside its tokens."""

    rights: frozenset[Right] = frozenset()
    budget: float | None = None
    """Judge seconds within an hour; None takes the server's own limit."""


class Tokens:
    """Tokens to names of clients. Without any, everyone is `anonymous`."""

    def __init__(self, names: dict[str, str], terms: dict[str, ClientTerms] | None = None) -> None:
        """names: the client of each token. terms: of each client that has any."""
        self._names = {token.encode(): client for token, client in names.items()}
        self._terms = terms or {}

    @classmethod
    def read(cls, file: Path) -> Tokens:
        """Reads a line `CLIENT TOKEN [names-only|admin] [seconds=N]` for each client; `#` begins a comment.

        Raises InputError.
        """
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--token-file {file} cannot be read: {error}") from None
        names: dict[str, str] = {}
        terms: dict[str, ClientTerms] = {}
        for number, line in enumerate(lines, 1):
            if not (words := line.partition("#")[0].split()):
                continue
            client, token, line_terms = _read_line(words, f"{file}:{number}")
            if terms.setdefault(client, line_terms) != line_terms:
                raise InputError(
                    f"{file}:{number}: {client} has other rights in an earlier line: give it the same ones"
                )
            names[token] = client
        if not names:
            raise InputError(f"{file} names no client: {LINE_FORM}")
        return cls(names, terms)

    @classmethod
    def generate(cls) -> tuple[Tokens, str]:
        """Makes the tokens of a server of one user, who may do everything, and returns them with the token."""
        token = secrets.token_urlsafe(24)
        return cls({token: OWNER}, {OWNER: ClientTerms(frozenset({Right.ADMIN}))}), token

    def take_over(self, other: Tokens) -> None:
        """Replaces every client and right by those of another value; requests under way go on."""
        self._names, self._terms = other._names, other._terms

    @property
    def needed(self) -> bool:
        """Whether requests must carry a token."""
        return bool(self._names)

    def has(self, client: str, right: Right) -> bool:
        """Whether a client's line says this of it."""
        return right in self._terms.get(client, ClientTerms()).rights

    def budget(self, client: str) -> float | None:
        """Returns the judge seconds within an hour that a client's line gives it; None if it gives none."""
        return self._terms.get(client, ClientTerms()).budget

    def client(self, header: str | None) -> str | None:
        """Returns the client of an Authorization header; None where it has no valid token."""
        if not self._names:
            return ANONYMOUS
        kind, _, sent_token = (header or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        client_name = None
        for token, client in self._names.items():  # all of them: the time tells nothing
            if hmac.compare_digest(token, sent_token.strip().encode("utf-8", "surrogateescape")):
                client_name = client
        return client_name


def _read_line(words: list[str], line: str) -> tuple[str, str, ClientTerms]:
    """Returns the client, its token and its terms. Raises InputError."""
    rights = frozenset(Right(word) for word in words[2:] if word in list(Right))
    budgets = [float(budget[1]) for word in words[2:] if (budget := BUDGET_WORD.fullmatch(word))]
    is_name = re.fullmatch(r"[\w.-]{1,64}", words[0])
    has_other_words = len(words) != 2 + len(rights) + len(budgets) or len(budgets) > 1
    if not is_name or has_other_words or len(words[1]) < MIN_TOKEN_CHARACTERS:
        raise InputError(f"{line}: {LINE_FORM}")
    return words[0], words[1], ClientTerms(rights, budgets[0] if budgets else None)
