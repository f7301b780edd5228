"""Figures against values worked out by hand, and against brute force."""

import itertools
import math

import pytest

from kernelwright.agent.reporting.figures import (
    by_problem,
    compute_figures,
    is_faster_than,
    mean_rate,
    pass_at,
    total_cost,
)
from kernelwright.agent.reporting.files import fast_p_plot
from kernelwright.agent.reporting.pairing import (
    compare_paired,
    compare_runs,
    permutation_test,
    sign_test,
)
from kernelwright.agent.reporting.samples import Cost, ReportedSample
from kernelwright.agent.reporting.texts import figure_rows


def sample(problem, number=0, *, speedup=None, correct=None, judged_on="NVIDIA H200", **more):
    correct = speedup is not None if correct is None else correct
    return ReportedSample(
        trajectory_id=number + 1, problem=problem, problem_hash=problem, suite="catalogue", policy="scripted",
        options=more.pop("options", "{}"), number=number, finished=True, compiled=True, correct=correct,
        judged_on=judged_on, speedup=speedup, **more,
    )  # fmt: skip


RANDOM = {
    "stop_reason": "problem",
    "stop_message": "the reference is random: output 0 follows torch's generator",
}


def test_a_problem_that_cannot_be_judged_is_in_no_share_and_is_told_with_its_reason():
    own = [
        sample("a", speedup=2.0),
        sample("b", correct=False),
        sample("noisy", correct=False, **RANDOM),
    ]
    found = compute_figures(by_problem(own, ["a", "b", "noisy", "never tried"]))
    assert (found.problems, found.attempted, found.samples) == (4, 3, 3)
    assert found.correct.value == found.pass_at[1].value == pytest.approx(1 / 3), (
        "of a, b and the one never tried"
    )
    assert (found.correct.problems, found.fast[1.0].problems, found.unusable) == (3, 3, ("noisy",))
    rows = figure_rows(found)
    assert (
        dict(rows)["not judged"]
        == "1 of 4 problems, in no share, because of the reference and not of a kernel"
    )
    assert ("", f"noisy: {RANDOM['stop_message']}") in rows
    assert "correct" in dict(rows)


def test_where_no_problem_can_be_judged_there_is_no_share():
    found = compute_figures(by_problem([sample("noisy", correct=False, **RANDOM)]))
    assert found.correct.value is None
    assert found.nothing_judged
    assert [label for label, _ in figure_rows(found)] == ["problems", "not judged", "", "cost"]


def test_of_a_problem_with_a_correct_sample_only_the_samples_that_could_not_be_judged_are_left_out():
    own = [
        sample("a", 0, correct=False, **RANDOM),
        sample("a", 1, speedup=2.0),
        sample("a", 2, correct=False),
    ]
    found = compute_figures(by_problem(own))
    assert (found.correct.value, found.unusable) == (0.5, ())


def test_many_problems_that_cannot_be_judged_are_counted_and_the_first_ones_named():
    found = compute_figures(
        by_problem([sample(f"n{k}", correct=False, **RANDOM) for k in range(11)])
    )
    rows = figure_rows(found)
    assert dict(rows)["not judged"].startswith("11 of 11 problems")
    assert [text for label, text in rows if not label][
        -1
    ] == "and 3 more, with their reasons in the table of problems"


def test_runs_are_not_compared_on_a_problem_that_one_of_them_could_not_judge():
    first = by_problem([sample("a", speedup=2.0), sample("noisy", correct=False, **RANDOM)])
    second = by_problem([sample("a", speedup=1.0), sample("noisy", speedup=3.0)])
    assert [test.problems for test in compare_runs(first, second)] == [1, 1, 1]


def test_pass_at_k_is_the_mean_over_every_choice_of_k():
    for n, c in [(5, 0), (5, 2), (6, 6), (7, 1)]:
        outcomes = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            choices = list(itertools.combinations(outcomes, k))
            assert pass_at(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    with pytest.raises(ValueError):
        pass_at(3, 1, 4)


def test_fast_p_is_strict_and_problems_never_attempted_count_as_failed():
    attempts = by_problem(
        [sample("a", speedup=1.0), sample("b", speedup=2.5)], ["a", "b", "c", "d"]
    )
    found = compute_figures(attempts)
    assert {p: e.value for p, e in found.fast.items()} == {
        0.0: 0.5,
        0.5: 0.5,
        0.8: 0.5,
        1.0: 0.25,
        1.5: 0.25,
        2.0: 0.25,
    }
    assert (found.problems, found.attempted, found.correct.value) == (4, 2, 0.5)
    assert found.pass_at[1].value == 0.5


def test_a_verdict_of_a_cpu_is_correct_but_enters_no_speed():
    found = compute_figures(
        by_problem([sample("a", speedup=9.0, judged_on="cpu"), sample("b", speedup=2.0)])
    )
    assert found.correct.value == 1.0
    assert found.correct_on_cpu_only == 1
    assert found.fast[0.0].value == 0.5
    assert found.median_speedup.value == pytest.approx(2.0)
    assert found.median_speedup.problems == 1


def test_a_run_that_no_gpu_judged_has_no_fast_p_and_says_why():
    cpu = {"judged_on": "cpu", "options": '{"device": "cpu"}'}
    broken = {"judged_on": "", "options": '{"device": "cpu"}', "correct": False}
    attempts = by_problem([sample("a", correct=True, **cpu), sample("b", **broken)])
    found = compute_figures(attempts)
    assert (found.fast, found.fast_best, found.median_speedup.value) == ({}, {}, None)
    rows = dict(figure_rows(found))
    assert not any(name.startswith("fast_") or "speedup" in name for name in rows)
    assert "every sample was judged on a CPU" in rows["speed"]
    assert [test.measure for test in compare_runs(attempts, attempts)] == ["correct"]
    assert fast_p_plot([("cpu", found)]) == ""


def test_a_run_with_a_gpu_on_which_nothing_compiled_was_timed_and_has_a_fast_p_of_zero():
    broken = {"judged_on": "", "options": '{"device": "cuda"}', "correct": False}
    found = compute_figures(by_problem([sample("a", **broken)]))
    assert found.not_timed == ""
    assert dict(figure_rows(found))["fast_1"] == "0 %"


def test_problems_weigh_the_same_however_many_samples_they_have():
    own = [sample("a", k, speedup=2.0 if k == 0 else None) for k in range(4)]
    attempts = by_problem([*own, sample("b", speedup=3.0)])
    assert mean_rate(attempts, is_faster_than(1.0)).value == pytest.approx((0.25 + 1.0) / 2)
    assert compute_figures(attempts).fast_best[1.0].value == 1.0
    assert list(compute_figures(attempts).pass_at) == [1], "b has one sample only"


def test_degenerate_problems_are_left_out_of_the_second_total():
    attempts = by_problem(
        [sample("a", speedup=2.0, degenerate=("zeros",)), sample("b", correct=False)]
    )
    found = compute_figures(attempts)
    assert (found.correct.value, found.correct_without_degenerate.value, found.degenerate) == (
        0.5,
        0.0,
        1,
    )


def test_speedups_are_of_the_fastest_sample_of_each_problem():
    attempts = by_problem(
        [sample("a", 0, speedup=1.0), sample("a", 1, speedup=4.0), sample("b", speedup=1.0)]
    )
    found = compute_figures(attempts)
    assert found.mean_speedup.value == pytest.approx(2.0)
    assert found.median_speedup.value == pytest.approx(2.5)


def test_what_exact_algebra_and_degenerate_problems_gain_is_no_speed_of_the_same_work():
    own = [sample("a", 0, speedup=20.0, algebra=True), sample("a", 1, speedup=2.0)]
    attempts = by_problem(
        [*own, sample("b", speedup=50.0, degenerate=("zeros",)), sample("c", speedup=8.0)]
    )
    found = compute_figures(attempts)
    assert found.mean_speedup.value == pytest.approx(20.0)
    assert found.mean_speedup_of_same_work.value == pytest.approx(4.0)
    told = dict(figure_rows(found))["geometric mean of the same work"]
    assert told.startswith("4x")
    assert told.endswith(", 1 degenerate problems and 1 by exact algebra left out")
    plain = compute_figures(by_problem([sample("c", speedup=8.0)]))
    assert "geometric mean of the same work" not in dict(figure_rows(plain))


def test_the_bootstrap_is_the_same_every_time_and_close_to_the_normal_interval():
    attempts = by_problem([sample(str(k), speedup=2.0 if k % 2 else None) for k in range(200)])
    one, other = compute_figures(attempts), compute_figures(attempts)
    assert one == other
    half = 1.96 * math.sqrt(0.25 / 200)
    assert one.correct.low == pytest.approx(0.5 - half, abs=0.01)
    assert one.correct.high == pytest.approx(0.5 + half, abs=0.01)
    assert compute_figures(by_problem([sample("a", speedup=2.0)])).correct.low is None, (
        "one problem has no interval"
    )


def test_nothing_at_all_gives_no_figure_instead_of_a_number():
    found = compute_figures({})
    assert found.correct.value is None
    assert found.mean_speedup.value is None
    assert found.pass_at == {}


def test_a_price_that_is_not_known_stays_unknown_in_the_total():
    costs = [Cost(turns=1, dollars=0.5), Cost(turns=2, dollars=None)]
    assert total_cost([sample("a", k, cost=cost) for k, cost in enumerate(costs)]).dollars is None
    assert total_cost([sample("a", k, cost=cost) for k, cost in enumerate(costs)]).turns == 3


def test_the_sign_test_is_the_exact_binomial():
    assert sign_test(8, 0) == pytest.approx(2 / 256)
    assert sign_test(5, 5) == 1.0
    assert sign_test(0, 0) == 1.0


def test_the_permutation_test_tries_every_flip_of_a_few_and_draws_among_many():
    differences = [0.5, 0.25, -0.125]
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=3)
    ]
    assert permutation_test(differences) == sum(s >= 0.625 - 1e-9 for s in sums) / 8
    assert permutation_test([1.0] * 40) < 0.001
    assert permutation_test([1.0, -1.0] * 20) == pytest.approx(1.0, abs=0.01)


def test_two_runs_are_compared_on_the_problems_that_both_have():
    first = by_problem(
        [sample("a", speedup=2.0), sample("b", speedup=3.0), sample("c", speedup=1.0)]
    )
    second = by_problem(
        [sample("a", speedup=1.0), sample("b", correct=False), sample("d", speedup=9.0)]
    )
    correct, faster, speed = compare_runs(first, second)
    assert (correct.problems, correct.wins, correct.losses, correct.ties) == (2, 1, 0, 1)
    assert (faster.wins, faster.losses) == (2, 0)
    assert speed.problems == 1
    assert speed.difference == pytest.approx(math.log(2))
    assert compare_paired("nothing", [], []).sign_p is None
