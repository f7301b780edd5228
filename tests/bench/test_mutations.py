"""The mutation score: which mutants there are, what becomes of them, and that a run goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.judge_suites import honest
from bench.mutations.differences import search
from bench.mutations.kinds import KINDS, half_of
from bench.mutations.mutants import mutants_of, sampled
from bench.mutations.table import as_json, as_markdown, score
from bench.mutations.verdicts import judge_mutants, read_records

SUM = "row_sum"


def test_every_second_kind_of_mutation_is_reported_and_the_others_are_developed_against():
    halves = [half_of(kind) for kind in KINDS]
    assert abs(halves.count("develop") - halves.count("report")) <= 1
    assert half_of("swapped_comparison") == "report"


def test_one_seed_draws_one_sample_of_many_kernels_and_kinds():
    kernels = honest()[:40]
    sample = sampled(kernels, 30, 5)
    assert [m.key for m in sample] == [m.key for m in sampled(kernels, 30, 5)]
    assert [m.key for m in sample] != [m.key for m in sampled(kernels, 30, 6)]
    assert len({m.entry.name for m in sample}) > 15
    assert len({m.kind for m in sample}) > 12
    assert {m.half for m in sampled(kernels, 30, 5, "report")} == {"report"}


def test_a_mutant_differs_from_its_kernel_in_one_place_of_a_kernel_s_text():
    [kernel] = honest([SUM])
    mutants = list(mutants_of(kernel, "swapped_comparison"))
    assert mutants
    for mutant in mutants:
        assert mutant.source != kernel.source
        assert mutant.before in kernel.source
        assert mutant.source.count("class ModelNew") == 1


@pytest.mark.slow
@pytest.mark.nightly
def test_wrong_mutants_are_refused_and_a_second_run_judges_none_of_them_again(
    tmp_path: Path, capsys
):
    [kernel] = honest([SUM])
    file = tmp_path / "records.jsonl"
    mutants = [
        next(mutants_of(kernel, kind)) for kind in ("replaced_reduction", "later_loop_start")
    ]
    records = judge_mutants(mutants, 1, 1, 2, file)
    assert [r.outcome for r in records] == ["refused", "refused"]
    with file.open("a") as stream:
        stream.write('{"key": "cut o')  # the run was ended here
    assert judge_mutants(mutants, 1, 1, 2, file) == records
    assert "2 of 2 mutants are known" in capsys.readouterr().err
    assert list(read_records(file)) == records
    assert score(records) == 100.0
    assert "| report | 2 | 0 | 100.0 |" in as_markdown(records, "")
    assert json.loads(json.dumps(as_json(records)))["by_half"]["report"]["score"] == 100.0


@pytest.mark.slow
@pytest.mark.nightly
def test_a_search_without_the_judge_tells_mutants_that_answer_otherwise_from_those_that_do_not():
    from bench.judge_suites import problem_of

    [kernel] = honest([SUM])
    problem = problem_of(kernel.problem).source
    wrong = next(mutants_of(kernel, "later_loop_start")).source
    assert search(problem, kernel.source, wrong)["differs"]
    assert search(problem, kernel.source, kernel.source) == {"differs": ""}
