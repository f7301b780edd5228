"""Parses JSON from a candidate's process: every malformed text raises BadMessage and nothing
else.

Beyond JSON's grammar, refuses values which Python reads but which break their users: infinities
and NaN, integers of more than 20 digits, nesting beyond MAX_MESSAGE_NESTING, lone surrogates, and
anything but an object at the top. The cost is linear in the length of the text (times the depth,
at most).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

Message = dict[str, Any]

MAX_MESSAGE_NESTING = 100
"""Maximum nesting depth of arrays and objects in a message."""

_LONG = "a number of more than 20 digits"
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_LONG_NUMBER = re.compile(r"[0-9]{21}")
_LARGE_EXPONENT = re.compile(r"[eE]\+?[0-9]{3}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NOT_A_BRACKET = {code: None for code in range(128) if chr(code) not in "[]{}"}


class BadMessage(ValueError):
    """Raised for bytes which are no valid message."""


def decode(body: bytes) -> Message:
    """Returns the object in `body` (UTF-8). Raises BadMessage."""
    try:
        text = body.decode("utf-8")
        message = json.loads(text, parse_constant=_refuse)
        if not isinstance(message, dict):
            raise BadMessage("not an object")
        _check(text, message)
    except BadMessage:
        raise
    except (json.JSONDecodeError, UnicodeError) as error:
        raise BadMessage(f"not JSON in UTF-8: {str(error)[:200]}") from error
    except ValueError as error:  # Python's own bound on the digits that it converts
        raise BadMessage(_LONG) from error
    except (RecursionError, MemoryError) as error:
        raise BadMessage("nested or long beyond what is read") from error
    return message


def _check(text: str, message: Message) -> None:
    """Checks the strings and numbers of a text known to be well-formed JSON: each string is
    matched whole, in linear time.
    """
    bare = _STRING.sub("", text)
    if _LONG_NUMBER.search(bare):
        raise BadMessage(_LONG)
    if _LARGE_EXPONENT.search(bare):
        json.loads(text, parse_float=_finite)
    if _SURROGATE.search(text):
        json.dumps(message, ensure_ascii=False).encode()
    brackets = bare.translate(_NOT_A_BRACKET)
    for _ in range(MAX_MESSAGE_NESTING):
        if not brackets:
            return
        brackets = brackets.replace("[]", "").replace("{}", "")
    if brackets:
        raise BadMessage(f"nested deeper than {MAX_MESSAGE_NESTING} levels")


def _refuse(name: str) -> NoReturn:
    raise BadMessage(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadMessage("a number beyond the range of a double")
    return value
