"""The part of a tuning that needs a GPU: times configurations by successive halving, one group of
parameters after another.
"""

from __future__ import annotations

import json
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
    """The times of a trial: the interface of the results of tools/judging/trials.py."""

    @property
    def milliseconds(self) -> tuple[float, ...]:
        """Returns the milliseconds of the calls, in order; empty if the trial failed."""

    @property
    def eager(self) -> Timing | None:
        """Returns the reference's time in the same trial; None if not measured."""

    @property
    def failure(self) -> str:
        """Returns the reason for a trial without times, in one line; empty if there are times."""

    @property
    def seconds(self) -> float:
        """Returns the GPU seconds of the trial."""


class TrialClock(Protocol):
    """Times calls of a kernel file at one size of the problem."""

    def time(self, source: str, calls: int) -> TrialResult:
        """Times calls of a text. A failure is a trial with its reason, and no exception."""


@dataclass
class HalvingResult:
    """The result of halving all groups at one size."""

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
        self,
        file: TunableFile,
        space: ParameterSpace,
        settings: TuneSettings,
        clock: TrialClock,
        journal: Journal,
        say: Say,
    ) -> None:
        self._file, self._space, self._settings = file, space, settings
        self._clock, self._journal, self._say = clock, journal, say
        self._shape = key_of({})
        self._eager: Timing | None = None
        self._seconds = 0.0
        self._launches = 0
        self._configurations = self._round = self._timed = 0
        """Progress: number of the group's configurations, current round of halving, and trials of
        the round.
        """

    def run(
        self, groups: Sequence[ParameterGroup], shape: Mapping[str, int] | None = None
    ) -> HalvingResult:
        """Tunes group after group; each group starts from the best values of the groups before."""
        self._shape = key_of(dict(shape or {}))
        best = dict(self._space.start())
        before = after = None
        measured: list[ParameterGroup] = []
        stopped = False
        for group in groups:
            # The group's values change; all other parameters have the best values so far.
            rows = [
                {**best, **_values_of_group(row.configuration, group)} for row in group.remaining()
            ]
            halved = self._halved(rows, best, len(groups))
            stopped |= halved.stopped_by_budget
            method = self._eager.method if self._eager is not None else None
            timings = {key: timing.with_(method=method) for key, timing in halved.timings().items()}
            before = before or timings.get(key_of(best))
            best, after = self._winner(timings, rows, best, after)
            measured.append(_with_timings(group, timings, halved, best))
        by_key = {key_of(row): row for row in rows} if groups else {}
        ranked = [by_key[key] for key in timings if key in by_key] if groups else []
        return HalvingResult(
            best=best, groups=tuple(measured), eager=self._eager, before=before, after=after, launches=self._launches,
            seconds=self._seconds, stopped_by_budget=stopped, ranked=ranked,
        )  # fmt: skip

    def _halved(
        self, rows: Sequence[Configuration], base: Configuration, groups: int
    ) -> HalvingOutcome:
        configurations = {key_of(row): row for row in (base, *rows)}
        self._configurations, self._round = len(configurations), -1
        # Each group gets an equal share of launches and seconds.
        spent = self._seconds
        budget = TuningBudget(
            self._settings.launches // groups,
            self._settings.gpu_seconds / groups,
            lambda: self._seconds - spent,
        )

        def measure(key: str, number: int, calls: int) -> Sequence[float] | None:
            return self._measure(key, configurations[key], number, calls)

        keep = max(1, self._settings.keep)
        halved = halve(list(configurations), measure, budget, always=key_of(base), keep=keep)
        self._launches += budget.used
        return halved

    def _measure(
        self, key: str, configuration: Configuration, number: int, calls: int
    ) -> Sequence[float] | None:
        """Times a configuration, or reads its times from the journal.

        A configuration fails if its timing method differs from the first configuration's (it
        alone cannot be captured as a CUDA graph): such times cannot be compared.
        """
        self._count(number)
        row_key = f"{self._shape} {number} {key}"
        row: Any = self._journal.find(TIMED_KIND, row_key)
        if row is None:
            trial = self._clock.time(rewrite(self._file.source, self._space, configuration), calls)
            row = {
                "ms": list(trial.milliseconds), "failure": trial.failure, "seconds": trial.seconds,
                "eager": trial.eager.model_dump(mode="json") if trial.eager is not None else None,
            }  # fmt: skip
            self._journal.add(TIMED_KIND, row_key, row)
        self._seconds += float(row["seconds"])
        eager = Timing.model_validate(row["eager"]) if row["eager"] is not None else None
        self._eager = self._eager or eager  # the first trial decides the method of timing
        if eager is not None and self._eager is not None and eager.method is not self._eager.method:
            self._say(
                f"configuration {key[:60]} is left out: it is timed by {eager.method}, others by another method"
            )
            return None
        return None if row["failure"] else row["ms"]

    def _count(self, number: int) -> None:
        """Reports which configuration is timed. Each round has the faster half of the round
        before.
        """
        if number != self._round:
            self._round, self._timed = number, 0
        self._timed += 1
        position = f"{self._timed} of those that are left"
        if number == 0:
            position = f"{self._timed} of {self._configurations}"
        self._say(f"tuning: timing configuration {position}, round {number + 1}")

    def _winner(
        self, timings: Mapping[str, Timing], rows: Sequence[dict[str, Setting]], base: dict[str, Setting],
        base_timing_before: Timing | None,
    ) -> tuple[dict[str, Setting], Timing | None]:  # fmt: skip
        """Returns the fastest configuration if it is certainly faster than the base; otherwise
        the base.
        """
        base_timing = None  # a base in a precision that is not allowed is no rival
        if is_allowed(self._space, base, self._settings.precision):
            base_timing = timings.get(key_of(base), base_timing_before)
        by_key = {key_of(row): row for row in rows}
        best = next((key for key in timings if key in by_key), None)
        if best is not None and (base_timing is None or timings[best].high < base_timing.low):
            return by_key[best], timings[best]
        return base, base_timing


def _values_of_group(configuration: Configuration, group: ParameterGroup) -> dict[str, Setting]:
    return {name: configuration[name] for name in group.parameters}


def _with_timings(
    group: ParameterGroup,
    timings: Mapping[str, Timing],
    halved: HalvingOutcome,
    best: Configuration,
) -> ParameterGroup:
    """Returns the group with its rows' timings; configurations are matched by the group's own
    parameters.
    """
    times = {_key(_parsed(key), group): key for key in (*timings, *halved.failed)}
    rows: list[TriedConfiguration] = []
    for row in group.rows:
        key = times.get(_key(row.configuration, group))
        if key is None:
            rows.append(row)
        elif key in halved.failed:
            rows.append(row.with_(fate=ConfigurationOutcome.WRONG))
        else:
            won = _key(best, group) == _key(row.configuration, group)
            fate = ConfigurationOutcome.WON if won else ConfigurationOutcome.MEASURED
            rows.append(row.with_(fate=fate, timing=timings[key]))
    rows.sort(key=lambda row: row.timing.median if row.timing is not None else float("inf"))
    return group.with_(rows=tuple(rows))


def _key(configuration: Configuration, group: ParameterGroup) -> str:
    return key_of(_values_of_group(configuration, group))


def _parsed(key: str) -> dict[str, Setting]:
    configuration: dict[str, Setting] = json.loads(key)
    return configuration
