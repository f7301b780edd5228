"""Reads rate limits from headers such as `x-ratelimit-remaining-requests: 59` or
`ratelimit-remaining: 59`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REMAINING = re.compile(
    r"^(?P<before>(?:[a-z]+-)*)ratelimit-(?P<unit>(?:[a-z]+-)*)remaining(?P<after>(?:-[a-z]+)*)$"
)


def describe_rate_limits(headers: Mapping[str, str]) -> str:
    """Returns `59 of 60 requests left, 9,000 of 10,000 tokens left`; empty without such headers.

    Each header with a remaining number is paired with the header of its limit. OpenAI puts the
    unit after the word
    `remaining`, Anthropic before it.
    """
    numbers = {
        name.lower(): int(value) for name, value in headers.items() if value.strip().isdecimal()
    }
    parts = []
    for name, remaining in sorted(numbers.items()):
        match = _REMAINING.match(name)
        if match is None:
            continue
        unit = (match["unit"].strip("-") or match["after"].strip("-") or "requests").replace(
            "-", " "
        )
        limit = numbers.get(name.replace("remaining", "limit"))
        parts.append(f"{remaining:,}{'' if limit is None else f' of {limit:,}'} {unit} left")
    return ", ".join(parts)
