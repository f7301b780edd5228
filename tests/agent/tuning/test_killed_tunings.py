"""A tuning that was ended at any point goes on to the same result, in both halves, and asks for nothing twice."""

import itertools
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.measuring import TrialMeasuring
from kernelwright.agent.tuning.precision_classes import best_of_classes
from kernelwright.agent.tuning.priors import priors_of_journal
from kernelwright.agent.tuning.proposals import Proposals, groups_of
from kernelwright.agent.tuning.settings import PrecisionClass, TuneSettings
from kernelwright.agent.tuning.tuned import ConfigurationOutcome, ParameterGroup, TriedConfiguration
from kernelwright.agent.tuning.tuning import Tuner
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.judging.trials import TrialTimes
from kernelwright.tools.timing.measurement import summarise_samples
from kernelwright.tools.tuning.compile_scores import CompileScore
from kernelwright.tools.tuning.kernel_text.parameters import ParameterRole
from kernelwright.tools.tuning.kernel_text.reading import read_file

GOOD = Path(__file__).parents[2] / "kernels" / "good"
SETTINGS = TuneSettings(configurations=6, measured=4, launches=400)


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


# ------------------------------------------------------------------ the half that compiles
def pruned(evaluator, path):
    source = (GOOD / "vector_add.py").read_text(encoding="utf-8")
    with Journal(path, "one tuning") as journal:
        tuned, text = Tuner(evaluator, find_by_name("vector add"), source, SETTINGS, journal).run()
    return tuned.with_(journal="", resumed=False), text


@pytest.mark.slow
@pytest.mark.nightly
def test_the_half_that_compiles_ends_alike_wherever_its_journal_ends(tmp_path):
    with Evaluator("cpu") as evaluator:
        whole = pruned(evaluator, tmp_path / "whole")
        rows = lines(tmp_path / "whole")
        assert len(whole[0].groups[0].rows) == SETTINGS.configurations
        for kept in (1, len(rows) // 2, len(rows) - 1):
            path = tmp_path / f"killed {kept}"
            torn = rows[kept][:-9] if kept < len(rows) else b""  # while a row was written
            path.write_bytes(b"".join(rows[:kept]) + torn)
            assert pruned(evaluator, path) == whole
            assert lines(path) == rows


# ------------------------------------------------------------------ the half that measures
class Killed(BaseException):
    """As a process that is ended between two calls of the clock."""


class KnownTimes:
    """A clock whose times follow from the text and the number of the trial; it is gone after so many trials."""

    def __init__(self, until=10**9):
        self.until, self.trials = until, 0

    def time(self, source, calls):
        if self.trials == self.until:
            raise Killed
        self.trials += 1
        if "BLOCK_K=32" in source:
            return TrialTimes(failure="mismatch: wrong", seconds=0.1)
        base = 1.0 + sum(source.encode()) % 97 / 50
        noise = itertools.islice(itertools.cycle((0.0, 0.004, -0.003, 0.001, -0.002)), calls)
        return TrialTimes(
            milliseconds=tuple(base + n for n in noise),
            eager=summarise_samples([2.0] * 8),
            seconds=0.1,
        )


def groups_to_measure(space):
    """Of a product the numbers together, with what was proposed for it."""
    [names] = groups_of(space)
    start = space.start()
    proposed = Proposals(space, names, start, SETTINGS.precision).next({}, 8)
    rows = [
        TriedConfiguration(
            configuration=one,
            fate=ConfigurationOutcome.REMAINS,
            score=CompileScore(cycles=1.0),
            start=one == start,
        )
        for one in proposed
    ]
    return (ParameterGroup(parameters=names, rows=tuple(rows)),)


def measured(path, clock):
    file = read_file((GOOD / "matmul.py").read_text(encoding="utf-8"))
    with Journal(path, "one tuning") as journal:
        found = TrialMeasuring(file, file.space, SETTINGS, clock, journal, lambda doing: None).run(
            groups_to_measure(file.space)
        )
    # how long a trial took is of the process that made it, and is kept with its row
    return (
        found.best,
        found.before,
        found.after,
        found.eager,
        found.launches,
        found.ranked,
        found.stopped_by_budget,
        [
            [(row.configuration, row.fate, row.timing) for row in group.rows]
            for group in found.groups
        ],
    )


def test_the_half_that_measures_ends_alike_wherever_it_was_killed(tmp_path):
    clock = KnownTimes()
    whole = measured(tmp_path / "whole", clock)
    assert clock.trials > 12
    assert whole[0] != read_file((GOOD / "matmul.py").read_text(encoding="utf-8")).space.start()
    for until in range(0, clock.trials, 4):
        path, again = tmp_path / f"killed after {until}", KnownTimes()
        with pytest.raises(Killed):
            measured(path, KnownTimes(until))
        assert measured(path, again) == whole
        assert again.trials == clock.trials - until


def test_a_configuration_that_was_wrong_is_wrong_again_and_never_timed_again(tmp_path):
    first = measured(tmp_path / "journal", KnownTimes())
    wrong = [
        fate
        for configuration, fate, _ in first[-1][0]
        if configuration["matmul_kernel.BLOCK_K"] == 32
    ]
    assert wrong
    assert set(wrong) == {ConfigurationOutcome.WRONG}
    assert measured(tmp_path / "journal", KnownTimes(0)) == first


def test_the_best_of_each_class_of_precision_is_told_and_narrower_classes_count_for_wider_ones(
    tmp_path,
):
    file = read_file((GOOD / "matmul.py").read_text(encoding="utf-8"))
    with Journal(tmp_path / "j", "one") as journal:
        found = TrialMeasuring(
            file, file.space, SETTINGS, KnownTimes(), journal, lambda doing: None
        ).run(groups_to_measure(file.space))
    best = best_of_classes(file.space, found, None)
    assert list(best) == list(PrecisionClass)
    times = [best[kind].timing.median for kind in PrecisionClass]
    assert times == sorted(times, reverse=True)
    assert best["ieee"].precision is PrecisionClass.IEEE
    [name] = [p.name for p in file.space.parameters if p.role is ParameterRole.PRECISION]
    assert best["ieee"].configuration[name] == "ieee"
    assert best["split"].correct is None


# ------------------------------------------------------------------ where it began
def test_what_the_store_has_learnt_since_changes_nothing_of_a_tuning_that_goes_on(tmp_path):
    space = read_file((GOOD / "matmul.py").read_text(encoding="utf-8")).space
    [warps] = [p.name for p in space.parameters if p.role is ParameterRole.WARPS]
    with Journal(tmp_path / "j", "one") as journal:
        assert priors_of_journal(journal, list) == []
    with Journal(tmp_path / "j", "one") as journal:
        assert priors_of_journal(journal, lambda: [{warps: 8}]) == []
    with Journal(tmp_path / "j", "another") as journal:
        assert priors_of_journal(journal, lambda: [{warps: 8}]) == [{warps: 8}]
