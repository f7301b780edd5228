"""Reports of a real batch, and of verdicts with speeds as a GPU gives them."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.reporting.files import run_page, trajectory_page
from kernelwright.agent.reporting.run_report import report_run
from kernelwright.agent.reporting.texts import REPORT_COLUMNS, csv_text, write_markdown
from kernelwright.agent.reporting.trajectory_report import diff_lines, report_trajectory
from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
from kernelwright.policies.transformations.draft import ALGEBRA_MARK
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.report import ProfileResult, Report, Roofline, Rung, Timing

ROOT = Path(__file__).parents[3]


def agent(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    line = [sys.executable, "-m", "kernelwright.agent", *arguments]
    return subprocess.run(line, cwd=folder, env=told, text=True, capture_output=True, timeout=500)


class Page(HTMLParser):
    """What a page would load, what it shows, and which elements it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [
            value
            for name, value in attrs
            if name in ("src", "href", "data", "action", "srcset") and value
        ]

    def handle_data(self, data):
        self.words.append(data)


def check_self_contained(text: str) -> Page:
    page = Page(text)
    assert all(target.startswith("#") for target in page.loads), page.loads
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert "default-src 'none'" in text
    assert not re.search(r"url\(\s*[^#)\s]|@import", text)
    return page


def timed(problem, speedup: float) -> Report:
    """A verdict as a GPU gives it."""
    timing = Timing(
        median=1 / speedup,
        low=0.9 / speedup,
        high=1.1 / speedup,
        mean=1 / speedup,
        std=0.01,
        minimum=0.9 / speedup,
        calls=50,
    )
    eager = Timing(median=1.0, low=0.9, high=1.1, mean=1.0, std=0.01, minimum=0.9, calls=50)
    roof = Roofline(
        bytes=10**9,
        operations=10**9,
        bytes_per_second=4.8e12,
        operations_per_second=6.7e13,
        rate_name="fp32",
        bound="memory",
    )
    profile = ProfileResult(
        device="NVIDIA H200",
        candidate=timing,
        eager=eager,
        speedup=speedup,
        speedup_low=0.9 * speedup,
        roofline=roof,
    )
    return Report(
        problem=problem.name, problem_hash=problem.hash, candidate_hash=f"{speedup}", rung=Rung.PROFILE, correct=True,
        judged_on="NVIDIA H200", profile=profile,
    )  # fmt: skip


def answered(store, run_id, problem, policy, speeds, sample=0, head=""):
    """A finished trajectory whose turns had these speeds."""
    trajectory = store.begin(
        TrajectoryStart(problem=problem, policy=policy), run_id=run_id, sample=sample
    )
    parent = None
    for turn, speedup in enumerate(speeds):
        request = Request(messages=(Message(role=Role.USER, content=f"faster, {turn}"),))
        row = store.draft(
            trajectory.id,
            request,
            action=Action.REFINE if parent else Action.DRAFT,
            parent_id=parent,
        )
        code = f"{head}BLOCK = {turn}\n# 2 < 3 & 4\n"
        usage = Usage(prompt_tokens=5, completion_tokens=7, dollars=0.25)
        store.complete(
            row.id,
            Completion(text=code, finish=FinishReason.STOP, usage=usage, policy=policy),
            code,
        )
        store.judge(row.id, timed(problem, speedup), gpu_seconds=2.0)
        parent = row.id
    store.finish(trajectory.id, "turns", best_id=parent)
    return trajectory.id


@pytest.fixture
def fast(store):
    """Two policies on a GPU; the second one is slower."""
    run = store.open_run("fast", {"problems": ["fused_silu", "vector_add", "row_sum"]})
    for name, speeds in [("fused_silu", [1.0, 3.0]), ("vector_add", [0.5])]:
        answered(store, run.id, find_by_name(name), "openai:m", speeds)
        answered(store, run.id, find_by_name(name), "embedded", [0.4])
    return store


@pytest.mark.slow
def test_the_page_of_a_run_has_its_figures_and_plots_and_loads_nothing(batched):
    with Store.open(batched, readonly=True) as store:
        page = check_self_contained(run_page(report_run(store, "three")))
    assert page.tags.count("svg") == 1, "pass@k; nothing was timed, so there is no plot of fast_p"
    words = " ".join(page.words)
    assert "every sample was judged on a CPU" in words
    assert "fast_" not in words
    assert "66.7 %" in words
    for name in ("fused_silu", "vector_add", "row_sum", "no code", "pass@2"):
        assert name in words
    assert (batched.parent / "report" / "report.html").is_file()


def test_the_page_of_a_trajectory_shows_prompts_diffs_and_verdicts_and_runs_nothing_of_what_was_said(
    batched,
):
    with Store.open(batched, readonly=True) as store:
        ids = {row.problem: row.id for row in store.trajectories()}
        mended = check_self_contained(trajectory_page(report_trajectory(store, ids["fused_silu"])))
        hostile = check_self_contained(trajectory_page(report_trajectory(store, ids["vector_add"])))
    words = "".join(mended.words)
    assert "class Model(nn.Module)" in words, "the reference in the prompt"
    assert "+    tl.store" in words or "+" in words
    assert "sigmoidal" in words
    assert "correct on a CPU, interpreted" in words
    assert "<script>alert(1)</script> no code" in "".join(hostile.words), "shown, not run"


def test_a_candidate_that_says_that_it_is_exact_algebra_is_no_speed_of_the_same_work(store):
    run = store.open_run("algebra", {"problems": ["fused_silu", "vector_add"]})
    answered(store, run.id, find_by_name("fused_silu"), "embedded", [2.0])
    answered(
        store, run.id, find_by_name("vector_add"), "embedded", [32.0], head=f"{ALGEBRA_MARK}\n"
    )
    (group,) = report_run(store, "algebra").groups
    assert group.figures.by_algebra == 1
    assert group.figures.mean_speedup.value == pytest.approx(8.0)
    assert group.figures.mean_speedup_of_same_work.value == pytest.approx(2.0)


def test_speeds_of_a_gpu_make_curves_a_roofline_and_a_paired_test(fast):
    report = report_run(fast, "fast")
    one, other = report.groups
    assert (one.label, other.label) == ("openai:m", "embedded")
    assert one.figures.fast[1.0].value == pytest.approx(1 / 3), (
        "row_sum was never attempted and counts"
    )
    assert one.figures.mean_speedup.value == pytest.approx((3.0 * 0.5) ** 0.5)
    assert one.figures.cost.dollars == pytest.approx(0.75)
    [against] = report.against
    speed = next(test for test in against.tests if test.measure == "speedup")
    assert (speed.problems, speed.wins) == (2, 2)
    check_self_contained(run_page(report))
    best = next(
        row
        for row in fast.trajectories()
        if row.problem == "fused_silu" and row.policy == "openai:m"
    )
    page = check_self_contained(trajectory_page(report_trajectory(fast, best.id)))
    assert page.tags.count("svg") == 2, "speed per turn, and the roofline"
    assert "operations a byte" in " ".join(page.words)


def test_a_trajectory_without_speeds_says_why_it_has_no_plot(store):
    problem = find_by_name("fused_silu")
    base = Report(
        problem=problem.name, problem_hash=problem.hash, candidate_hash="c", rung=Rung.INTERPRETED
    )
    pages = []
    for report in (base.with_(correct=True, judged_on="cpu"), base, None):
        row = store.begin(TrajectoryStart(problem=problem, policy="m"), resume=False)
        if report is not None:
            made = store.draft(row.id, Request(messages=()), action=Action.DRAFT)
            usage = Usage(prompt_tokens=1, completion_tokens=1)
            store.complete(
                made.id,
                Completion(text="x", finish=FinishReason.STOP, usage=usage, policy="m"),
                "x = 1\n",
            )
            store.judge(made.id, report)
        pages.append(
            "".join(check_self_contained(trajectory_page(report_trajectory(store, row.id))).words)
        )
    assert "was judged on a CPU, where nothing is timed" in pages[0]
    assert "1 draft correct *" in pages[0]
    assert "no turn is correct" in pages[1]
    assert "no turn yet" in pages[2]


def test_markdown_csv_and_json_say_the_same(fast):
    report = report_run(fast, "fast")
    rows = list(csv.DictReader(io.StringIO(csv_text(report))))
    assert tuple(rows[0]) == REPORT_COLUMNS
    assert [(row["problem"], row["best_speedup"]) for row in rows[:3]] == [
        ("fused_silu", "3.0"),
        ("vector_add", "0.5"),
        ("row_sum", ""),
    ]
    assert rows[2]["fault"] == "never attempted"
    text = write_markdown(report)
    assert "| fast_1 | 33.3 %" in text
    assert json.loads(report.model_dump_json())["groups"][0]["figures"]["problems"] == 3


def test_names_cannot_break_a_table_or_become_a_formula(store):
    run = store.open_run("odd")
    problem = find_by_name("fused_silu").model_copy(update={"name": "=HYPERLINK(1)|<b>"})
    answered(store, run.id, problem, "=policy|", [2.0])
    report = report_run(store, "odd")
    assert "=HYPERLINK(1)\\|&lt;b>" in write_markdown(report)
    [row] = csv.DictReader(io.StringIO(csv_text(report)))
    assert row["problem"].startswith("'=")
    assert "<b>" not in run_page(report)


def test_a_diff_says_which_lines_came_and_went():
    assert [kind for kind, _ in diff_lines("a\nb\n", "a\nc\n")] == ["quiet", "", "removed", "added"]


@pytest.mark.slow
def test_the_command_writes_each_form_and_refuses_what_is_not_there(batched):
    folder = batched.parent
    done = agent(folder, "report", "last", "--html", "--db", "runs.db")
    assert done.returncode == 0, done.stderr
    check_self_contained((folder / "report-last.html").read_text())
    assert agent(folder, "report", "three", "--db", "runs.db").stdout.startswith("# Run three")
    assert (
        json.loads(agent(folder, "report", "1", "--json", "--db", "runs.db").stdout)["problem"]
        == "fused_silu"
    )
    for line, said in [
        (("three", "--csv", "--html"), "choose one"),
        (("nothing",), "no trajectory"),
        (("999",), "999"),
        (("1", "--csv"), "no table"),
    ]:
        refused = agent(folder, "report", *line, "--db", "runs.db")
        assert refused.returncode in (2, 3)
        assert said in refused.stderr
        assert refused.stderr.count("\n") == 1
