"""Ranks configurations by compiling alone, without a GPU: each proposal is traced and compiled for
the target, on all cores, and scored by a model of its cycles.

Example of a ranking, with the file's own configuration BLOCK 64; the remaining ones are timed on a
GPU:

    BLOCK    16, 128      remains   50 cycles: half of the file's own
    BLOCK   256           same      compiles to the same code as 128
    BLOCK    32           alike     a third configuration of 50 cycles
    BLOCK    64           remains   100 cycles: the file's own is always timed
    BLOCK   512           slower    200 cycles: more than MAX_FACTOR_BEHIND times the best
    BLOCK  1024           failed    does not compile
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.proposals import Proposals, groups_of
from kernelwright.agent.tuning.settings import TuneSettings, is_allowed
from kernelwright.agent.tuning.tuned import ConfigurationOutcome, ParameterGroup, TriedConfiguration
from kernelwright.tools.tuning.compile_scores import CompileScore
from kernelwright.tools.tuning.kernel_text.parameters import ParameterSpace, Setting, key_of
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite

COMPILED_KIND = "compiled"
"""Kind of the journal's rows with compilations."""
MAX_FACTOR_BEHIND = 3.0
"""Multiple of the best configuration's cycles beyond which a configuration is not timed on a GPU.
The model is coarse.
"""

MIN_SHARE_OF_CONFIGURATIONS = 0.08
"""Least share of all tunable kernels' cycles, by the model, of a group that gets configurations."""
MAX_INDISTINGUISHABLE = 2
"""Maximum number of configurations with equal cycles that remain."""

Score = Callable[[str], CompileScore]
"""Returns the score of a source text; safe to call from several threads."""
Say = Callable[[str], None]
Tried = dict[str, tuple[dict[str, Setting], CompileScore]]
"""Compiled configurations and their scores, by `key_of`."""


class Pruner:
    """Compiles and ranks the configurations of a kernel file."""

    def __init__(
        self,
        file: TunableFile,
        space: ParameterSpace,
        settings: TuneSettings,
        score: Score,
        journal: Journal,
        say: Say,
    ) -> None:
        self._file, self._space, self._settings = file, space, settings
        self._score, self._journal, self._say = score, journal, say

    def run(self, first: Sequence[Mapping[str, Setting]] = ()) -> tuple[ParameterGroup, ...]:
        """Returns every group's configurations with their scores and outcomes, best first.

        Compilations in the journal are not repeated. first: configurations tried before others.
        """
        settings = self._settings
        start, names = self._space.start(), groups_of(self._space)
        weights = dict.fromkeys(names, 1 / len(names))
        if settings.by_weight:
            weights = self._weights(names)
        names = [group_names for group_names in names if weights[group_names] > 0]
        groups = []
        for number, group_names in enumerate(names, 1):
            weight = weights[group_names]
            most_compiled = max(2, int(settings.configurations * weight))
            most_measured = max(2, int(settings.measured * weight))
            starts = [*self._file.starts, *first]
            proposals = Proposals(
                self._space, group_names, start, settings.precision, starts, settings.seed
            )
            prefix = f"group {number} of {len(names)}: " if len(names) > 1 else ""
            tried = self._compile_proposals(proposals, most_compiled, prefix)
            rows = _with_fates(self._space, settings, tried, start, most_measured)
            groups.append(ParameterGroup(parameters=group_names, rows=rows))
        return tuple(groups)

    def _weights(self, names: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
        """Returns each group's share of the configurations.

        The share is that of the group's kernels in the model's cycles, or 0 if it is small.
        """
        compile_score = self._score(self._file.source)
        cycles = dict.fromkeys(names, 0.0)
        for group_names in names:
            kernels: set[str] = set()
            for parameter in self._space.parameters:
                if parameter.name in group_names:
                    kernels.update(parameter.kernels)
            for kernel_score in compile_score.kernels:
                if kernel_score.kernel in kernels:
                    cycles[group_names] += float(kernel_score.cycles)
        total = sum(cycles.values())
        if not total:
            return dict.fromkeys(names, 1 / len(names))
        weights = dict.fromkeys(names, 0.0)
        for group_names, group_cycles in cycles.items():
            if group_cycles >= MIN_SHARE_OF_CONFIGURATIONS * total:
                weights[group_names] = group_cycles
        heavy_total = sum(weights.values())
        return {group_names: weight / heavy_total for group_names, weight in weights.items()}

    def _compile_proposals(self, proposals: Proposals, most: int, prefix: str) -> Tried:
        """Compiles batches of proposals on all cores until `most` are compiled or none is left.

        prefix: begins each message of progress.
        """
        tried: Tried = {}
        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="tune") as pool:
            try:
                while len(tried) < most:
                    batch = proposals.next(_cycles_by_key(tried), most - len(tried))
                    if not batch:
                        break
                    futures = self._submit_uncompiled(pool, batch)
                    # Results are read in the order of the proposals, whatever finishes first: a
                    # continued tuning must see the same scores in the same order.
                    for configuration in batch:
                        key = key_of(configuration)
                        if key in futures:
                            row = futures[key].result().model_dump(mode="json")
                            self._journal.add(COMPILED_KIND, key, row)
                        row = self._journal.find(COMPILED_KIND, key)
                        tried[key] = (configuration, CompileScore.model_validate(row))
                        self._say(f"{prefix}tuning: compiled {len(tried)} of {most} configurations")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return tried

    def _submit_uncompiled(
        self, pool: ThreadPoolExecutor, batch: Sequence[dict[str, Setting]]
    ) -> dict[str, Future[CompileScore]]:
        """Starts the compilations of a batch that the journal does not hold."""
        futures: dict[str, Future[CompileScore]] = {}
        for configuration in batch:
            key = key_of(configuration)
            if self._journal.find(COMPILED_KIND, key) is None:
                text = rewrite(self._file.source, self._space, configuration)
                futures[key] = pool.submit(self._score, text)
        return futures


def _cycles_by_key(tried: Tried) -> dict[str, float]:
    """Returns the model's cycles of the configurations that compiled."""
    cycles: dict[str, float] = {}
    for key, (_, score) in tried.items():
        if score.passed and score.cycles is not None:
            cycles[key] = score.cycles
    return cycles


def _with_fates(
    space: ParameterSpace,
    settings: TuneSettings,
    tried: Tried,
    start: Mapping[str, Setting],
    most: int,
) -> tuple[TriedConfiguration, ...]:
    """Ranks the configurations by the model, failures last, and decides which remain.

    most: maximum number of configurations that remain, the file's own included.
    """
    start_key = key_of(start)
    _, start_score = tried.get(start_key, (None, None))
    start_cycles = start_score.cycles if start_score is not None else None
    ranked = sorted(tried.items(), key=_rank)
    best_cycles = None
    for _, (_, score) in ranked:
        if score.passed and score.cycles:
            best_cycles = score.cycles
            break
    rows: list[TriedConfiguration] = []
    equal_cycles: Counter[float] = Counter()
    identities: set[str] = set()
    if start_score is not None and start_score.passed:
        identities.add(start_score.identity)
    remaining = 0
    for key, (configuration, score) in ranked:
        cycles = score.cycles or 0.0
        is_start = key == start_key
        too_slow = bool(best_cycles and cycles and cycles > MAX_FACTOR_BEHIND * best_cycles)
        if not score.passed:
            fate = ConfigurationOutcome.FAILED
        elif is_start:
            fate = ConfigurationOutcome.REMAINS
        elif score.identity in identities:
            fate = ConfigurationOutcome.SAME
        elif not is_allowed(space, configuration, settings.precision):
            fate = ConfigurationOutcome.OUTSIDE
        elif remaining >= most - 1 or too_slow:
            fate = ConfigurationOutcome.SLOWER
        elif equal_cycles[cycles] >= MAX_INDISTINGUISHABLE:
            fate = ConfigurationOutcome.ALIKE
        else:
            fate = ConfigurationOutcome.REMAINS
            remaining += 1
            equal_cycles[cycles] += 1
        identities.add(score.identity)
        relative = None
        if score.passed and score.cycles is not None and start_cycles:
            relative = score.cycles / start_cycles
        row = TriedConfiguration(
            configuration=configuration, fate=fate, score=score, relative=relative, start=is_start
        )
        rows.append(row)
    return tuple(rows)


def _rank(entry: tuple[str, tuple[dict[str, Setting], CompileScore]]) -> tuple[bool, float, str]:
    """Sort key of a compiled configuration: failures last, then by cycles, then by key."""
    key, (_, score) = entry
    return not score.passed, score.cycles or 0.0, key
