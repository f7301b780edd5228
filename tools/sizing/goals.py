"""Values that describe wishes for drawn sizes: strategies and their goals.

A goal is a wish for the extents of a size (`rows is 1`, `k is twice m`). A strategy is a named list
of goals with a common budget. `covering.py` draws the sizes, each of which meets as many goals as
possible.

Example: of a matmul over m, k and n, the size `m=1, k=96, n=192` meets `m is 1`, `k is 3 * 2**5`,
`n is 3 * 2**6` and `n is twice k`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kernelwright.tools.sizing.comparisons.relations import Relation
from kernelwright.tools.sizing.structure import Budget, SizeStructure

Extents = Mapping[int, int]
"""The extent of each dimension, by the dimension's number; of all or of some."""


@dataclass(frozen=True)
class ExtentGoal:
    """A wish for some extents of one size."""

    words: str
    """The wish in words: "rows 1"."""
    proposals: Callable[[Extents], Iterable[Extents]]
    """Returns extents that meet the goal, the most significant first, given the size's extents so
    far."""
    holds: Callable[[Sequence[int]], bool] = lambda extents: False
    """Returns True if the complete extents of a size meet the goal."""


@dataclass(frozen=True)
class Context:
    """Data from which goals are made."""

    structure: SizeStructure
    names: tuple[str, ...]
    """One for each dimension."""
    full: tuple[int, ...]
    """The problem's own extents."""
    small: tuple[int, ...]
    """The extents at the size around which the structure was learned."""
    blocks: tuple[int, ...]
    """Block sizes and other numbers in the candidate's source, the smallest first; usual ones if it
    names none."""
    numbers: tuple[int, ...]
    """All whole numbers over 8 that its text names."""
    relations: tuple[Relation, ...]
    """Comparisons in the candidate's text."""
    random: Random
    on_cpu: bool

    @property
    def dimensions(self) -> range:
        """Returns the numbers of the dimensions."""
        return range(len(self.names))

    @property
    def inner(self) -> list[int]:
        """Returns the dimensions that are no batch, or all if every one is a batch."""
        return [i for i in self.dimensions if not self.structure.dimensions[i].batch] or list(
            self.dimensions
        )

    def unit(self, dimension: int) -> int:
        """Returns the step of an extent: 8 for channels in groups of eight."""
        floors = self.structure.floors
        return self.structure.value(dimension, [*floors[:dimension], 1, *floors[dimension + 1 :]])


@dataclass(frozen=True)
class Strategy:
    """One reason to draw sizes."""

    name: str
    goals: Callable[[Context], Iterable[ExtentGoal]]
    budget: Budget
    """The largest cost of one of its sizes under the interpreter."""
    by_itself: bool = False
    """Whether its sizes meet no further goal: their other extents are small."""
    tiny: bool = False
    """Whether its extents are so small that they hide mistakes of the others: half of a size's at most are."""
    equals: bool = False
    """Whether extents of one size may be equal, which otherwise hides a transposition."""
    one_call: bool = False
    """Only a single call is made at its sizes, regardless of their length."""
    most: int = 1 << 10
    """Maximum number of sizes drawn for it."""
