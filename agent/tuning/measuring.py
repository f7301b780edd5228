"""The part of a tuning that needs a GPU: halving on the clock, one group of parameters after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernelwright.agent.tuning.halving import HalvingOutcome, TuningBudget, halve
from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.settings import TuneSettings, is_allowed
from kernelwright.agent.tuning.tuned import ConfigurationOutcome, ParameterGroup, TriedConfiguration
from kernelwright.tools.report import Timing
from kernelwright.tools.tuning.kernel_text.parameters import (
    Configuration,
    ParameterSpace,
    Setting,
    key_of,
)
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite

TIMED_KIND = "timed"
Say = Callable[[str], None]


class TrialResult(Protocol):
    """What one timing of one text gave: tools/judging/trials.py."""

    @property
    def milliseconds(self) -> tuple[float, ...]:
        """The times of the calls, in order; empty where it failed."""

    @property
    def eager(self) -> Timing | None:
        """The reference's time beside them, None where it was not measured."""

    @property
    def failure(self) -> str:
        """Why there are no times, in one line; empty where there are."""

    @property
    def seconds(self) -> float:
        """Seconds of the GPU that the trial cost."""


class TrialClock(Protocol):
    """Times calls of a text at one size of the problem."""

    def time(self, source: str, calls: int) -> TrialResult:
        """Times so many calls of a text; what fails is a trial with its reason and no exception."""


@dataclass
class HalvingResult:
    """How the halving of all groups went, at one size."""

    best: dict[str, Setting]
    """The fastest configuration."""
    groups: tuple[ParameterGroup, ...]
    eager: Timing | None = None
    before: Timing | None = None
    after: Timing | None = None
    launches: int = 0
    seconds: float = 0.0
    stopped_by_budget: bool = False
    ranked: list[dict[str, Setting]] = field(default_factory=list)
    """Configurations of the last group, the fastest first."""


class TrialMeasuring:
    """Measures configurations at one size of the problem."""

    def __init__(
        self, file: TunableFile, space: ParameterSpace, settings: TuneSettings, clock: TrialClock, journal: Journal,
        say: Say, shape: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._file, self._space, self._settings = file, space, settings
        self._clock, self._journal, self._say = clock, journal, say
        self._shape = key_of(dict(shape or {}))
        self._eager: Timing | None = None
        self._seconds = 0.0
        self._launches = 0
        self._configurations = self._round = self._timed = 0
        """Configurations of the group, the round of halving, and how many of them were timed in it."""

    def run(self, groups: Sequence[ParameterGroup]) -> HalvingResult:
        """Tunes group after group, each on top of the best of those before it."""
        best = dict(self._space.start())
        before = after = None
        measured: list[ParameterGroup] = []
        stopped = False
        for group in groups:
            rows = [{**best, **_own(row.configuration, group)} for row in group.remaining()]
            halved = self._halved(rows, best, len(groups))
            stopped |= halved.stopped_by_budget
            method = self._eager.method if self._eager is not None else None
            found = {key: timing.with_(method=method) for key, timing in halved.timings().items()}
            before = before or found.get(key_of(best))
            best, after = self._winner(found, rows, best, after)
            measured.append(_with_timings(group, found, halved, best))
        by_key = {key_of(row): row for row in rows} if groups else {}
        ranked = [by_key[key] for key in found if key in by_key] if groups else []
        return HalvingResult(
            best=best, groups=tuple(measured), eager=self._eager, before=before, after=after, launches=self._launches,
            seconds=self._seconds, stopped_by_budget=stopped, ranked=ranked,
        )  # fmt: skip

    def _halved(
        self, rows: Sequence[Configuration], base: Configuration, groups: int
    ) -> HalvingOutcome:
        texts = {key_of(row): row for row in (base, *rows)}
        self._configurations, self._round = len(texts), -1
        spent = self._seconds
        budget = TuningBudget(
            self._settings.launches // groups,
            self._settings.gpu_seconds / groups,
            lambda: self._seconds - spent,
        )
        halved = halve(
            list(texts), lambda key, number, calls: self._measure(key, texts[key], number, calls), budget,
            always=key_of(base), keep=max(1, self._settings.keep),
        )  # fmt: skip
        self._launches += budget.used
        return halved

    def _measure(
        self, key: str, configuration: Configuration, number: int, calls: int
    ) -> Sequence[float] | None:
        """Measures one configuration; reads it from the journal where the row is there already. One that is timed by
        another method than the first one (it alone cannot be captured as a CUDA graph) cannot be ranked, and fails.
        """
        self._count(number)
        row = f"{self._shape} {number} {key}"
        found: Any = self._journal.find(TIMED_KIND, row)
        if found is None:
            trial = self._clock.time(rewrite(self._file.source, self._space, configuration), calls)
            found = {
                "ms": list(trial.milliseconds), "failure": trial.failure, "seconds": trial.seconds,
                "eager": trial.eager.model_dump(mode="json") if trial.eager is not None else None,
            }  # fmt: skip
            self._journal.add(TIMED_KIND, row, found)
        self._seconds += float(found["seconds"])
        eager = Timing.model_validate(found["eager"]) if found["eager"] is not None else None
        self._eager = self._eager or eager
        if eager is not None and self._eager is not None and eager.method is not self._eager.method:
            self._say(
                f"configuration {key[:60]} is left out: it is timed by {eager.method}, others by another method"
            )
            return None
        return None if found["failure"] else found["ms"]

    def _count(self, number: int) -> None:
        """Says which of the configurations is timed now. A round has the faster half of the one before."""
        if number != self._round:
            self._round, self._timed = number, 0
        self._timed += 1
        left = (
            f"{self._timed} of {self._configurations}"
            if number == 0
            else f"{self._timed} of those that are left"
        )
        self._say(f"tuning: timing configuration {left}, round {number + 1}")

    def _winner(
        self, found: Mapping[str, Timing], rows: Sequence[dict[str, Setting]], base: dict[str, Setting],
        known: Timing | None,
    ) -> tuple[dict[str, Setting], Timing | None]:  # fmt: skip
        """The fastest, where it is certainly faster than what there was; else what there was."""
        own = (
            found.get(key_of(base), known)
            if is_allowed(self._space, base, self._settings.precision)
            else None
        )
        by_key = {key_of(row): row for row in rows}
        best = next((key for key in found if key in by_key), None)
        if best is not None and (own is None or found[best].high < own.low):
            return by_key[best], found[best]
        return base, own


def _own(configuration: Configuration, group: ParameterGroup) -> dict[str, Setting]:
    return {name: configuration[name] for name in group.parameters}


def _with_timings(
    group: ParameterGroup, found: Mapping[str, Timing], halved: HalvingOutcome, best: Configuration
) -> ParameterGroup:
    """The group's rows with what was measured; keys are matched by the group's own parameters."""
    times = {_key(_parsed(key), group): key for key in (*found, *halved.failed)}
    rows: list[TriedConfiguration] = []
    for row in group.rows:
        key = times.get(_key(row.configuration, group))
        if key is None:
            rows.append(row)
        elif key in halved.failed:
            rows.append(row.with_(fate=ConfigurationOutcome.WRONG))
        else:
            won = _key(best, group) == _key(row.configuration, group)
            rows.append(
                row.with_(
                    fate=ConfigurationOutcome.WON if won else ConfigurationOutcome.MEASURED,
                    timing=found[key],
                )
            )
    rows.sort(key=lambda row: row.timing.median if row.timing is not None else float("inf"))
    return group.with_(rows=tuple(rows))


def _key(configuration: Configuration, group: ParameterGroup) -> str:
    return key_of(_own(configuration, group))


def _parsed(key: str) -> dict[str, Setting]:
    import json

    found: dict[str, Setting] = json.loads(key)
    return found
