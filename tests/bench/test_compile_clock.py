"""The bench of torch.compile's clock: its sample, and what it makes of times."""

from __future__ import annotations

import json

import pytest

from bench.compile_clock import ClockRow, sampled, text, write
from bench.compiler_drafts_table import Row
from bench.compiler_drafts_table import text as drafts_text
from bench.max_autotune import beside
from kernelwright.policies.inductor.draft import DraftMode
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import ProfileResult, TimingMethod
from kernelwright.tools.timing.compiled_reference import Baseline
from kernelwright.tools.timing.extras import compared_with
from kernelwright.tools.timing.measurement import summarise_samples

GRAPH, QUEUED, WITH_HOST = TimingMethod.GRAPH, TimingMethod.QUEUED, TimingMethod.WITH_HOST


def times(ms, method):
    return summarise_samples([ms] * 20, method)


def baseline(eager, compiled, method):
    return Baseline(
        eager=times(eager, method),
        compiled=times(compiled, method),
        eager_host_ms=0.04,
        compiled_host_ms=0.05,
    )


def row(problem="relu", level="level1", compiled=1.0, **changes):
    """Eager 2 ms and the draft 1 ms; torch.compile as a graph as given, 1.2 ms with its host code."""
    graph, with_host = baseline(2.0, compiled, GRAPH), baseline(2.0, 1.2, WITH_HOST)
    profile = ProfileResult(
        device="H100",
        candidate=times(1.0, GRAPH),
        eager=times(2.0, GRAPH),
        speedup=2.0,
        speedup_low=2.0,
        host_ms=0.01,
    )
    made = ClockRow(
        problem=problem, level=level, mode=DraftMode.STRICT, correct=True, profile=compared_with(graph, profile),
        graph=graph, with_host=with_host,
    )  # fmt: skip
    return made.with_(**changes)


def test_a_goal_that_only_the_old_clock_reached_is_counted(tmp_path):
    rows = [row(), row("conv", "level2", compiled=1.2), row("sum", apart=True)]
    assert rows[0].overstated == pytest.approx(1.2)
    assert (rows[0].before, rows[0].now) == (pytest.approx(1.2), pytest.approx(1.0))
    lines = text(rows, 200, "`command`, a card").splitlines()
    assert (
        "3 of 200 problems were begun: a stratified sample, complete where both are equal." in lines
    )
    assert "| level1 | 2 of 2 | 1.20, 1.20 | 1 | 2.00 | 1.20 | 1.00 | 1 |" in lines
    assert "| level2 | 1 of 1 | 1.00, 1.00 | 1 | 2.00 | 1.20 | 1.20 | 0 |" in lines
    assert "| relu | level1 | strict | 2 | 1 | 1.2 | 1 | 40 | 50 | 10 | 1.20 | 1.00 |  |" in lines
    write(rows, 200, "head", tmp_path / "clock")
    stored = [
        ClockRow.model_validate(one) for one in json.loads((tmp_path / "clock.json").read_text())
    ]
    assert stored == rows


def test_what_could_not_be_captured_or_compiled_has_no_ratio():
    queued = row(graph=baseline(2.0, 1.0, QUEUED))
    assert queued.overstated is None
    failed = ClockRow(
        problem="relu",
        level="level1",
        reason="torch.compile failed",
        graph=Baseline(),
        with_host=None,
    )
    assert failed.overstated is failed.before is failed.now is None
    assert "torch.compile failed" in text([failed], 1, "head")


def test_every_beginning_of_the_order_is_in_proportion_to_levels_and_kinds():
    titles = [
        *(f"{i}_conv" for i in range(30)),
        *(f"{i}_Gemm" for i in range(20)),
        *(f"{i}_ReLU" for i in range(50)),
    ]
    problems = [
        Problem(name=f"{level}/{title}", title=title, family=level, source=f"x = '{level}{title}'")
        for level in ("level1", "level2")
        for title in titles
    ]
    order = sampled(problems, 0)
    assert sorted(p.name for p in order) == sorted(p.name for p in problems)
    first = order[:50]
    assert abs(sum(p.family == "level1" for p in first) - 25) <= 3
    assert abs(sum("conv" in p.name for p in first) - 15) <= 3
    assert sampled(problems, 0) == order != sampled(problems, 1)


def test_rows_from_before_say_that_torch_compile_was_timed_with_its_host_code():
    old = Row(
        problem="relu",
        level="level1",
        mode=DraftMode.STRICT,
        correct=True,
        speedup=2.0,
        speedup_compiled=1.2,
    )
    assert "In 1 rows torch.compile was timed with its host code" in drafts_text(
        [old], "command", "machine", 1.0
    )
    assert "host code" not in drafts_text([old.with_(method=GRAPH)], "command", "machine", 1.0)


@pytest.mark.parametrize(("method", "ratio"), [(GRAPH, 1.5), (QUEUED, None)])
def test_a_draft_is_put_beside_max_autotune_where_both_were_timed_alike(method, ratio):
    draft = Row(
        problem="relu",
        level="level2",
        mode=DraftMode.SHARE,
        correct=True,
        speedup=3.0,
        method=GRAPH,
    )
    assert beside(draft, baseline(2.0, 1.0, method))["draft_over_max_autotune"] == ratio
