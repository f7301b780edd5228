"""Turns pydantic's errors about a request, a file or an option into plain messages.

pydantic addresses Python programmers: `Tuple should have at most 256 items after validation`. A
client that sends JSON, or a coding agent that calls a tool, reads instead:
`submissions: has 300 entries: give at most 256`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_FIELD_ERROR_CHARACTERS = 1000
"""Characters of one message."""
_OBJECT = "must be an object, {{...}}"
_WHOLE_NUMBER = "must be a whole number"
_NUMBER = "must be a number"
_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "string_type": "must be a text",
    "string_too_long": "is longer than {max_length} characters",
    "string_pattern_mismatch": "must have the form {pattern}",
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list, [...]",
    "list_type": "must be a list, [...]",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "too_long": "has {actual_length} entries: give at most {max_length}",
    "too_short": "has {actual_length} entries: give at least {min_length}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "json_invalid": "is not JSON: {error}",
    "value_error": "{error}",
}
"""Message templates by pydantic's error type, filled from the error's context."""


def describe_field_error(error: Mapping[str, Any], whole: str, outer_parts: int = 0) -> str:
    """Returns one line, `field: message`, for one error of pydantic or FastAPI.

    whole: name of the whole value, such as `the body`, for an error without a field. outer_parts:
    number of leading parts of the location to leave out, such as FastAPI's `body`.
    """
    location = error["loc"][outer_parts:]
    if error["type"] == "json_invalid":
        # FastAPI's location is the number of a character.
        location = ()
    template = _MESSAGES.get(error["type"], "")
    message = template.format(**error.get("ctx", {})) if template else error["msg"]
    field_name = ".".join(str(part) for part in location) or whole
    return f"{field_name}: {message}"[:MAX_FIELD_ERROR_CHARACTERS]
