"""What compiling alone decides: every proposal is traced and compiled for the target, on all cores, and ranked by the
model. Costs no GPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.proposals import Proposals, groups_of
from kernelwright.agent.tuning.settings import TuneSettings, is_allowed
from kernelwright.agent.tuning.tuned import ConfigurationOutcome, ParameterGroup, TriedConfiguration
from kernelwright.tools.tuning.compile_scores import CompileScore
from kernelwright.tools.tuning.kernel_text.parameters import ParameterSpace, Setting, key_of
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite

COMPILED_KIND = "compiled"
"""The kind of the journal's rows that hold compilations."""
MAX_FACTOR_BEHIND = 3.0
"""Times the best figure of the model: beyond it a configuration is not worth a GPU's time. The model is coarse."""

MIN_SHARE_OF_CONFIGURATIONS = 0.08
"""The share of the cycles, by the model, of all kernels that can be tuned, below which a group gets no configurations.
"""
MAX_INDISTINGUISHABLE = 2
"""Configurations with the same figure that remain."""

Score = Callable[[str], CompileScore]
"""Gives the score of a text; safe to be called by several threads."""
Say = Callable[[str], None]


def prune(
    file: TunableFile, space: ParameterSpace, settings: TuneSettings, score: Score, journal: Journal, say: Say,
    first: Sequence[Mapping[str, Setting]] = (),
) -> tuple[ParameterGroup, ...]:  # fmt: skip
    """Every group's configurations with their scores and fates, best first. What the journal holds is not made again.

    first: configurations that are tried before others.
    """
    start, names = space.start(), groups_of(space)
    weights = (
        _weights(file, space, names, score)
        if settings.by_weight
        else dict.fromkeys(names, 1 / len(names))
    )
    names = [own for own in names if weights[own] > 0]
    groups = []
    for number, own in enumerate(names, 1):
        share, measured = (
            max(2, int(n * weights[own])) for n in (settings.configurations, settings.measured)
        )
        proposals = Proposals(
            space, own, start, settings.precision, [*file.starts, *first], settings.seed
        )
        told = f"group {number} of {len(names)}: " if len(names) > 1 else ""
        tried = _tried(file, space, proposals, share, score, journal, partial(_say_of, say, told))
        groups.append(
            ParameterGroup(
                parameters=own, rows=_with_fates(space, settings, tried, start, measured)
            )
        )
    return tuple(groups)


def _weights(
    file: TunableFile, space: ParameterSpace, names: Sequence[tuple[str, ...]], score: Score
) -> dict[tuple[str, ...], float]:
    """Returns each group's share of the configurations: that of its kernels in the model's cycles, or 0."""
    found = score(file.source)
    cycles = dict.fromkeys(names, 0.0)
    for own in names:
        kernels = {k for p in space.parameters if p.name in own for k in p.kernels}
        cycles[own] = sum(float(k.cycles) for k in found.kernels if k.kernel in kernels)
    whole = sum(cycles.values())
    if not whole:
        return dict.fromkeys(names, 1 / len(names))
    kept = {own: n for own, n in cycles.items() if n >= MIN_SHARE_OF_CONFIGURATIONS * whole}
    return {own: kept.get(own, 0.0) / sum(kept.values()) for own in names}


def _say_of(say: Say, group: str, text: str) -> None:
    say(group + text)


def _tried(
    file: TunableFile,
    space: ParameterSpace,
    proposals: Proposals,
    most: int,
    score: Score,
    journal: Journal,
    say: Say,
) -> dict[str, tuple[dict[str, Setting], CompileScore]]:
    tried: dict[str, tuple[dict[str, Setting], CompileScore]] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="tune") as pool:
        try:
            while len(tried) < most:
                figures = {
                    k: s.cycles for k, (_, s) in tried.items() if s.passed and s.cycles is not None
                }
                batch = proposals.next(figures, most - len(tried))
                if not batch:
                    break
                waiting = {
                    key_of(one): pool.submit(score, rewrite(file.source, space, one))
                    for one in batch
                    if journal.find(COMPILED_KIND, key_of(one)) is None
                }
                for one in batch:
                    key = key_of(one)
                    if key in waiting:
                        journal.add(
                            COMPILED_KIND, key, waiting[key].result().model_dump(mode="json")
                        )
                    tried[key] = (
                        one,
                        CompileScore.model_validate(journal.find(COMPILED_KIND, key)),
                    )
                    say(f"tuning: compiled {len(tried)} of {most} configurations")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tried


def _with_fates(
    space: ParameterSpace, settings: TuneSettings, tried: Mapping[str, tuple[dict[str, Setting], CompileScore]],
    start: Mapping[str, Setting], most: int,
) -> tuple[TriedConfiguration, ...]:  # fmt: skip
    """Ranked by the model; what fails last."""
    own = tried.get(key_of(start))
    base = own[1].cycles if own is not None else None
    ranked = sorted(
        tried.items(), key=lambda item: (not item[1][1].passed, item[1][1].cycles or 0.0, item[0])
    )
    best = next((s.cycles for _, (c, s) in ranked if s.passed and s.cycles), None)
    rows: list[TriedConfiguration] = []
    figures: Counter[float] = Counter()
    seen: set[str] = {own[1].identity} if own is not None and own[1].passed else set()
    remaining = 0
    for key, (configuration, found) in ranked:
        is_start = key == key_of(start)
        if not found.passed:
            fate = ConfigurationOutcome.FAILED
        elif is_start:
            fate = ConfigurationOutcome.REMAINS
        elif found.identity in seen:
            fate = ConfigurationOutcome.SAME
        elif not is_allowed(space, configuration, settings.precision):
            fate = ConfigurationOutcome.OUTSIDE
        elif remaining >= most - 1 or (
            best and found.cycles and found.cycles > MAX_FACTOR_BEHIND * best
        ):
            fate = ConfigurationOutcome.SLOWER
        elif figures[found.cycles or 0.0] >= MAX_INDISTINGUISHABLE:
            fate = ConfigurationOutcome.ALIKE
        else:
            fate, remaining = ConfigurationOutcome.REMAINS, remaining + 1
            figures[found.cycles or 0.0] += 1
        seen.add(found.identity)
        relative = (
            found.cycles / base if found.passed and found.cycles is not None and base else None
        )
        rows.append(
            TriedConfiguration(
                configuration=configuration,
                fate=fate,
                score=found,
                relative=relative,
                start=is_start,
            )
        )
    return tuple(rows)
