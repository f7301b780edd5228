"""What a drawn size is wanted for, as values: a strategy, its goals, and what they are made from.

A goal is a wish for the extents of one size (`rows is 1`, `k is twice m`). A strategy is a named list of goals with one
budget. `covering.py` draws the sizes, each of which meets as many goals as it can.

Example: of a matmul over m, k and n, the size `m=1, k=96, n=192` meets `m is 1`, `k is 3 * 2**5`, `n is 3 * 2**6` and
`n is twice k`.
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
class Goal:
    """A wish for some extents of one size."""

    words: str
    """What is wished for: "rows 1"."""
    proposals: Callable[[Extents], Iterable[Extents]]
    """Extents that meet it, the most telling first. Its argument holds the extents that the size has already."""
    holds: Callable[[Sequence[int]], bool] = lambda extents: False
    """Whether the extents of a size, all of them, meet it."""


@dataclass(frozen=True)
class Context:
    """What goals are made from."""

    structure: SizeStructure
    names: tuple[str, ...]
    """One for each dimension."""
    full: tuple[int, ...]
    """The problem's own extents."""
    small: tuple[int, ...]
    """The extents at the size around which the structure was learned."""
    blocks: tuple[int, ...]
    """Block sizes and other numbers that the candidate's text names, the smallest first; usual ones where it names
    none.
    """
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
        """Returns the dimensions that are no batch, or all where every one is a batch."""
        return [i for i in self.dimensions if not self.structure.dimensions[i].batch] or list(
            self.dimensions
        )

    def unit(self, dimension: int) -> int:
        """Returns the smallest step of an extent: 8 where channels come in groups of eight."""
        floors = self.structure.floors
        return self.structure.value(dimension, [*floors[:dimension], 1, *floors[dimension + 1 :]])


@dataclass(frozen=True)
class Strategy:
    """One reason to draw sizes."""

    name: str
    goals: Callable[[Context], Iterable[Goal]]
    budget: Budget
    """The largest cost of one of its sizes under the interpreter."""
    by_itself: bool = False
    """Whether its sizes meet no further goal: their other extents are small."""
    tiny: bool = False
    """Whether its extents are so small that they hide mistakes of the others: half of a size's at most are."""
    equals: bool = False
    """Whether extents of one size may be equal, which otherwise hides a transposition."""
    one_call: bool = False
    """Whether one call is all that is made at its sizes, however long they are."""
    most: int = 1 << 10
    """Maximum number of sizes that are drawn for it."""
