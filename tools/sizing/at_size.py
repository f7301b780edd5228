"""One size at which a candidate is checked."""

from __future__ import annotations

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.input_layouts import InputLayout
from kernelwright.tools.trace.trace import Change


class AtSize(Value):
    """A size at which a candidate is checked."""

    index: int
    """The index of its trace."""
    problem: Problem
    """The problem at this size."""
    sizes: dict[str, int] = {}
    """Module-level integers of the reference that were changed."""
    why: str = ""
    strategy: str = ""
    """Strategies by which the size was drawn: "one, edge of a block"; "base" for the base size."""
    required: bool = False
    """The candidate may not refuse the size."""
    spare: bool = False
    """Examined only as a replacement for a size that the candidate itself refuses."""
    one_call: bool = False
    """Only a single call is made, regardless of its length: the size is larger than most, and there
    are several."""
    turn: int = 0
    """Rank among the other sizes, the largest first: draws of single calls alternate by rank."""
    layouts: tuple[InputLayout | None, ...] = ()
    """Layout of each tensor input, None for the problem's own; empty if all are the problem's own.
    """
    like: int | None = None
    """With `layouts`: index of the trace at this size with the problem's own layouts, if any."""
    is_empty: bool = False
    """Whether an extent is zero."""
    changes: tuple[Change, ...] = ()
    """Changed surroundings of the calls in its trace."""

    @property
    def is_degenerate(self) -> bool:
        """True if an extent is 1: sums, softmaxes and losses then return their input, or a
        constant."""
        return 1 in self.sizes.values()

    @property
    def text(self) -> str:
        """Returns the changed integers: `rows=5, columns=7`."""
        return ", ".join(f"{name}={value}" for name, value in self.sizes.items())
