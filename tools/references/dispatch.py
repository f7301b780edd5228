"""Dispatch modes that do not pull in torch._dynamo (over a second) the first time they see an operator."""

from __future__ import annotations

from typing import Any, TypeVar

Mode = TypeVar("Mode", bound=type)


def without_dynamo(cls: Mode) -> Mode:
    """For a TorchDispatchMode class: newer torch wraps `__torch_dispatch__` so that dynamo skips it, and imports dynamo
    to do so.

    Nothing here is ever compiled, so the wrapper is told that its work is done (torch/_compile.py, `_disable_dynamo`).
    """
    raw: Any = getattr(vars(cls).get("__torch_dispatch__"), "__wrapped__", None)
    if raw is not None:
        setattr(raw, "__dynamo_disable", raw)  # a name that the class body would mangle
    return cls
