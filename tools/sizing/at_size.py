"""One size at which a candidate is checked."""

from __future__ import annotations

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.input_layouts import InputLayout
from kernelwright.tools.trace.trace import Change


class AtSize(Value):
    """One size that a candidate is checked at."""

    index: int
    """The index of its trace."""
    problem: Problem
    """The problem at this size."""
    sizes: dict[str, int] = {}
    """Module-level integers of the reference that were changed."""
    why: str = ""
    strategy: str = ""
    """The strategies by which it was drawn: "one, edge of a block"; "base" for the base size."""
    required: bool = False
    """Whether the candidate may not refuse it."""
    spare: bool = False
    """Whether it is examined only in the place of another one that the candidate itself refuses."""
    one_call: bool = False
    """Whether one call is all that is made there however long it is: it is larger than most, and there are several."""
    turn: int = 0
    """Its place among the other sizes, the largest first: the draws of single calls take turns by it."""
    layouts: tuple[InputLayout | None, ...] = ()
    """The layout of each input that is a tensor, None for the problem's own; empty where all are the problem's own."""
    like: int | None = None
    """With `layouts`: the index of the trace at this size with the problem's own layouts, where there is one."""
    is_empty: bool = False
    """Whether an extent is zero."""
    changes: tuple[Change, ...] = ()
    """What surrounds the calls of its trace otherwise than usual."""

    @property
    def is_degenerate(self) -> bool:
        """Whether an extent is 1, where sums, softmaxes and losses give back what they are given, or nothing."""
        return 1 in self.sizes.values()
