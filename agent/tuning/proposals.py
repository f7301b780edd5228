"""Which configurations are tried: the file's own, those of its autotune lists, neighbours of the best so far, and draws
from the whole space. A pure function of what is known, so that a tuning goes on wherever it was stopped."""

from __future__ import annotations

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
"""Proposed at once, whatever the number of cores."""
MAX_CONFIGURATION_DRAWS = 400
"""Tries for one random configuration that fits."""
ELEMENTS_A_THREAD = (1, 256)
"""The fewest and the most elements of a block that one thread has; beyond this a compilation only shows spills, or idle
threads.
"""
BEST_WITH_NEIGHBOURS = 3
"""The best configurations whose neighbours are tried."""


def groups_of(space: ParameterSpace) -> list[tuple[str, ...]]:
    """Names of parameters by the kernels that they change: groups can be tuned one after the other."""
    groups: list[tuple[set[str], list[str]]] = []
    for parameter in space.parameters:
        kernels = set(parameter.kernels)
        touching = [g for g in groups if g[0] & kernels]
        names = [n for g in touching for n in g[1]] + [parameter.name]
        merged = (kernels.union(*(g[0] for g in touching)), names)
        groups = [g for g in groups if g not in touching] + [merged]
    return [tuple(names) for _, names in groups]


class Proposals:
    """Proposes values of one group of parameters; the others keep what `base` says."""

    def __init__(
        self, space: ParameterSpace, names: Sequence[str], base: Configuration, precision: PrecisionClass,
        first: Sequence[Configuration] = (), seed: int = 0,
    ) -> None:  # fmt: skip
        """first: configurations that are tried before any other, such as those of an autotune list."""
        self._base, self._precision = dict(base), precision
        self._own = space.only(set(names))
        self._parameters = [p for p in space.parameters if p.name in names]
        own = {p.name for p in self._parameters}
        starts = [*first, *usual_configurations(self._parameters, precision)]
        self._first = [{**base, **{n: v for n, v in one.items() if n in own}} for one in starts]
        self._chance = random.Random(f"{seed} {sorted(names)}")
        self._proposed: set[str] = set()

    def next(self, scores: Mapping[str, float], most: int) -> list[dict[str, Setting]]:
        """The next batch.

        scores: figures of those that were tried, smaller is better, by `key_of`. Empty when nothing is left.
        """
        found: list[dict[str, Setting]] = []
        for one in self._candidates(scores):
            if len(found) == min(PROPOSALS_AT_ONCE, most):
                break
            key = key_of(one)
            if key not in self._proposed:
                self._proposed.add(key)
                found.append(one)
        return found

    def _candidates(self, scores: Mapping[str, float]) -> Iterator[dict[str, Setting]]:
        """In the order in which they are worth trying; in every batch some draws, so that no corner is left out.

        Clusters of blocks, which few kernels compile for, are tried as neighbours only.
        """
        if not self._proposed:
            yield dict(self._base)
        yield from [one for one in self._first if key_of(one) not in self._proposed][
            :PROPOSALS_AT_ONCE
        ]
        if self._proposed.issuperset(map(key_of, self._first)):
            yield from self._drawn(PROPOSALS_AT_ONCE // 2)
            best = sorted(scores, key=lambda key: scores[key])[:BEST_WITH_NEIGHBOURS]
            for key in best:
                yield from self._neighbours(_of_key(key))
        yield from self._drawn(PROPOSALS_AT_ONCE)

    def _drawn(self, count: int) -> Iterator[dict[str, Setting]]:
        for _ in range(count):
            for _ in range(MAX_CONFIGURATION_DRAWS):
                drawn = {
                    p.name: self._chance.choice(p.values)
                    for p in self._parameters
                    if p.role is not ParameterRole.CTAS
                }
                one = {**self._base, **drawn}
                if self._fits(one) and key_of(one) not in self._proposed:
                    yield one
                    break

    def _neighbours(self, one: Configuration) -> Iterator[dict[str, Setting]]:
        """One step of one parameter at a time."""
        for parameter in self._parameters:
            at = parameter.values.index(one[parameter.name])
            for step in (1, -1):
                if 0 <= at + step < len(parameter.values):
                    other = {**one, parameter.name: parameter.values[at + step]}
                    if self._fits(other):
                        yield other

    def _fits(self, one: Configuration) -> bool:
        """Whether it is worth a compilation, and multiplies as it may."""
        least, most = ELEMENTS_A_THREAD
        return (
            is_allowed(self._own, one, self._precision)
            and least <= self._elements_a_thread(one) <= most
        )

    def _elements_a_thread(self, one: Configuration) -> float:
        """Estimates the elements that one thread has of the largest block of results."""
        tiles = [p for p in self._parameters if p.role is ParameterRole.TILE]
        placed = [p for p in tiles if p.places_programs] or tiles
        warps = next((p for p in self._parameters if p.role is ParameterRole.WARPS), None)
        threads = 32 * int(one[warps.name]) if warps is not None else 128
        elements = 1
        for parameter in placed:
            elements *= _extent(parameter, one)
        return elements / threads if placed else 1.0


def _extent(parameter: Parameter, one: Configuration) -> int:
    """A tile that two constexprs share is a square."""
    return int(one[parameter.name]) ** max(1, len(parameter.constexprs))


def _of_key(key: str) -> dict[str, Setting]:
    import json

    found: dict[str, Setting] = json.loads(key)
    return found
