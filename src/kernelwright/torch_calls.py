"""Types of the arguments with which torch calls `__torch_dispatch__` and `__torch_function__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Types = Sequence[type]
"""Types of the operands that override the operator."""
Args = Sequence[Any]
"""Positional arguments of the operator."""
Kwargs = dict[str, Any] | None
"""Named arguments of the operator; None if there are none."""
