"""Proposes the configurations that are tried: the file's own, the file's autotune lists, usual
tilings, neighbours of the best so far, and random draws. A pure function of the scores, so a
stopped tuning continues with the same proposals.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence

from kernelwright.agent.tuning.settings import PrecisionClass, is_allowed
from kernelwright.agent.tuning.usual_tilings import usual_configurations
from kernelwright.tools.tuning.kernel_text.parameters import (
    Configuration,
    Parameter,
    ParameterRole,
    ParameterSpace,
    Setting,
    key_of,
)

PROPOSALS_AT_ONCE = 8
"""Size of a batch of proposals, independent of the number of cores."""
MAX_CONFIGURATION_DRAWS = 400
"""Maximum number of draws until a random configuration fits."""
ELEMENTS_A_THREAD = (1, 256)
"""Least and greatest number of a block's elements per thread; outside this range a compilation
only shows spills, or idle threads.
"""
BEST_WITH_NEIGHBOURS = 3
"""Number of best configurations whose neighbours are tried."""


def groups_of(space: ParameterSpace) -> list[tuple[str, ...]]:
    """Groups the parameters' names by the kernels that they change; groups can be tuned one after
    the other.

    Example: BLOCK of kernel a, WARPS of kernel b, and SIZE of both give one group of all three;
    without SIZE two groups.
    """
    groups: list[tuple[set[str], list[str]]] = []
    for parameter in space.parameters:
        # Groups that share a kernel with the parameter are merged with it.
        kernels = set(parameter.kernels)
        names: list[str] = []
        separate = []
        for group in groups:
            group_kernels, group_names = group
            if group_kernels & set(parameter.kernels):
                kernels |= group_kernels
                names += group_names
            else:
                separate.append(group)
        groups = [*separate, (kernels, [*names, parameter.name])]
    return [tuple(names) for _, names in groups]


class Proposals:
    """Proposes values for one group of parameters; other parameters have their values of `base`."""

    def __init__(
        self, space: ParameterSpace, names: Sequence[str], base: Configuration, precision: PrecisionClass,
        first: Sequence[Configuration] = (), seed: int = 0,
    ) -> None:  # fmt: skip
        """first: configurations that are tried before any other, such as those of an autotune
        list.
        """
        self._base, self._precision = dict(base), precision
        self._group_space = space.only(set(names))
        self._parameters = [p for p in space.parameters if p.name in names]
        group_names = {p.name for p in self._parameters}
        starts = [*first, *usual_configurations(self._parameters, precision)]
        self._first: list[dict[str, Setting]] = []
        for start in starts:
            values = {name: value for name, value in start.items() if name in group_names}
            self._first.append({**base, **values})
        self._chance = random.Random(f"{seed} {sorted(names)}")
        self._proposed: set[str] = set()

    def next(self, scores: Mapping[str, float], most: int) -> list[dict[str, Setting]]:
        """Returns the next batch; empty when nothing is left.

        scores: scores of the tried configurations by `key_of`; smaller is better.
        """
        batch: list[dict[str, Setting]] = []
        for configuration in self._candidates(scores):
            if len(batch) == min(PROPOSALS_AT_ONCE, most):
                break
            key = key_of(configuration)
            if key not in self._proposed:
                self._proposed.add(key)
                batch.append(configuration)
        return batch

    def _candidates(self, scores: Mapping[str, float]) -> Iterator[dict[str, Setting]]:
        """Yields configurations in the order in which they are worth trying; every batch has some
        random draws.

        Clusters of blocks, for which few kernels compile, are tried as neighbours only.
        """
        if not self._proposed:
            yield dict(self._base)
        untried = [start for start in self._first if key_of(start) not in self._proposed]
        yield from untried[:PROPOSALS_AT_ONCE]
        if self._proposed.issuperset(map(key_of, self._first)):
            yield from self._drawn(PROPOSALS_AT_ONCE // 2)
            best = sorted(scores, key=lambda key: scores[key])[:BEST_WITH_NEIGHBOURS]
            for key in best:
                yield from self._neighbours(_of_key(key))
        # A second helping of draws fills the batch when the neighbours are few.
        yield from self._drawn(PROPOSALS_AT_ONCE)

    def _drawn(self, count: int) -> Iterator[dict[str, Setting]]:
        for _ in range(count):
            for _ in range(MAX_CONFIGURATION_DRAWS):
                configuration = dict(self._base)
                for parameter in self._parameters:
                    if parameter.role is not ParameterRole.CTAS:
                        configuration[parameter.name] = self._chance.choice(parameter.values)
                if self._fits(configuration) and key_of(configuration) not in self._proposed:
                    yield configuration
                    break

    def _neighbours(self, configuration: Configuration) -> Iterator[dict[str, Setting]]:
        """Yields the configurations that differ by one step of one parameter."""
        for parameter in self._parameters:
            index = parameter.values.index(configuration[parameter.name])
            for step in (1, -1):
                if 0 <= index + step < len(parameter.values):
                    neighbour = {**configuration, parameter.name: parameter.values[index + step]}
                    if self._fits(neighbour):
                        yield neighbour

    def _fits(self, configuration: Configuration) -> bool:
        """Returns whether a configuration is worth a compilation and multiplies in an allowed
        precision.
        """
        least, most = ELEMENTS_A_THREAD
        return (
            is_allowed(self._group_space, configuration, self._precision)
            and least <= self._elements_a_thread(configuration) <= most
        )

    def _elements_a_thread(self, configuration: Configuration) -> float:
        """Estimates the elements per thread of the largest block of results."""
        tiles = [p for p in self._parameters if p.role is ParameterRole.TILE]
        placed = [p for p in tiles if p.places_programs] or tiles
        # A warp has 32 threads; Triton's default is 4 warps.
        warps = next((p for p in self._parameters if p.role is ParameterRole.WARPS), None)
        threads = 32 * int(configuration[warps.name]) if warps is not None else 128
        elements = 1
        for parameter in placed:
            elements *= _extent(parameter, configuration)
        return elements / threads if placed else 1.0


def _extent(parameter: Parameter, configuration: Configuration) -> int:
    """Returns the elements of a tile; a parameter of two constexprs is a square tile."""
    return int(configuration[parameter.name]) ** max(1, len(parameter.constexprs))


def _of_key(key: str) -> dict[str, Setting]:
    configuration: dict[str, Setting] = json.loads(key)
    return configuration
