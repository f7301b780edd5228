"""Draft of a transformation as a value, and the request for it. Imports no torch and executes no
problem file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.policies.base import Value

TRANSFORMATION_ENTRY = "kernelwright.policies.transformations.process:serve"
"""Entry point (`module:function`) of the sandboxed process."""
TRANSFORMATION_WARM_UP = "kernelwright.policies.transformations.process:warm"
TRANSFORMATION_SECONDS = 30.0

ALGEBRA_MARK = "# Exact algebra: operations of the problem are not made. What that gains is no speed of the same work."
"""A line of the head of such a draft."""

PATTERN_WORDS = (
    "logsumexp",
    "sum(",
    "mean(",
    "max(",
    "min(",
    "matmul",
    "mm(",
    " @ ",
)
"""Words of a problem's text; a transformation can fit only if at least one occurs."""

NORM_WORDS = ("LayerNorm", "layer_norm", "RMSNorm", "rms_norm")
PRODUCT_WORDS = ("Linear", "linear(", *PATTERN_WORDS[-3:])
"""Words for a product, which must occur beside a norm for a transformation to fit."""

Runner = Callable[[str, dict[str, Any], float], dict[str, Any]]
"""Calls an entry with a payload in a process of its own, for so many seconds, and returns its answer."""


class TransformedDraft(Value):
    """A candidate, or why there is none."""

    source: str = ""
    transformation: str = ""
    """The name of the transformation, such as `a reduction in two stages`."""
    algebra: bool = False
    """Whether algebra removes operations of the problem; such a gain is not a speedup of the same
    work.
    """
    refused: str = ""
    """Reason for a refusal, in one line."""
    seconds: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether there is a text to judge."""
        return bool(self.source)


def may_transform(source: str) -> bool:
    """Whether a problem's text names anything a transformation looks for; a cheap look before a
    process starts.
    """
    pattern, product, norm = (
        any(word in source for word in words)
        for words in (PATTERN_WORDS, PRODUCT_WORDS, NORM_WORDS)
    )
    return pattern or (product and norm)


def transform(
    source: str, run: Runner, seconds: float = TRANSFORMATION_SECONDS
) -> TransformedDraft:
    """Returns the draft for a problem's text. Never raises for a faulty problem."""
    if not may_transform(source):
        return TransformedDraft(refused="it names nothing that is transformed")
    answer = run(TRANSFORMATION_ENTRY, {"source": source}, seconds)
    fields = {name: answer[name] for name in TransformedDraft.model_fields if name in answer}
    return TransformedDraft.model_validate(fields)
