"""Says in words who wrote the text of a candidate."""

from __future__ import annotations

from kernelwright.policies.base import Completion, Origin


def author_of(completion: Completion) -> str:
    """Returns the author: `policy embedded`, `compiler draft`, `transformation: NAME` or `your file`."""
    match completion.origin:
        case Origin.COMPILER:
            return "compiler draft"
        case Origin.TRANSFORMATION:
            return f"transformation: {completion.revision}"
        case Origin.FILE:
            return "your file"
        case Origin.POLICY:
            return f"policy {completion.policy}"


def tuned_author(author: str) -> str:
    """Returns the author of a text whose numbers a search on a GPU replaced."""
    return f"{author}, then tuned"
