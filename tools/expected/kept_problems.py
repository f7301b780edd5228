"""A cache of prepared problems for the next candidates of a judge: models, draws and expected
outputs, bounded in number and bytes; the least recently used ones are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem
from kernelwright.tools.gpu.persistent_memory import is_roomy
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw

if TYPE_CHECKING:
    import torch

KEPT_PROBLEMS = 400
"""Maximum number of kept problems (each at a single size), the most recently used."""
KEPT_BYTES_ON_CPU = 1 << 30
"""Bytes of models, draws and expected outputs which all judges of a machine keep together on a
CPU.
"""
KEPT_MEMORY_DIVISOR = 8
"""Draws, and models, are kept up to this part of a GPU's memory, each."""
LARGE_DRAW_DIVISOR = 64
"""A draw that takes more than this part of a GPU's memory is made again for every candidate."""

Key = tuple[str, str]
DrawKey = tuple[Key, Draw, int, bool, int]


def key_of(problem: Problem, seed: int) -> Key:
    """Returns the key of a problem at a size, in an epoch of its draws. Uses the text, which is
    cheaper than `problem.hash`.
    """
    return problem.source, f"{problem.name} {seed >> 16}"


class GpuMemory:
    """Memory of a GPU, in bytes."""

    def __init__(self, device: str) -> None:
        self._device = device

    def total(self) -> int:
        """Total bytes of the GPU."""
        return self._info()[1]

    def free(self) -> int:
        """Returns the bytes not allocated by any process, plus bytes cached by torch in this
        process.
        """
        return self.free_for_all() + self.unused()

    def free_for_all(self) -> int:
        """Returns the bytes that no process has allocated."""
        return self._info()[0]

    def is_roomy(self) -> bool:
        """Whether so much is free that nothing need be given back for others."""
        return is_roomy(*self._info())

    def unused(self) -> int:
        """Returns the bytes which torch's allocator caches in this process without a tensor."""
        import torch

        return self.reserved() - torch.cuda.memory_allocated(self._device)

    def reserved(self) -> int:
        """Bytes that torch's allocator has in this process."""
        import torch

        return torch.cuda.memory_reserved(self._device)

    def give_back_unused(self) -> None:
        """Gives unused memory back, so that other processes find it."""
        import torch

        torch.cuda.empty_cache()

    def _info(self) -> tuple[int, int]:
        import torch

        return torch.cuda.mem_get_info(self._device)


class KeptProblems:
    """Prepared problems of a judge, least recently used first."""

    def __init__(self, memory: GpuMemory | None, sharers: int) -> None:
        """Starts empty. memory: of the GPU; None on a CPU. sharers: number of judges, also of
        other processes, which keep memory there.
        """
        self._memory = memory
        self._sharers = sharers
        self._problems: OrderedDict[Key, PreparedProblem] = OrderedDict()
        self._draws: OrderedDict[DrawKey, ExpectedOutputs] = OrderedDict()
        self._drawn: dict[DrawKey, int] = {}
        """Number of bytes of the kept draws."""
        self._weights: dict[Key, int] = {}
        """Bytes of the models, by problem and size."""

    def __bool__(self) -> bool:
        return bool(self._problems)

    def find(self, key: Key) -> PreparedProblem | None:
        """Returns the problem and marks it as most recently used."""
        if key in self._problems:
            self._problems.move_to_end(key)
        return self._problems.get(key)

    def keep(self, key: Key, prepared: PreparedProblem) -> None:
        """Keeps a prepared problem as the most recently used, and drops the least recently used
        problems beyond the limits on number and bytes.
        """
        while len(self._problems) >= KEPT_PROBLEMS:
            self.drop_oldest()
        self._problems[key] = prepared
        self.count_weights(key, prepared.model)

    def count_weights(self, key: Key, model: torch.nn.Module) -> None:
        """Notes that this model of the problem is kept too."""
        self._weights[key] = self._weights.get(key, 0) + weights_of(model)
        self._keep_within_bounds()

    def find_draw(self, key: DrawKey) -> ExpectedOutputs | None:
        """Returns the outputs kept for a draw, and marks them as most recently used; None if not
        kept.
        """
        if key in self._draws:
            self._draws.move_to_end(key)
        return self._draws.get(key)

    def keep_draw(self, key: DrawKey, draw: ExpectedOutputs) -> None:
        """Keeps a draw of a kept problem, except a large draw on a GPU."""
        nbytes = nbytes_of(draw)
        if self._memory is not None and nbytes > self._own_part(self._memory) // LARGE_DRAW_DIVISOR:
            return
        self._draws[key], self._drawn[key] = draw, nbytes
        self._keep_within_bounds()

    # -------------------------------------------------------------- bytes
    @property
    def nbytes(self) -> int:
        """Bytes of everything that is kept."""
        return sum(self._weights.values()) + sum(self._drawn.values())

    def _own_part(self, memory: GpuMemory) -> int:
        return memory.total() // self._sharers

    def _keep_within_bounds(self) -> None:
        """The problem that was used last stays, however large it is: a large module's weights are
        held once for each of its sizes.
        """
        if self._memory is None:
            while self.nbytes > KEPT_BYTES_ON_CPU // self._sharers and self.drop_oldest():
                pass
            return
        most = self._own_part(self._memory) // (
            KEPT_MEMORY_DIVISOR if self._sharers == 1 else 2 * KEPT_MEMORY_DIVISOR
        )
        while sum(self._drawn.values()) > most:
            self._drop_draw(next(iter(self._draws)))
        while sum(self._weights.values()) > most and self.drop_oldest():
            pass

    def _drop_draw(self, key: DrawKey) -> None:
        del self._draws[key], self._drawn[key]

    # -------------------------------------------------------------- letting go
    def drop_oldest(self, besides: str = "", *, last_too: bool = False) -> bool:
        """Drops the least recently used problem (at a single size) with its draws; returns
        whether there was any.

        besides: name of a problem which stays at all of its sizes. last_too: whether the most
        recently used may go as well.
        """
        removable = list(self._problems) if last_too else list(self._problems)[:-1]
        oldest = next((key for key in removable if not besides or not _is_of(key, besides)), None)
        if oldest is None:
            return False
        self._problems.pop(oldest)
        self._weights.pop(oldest, None)
        for drawn in [k for k in self._draws if k[0] == oldest]:
            self._drop_draw(drawn)
        return True

    def clear(self) -> None:
        """Lets go of every problem and draw."""
        self._problems.clear()
        self._draws.clear()
        self._drawn.clear()
        self._weights.clear()


def _is_of(key: Key, name: str) -> bool:
    return key[1].rpartition(" ")[0] == name


def nbytes_of(expected: ExpectedOutputs) -> int:
    """Bytes of a draw: inputs, eager's outputs and float64's."""
    tensors = (*expected.inputs, *expected.eager, *(expected.exact or ()))
    return sum(t.nbytes for t in tensors if hasattr(t, "nbytes"))


def weights_of(model: torch.nn.Module) -> int:
    """Bytes of a module's parameters and buffers."""
    return sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
