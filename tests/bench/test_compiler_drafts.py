"""The bench of the compiler's drafts, through its command."""

from __future__ import annotations

import json

import pytest

from bench.compiler_drafts import in_order, main
from bench.compiler_drafts_suites import main as suites
from bench.compiler_drafts_table import Row, best_table, text
from bench.compiler_drafts_tuning import TunedRow
from kernelwright.policies.inductor.draft import DraftMode
from kernelwright.tools.problem import Problem

MODULE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0
def get_inputs():
    return [torch.randn(64, 128)]
def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_folder_is_drafted_and_what_was_not_begun_in_time_is_told(tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "doubled.py").write_text(MODULE)
    out, said = tmp_path / "results", []
    folder = str(tmp_path / "suite")
    assert main([folder, "--draft-only", "--out", str(out)], said.append) == 0
    (row,) = json.loads(out.with_suffix(".json").read_text())
    assert row["drafted"]
    assert row["reason"] == "drafted, not judged"
    keep = tmp_path / "drafts"
    assert (
        main(
            [folder, "--kept", "--keep", str(keep), "--draft-only", "--out", str(out)], said.append
        )
        == 0
    )
    (row,) = json.loads(out.with_suffix(".json").read_text())
    assert "no such draft was kept" in row["reason"]
    assert main([folder, "--draft-only", "--out", str(out), "--seconds", "-1"], said.append) == 0
    assert any("1 were not begun within -1 s" in line for line in said)


def test_of_each_problem_the_fastest_right_draft_is_tuned_those_farthest_behind_first():
    rows = [
        Row(
            problem="near",
            level="a",
            mode=DraftMode.STRICT,
            correct=True,
            speedup=1.2,
            speedup_compiled=0.9,
        ),
        Row(
            problem="far",
            level="a",
            mode=DraftMode.SHARE,
            correct=True,
            speedup=0.7,
            speedup_compiled=0.5,
        ),
        Row(
            problem="near",
            level="a",
            mode=DraftMode.SHARE,
            correct=True,
            speedup=1.1,
            speedup_compiled=0.8,
        ),
        Row(problem="far", level="a", mode=DraftMode.STRICT, speedup=9.0, speedup_compiled=9.0),
        Row(
            problem="other",
            level="a",
            mode=DraftMode.STRICT,
            correct=True,
            speedup=0.1,
            speedup_compiled=0.1,
        ),
    ]
    asked = [
        (Problem(name=name, source=MODULE), mode) for name in ("near", "far") for mode in DraftMode
    ]
    assert [(rows[n].problem, rows[n].mode, p.name) for n, p in in_order(rows, asked)] == [
        ("far", DraftMode.SHARE, "far"), ("near", DraftMode.STRICT, "near"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_an_earlier_run_is_tuned_from_what_it_kept(tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "doubled.py").write_text(MODULE)
    keep, out, said = tmp_path / "drafts", tmp_path / "results", []
    asked = [str(tmp_path / "suite"), "--keep", str(keep), "--out", str(out)]
    assert main([*asked, "--draft-only"], said.append) == 0
    (row,) = json.loads(out.with_suffix(".json").read_text())
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps([row | {"correct": True, "speedup": 1.5}]))
    assert main([*asked, "--tune", "1", "--tune-from", str(earlier)], said.append) == 0
    (row,) = json.loads(out.with_suffix(".json").read_text())
    assert row["tuning"]["note"] == "nothing was measured: there is no GPU"
    assert row["speedup"] == row["untuned"] == 1.5
    with pytest.raises(SystemExit, match="--keep"):
        main([asked[0], "--tune-from", str(earlier)], said.append)
    assert main([*asked, "--kept"], said.append) == 0
    (row,) = json.loads(out.with_suffix(".json").read_text())
    assert row["correct"]


def test_what_algebra_gains_is_told_apart_and_split_products_are_taken_back():
    rows = [
        Row(problem="sum", level="level2", mode=DraftMode.STRICT, correct=True, speedup=20.0, algebra=True),
        Row(problem="relu", level="level2", mode=DraftMode.STRICT, correct=True, speedup=0.5),
        Row(problem="relu", level="level2", mode=DraftMode.SHARE, correct=True, speedup=2.0, speedup_compiled=1.0,
            tuning=TunedRow(unsplit=0.25)),
        Row(problem="relu", level="level2", mode=DraftMode.STRICT, correct=True, speedup=4.0, split=True),
        Row(problem="wrong", level="level2", mode=DraftMode.SHARE, speedup=9.0),
    ]  # fmt: skip
    _, _, whole, same, unsplit = best_table(rows)
    assert whole.split("|")[2:6] == [" all ", " 2 ", " 2 ", " 8.94 "]
    assert same.split("|")[2:7] == [" the same work ", " 1 ", " 1 ", " 4.00 ", " - "]
    assert unsplit.split("|")[3:7] == [" 1 ", " 0 ", " 0.50 ", " 0.25 "]
    assert "sum (strict): 20.00 over eager, exact algebra" in text(rows, "command", "machine", 1.0)


def test_the_table_of_suites_counts_what_was_right_at_first_and_is_now_from_stored_rows(
    tmp_path, capsys
):
    first = [Row(problem=f"p{i}", level="", mode=DraftMode.STRICT, drafted=i > 0, correct=i > 1, reason="no kernel")
             for i in range(4)]  # fmt: skip
    out, runs = tmp_path / "suites", [tmp_path / "first.json", tmp_path / "again.json"]
    again = [
        first[1].with_(correct=True, reason=""),
        first[2].with_(correct=False, reason="mismatch | wrong"),
    ]
    for path, rows in zip(runs, (first, again), strict=True):
        path.write_text(json.dumps([row.model_dump(mode="json") for row in rows]))
    own = ["--out", str(out)]
    suites(
        [
            *own,
            "--set",
            "first",
            "--date",
            "2026-01-01",
            "--rows",
            f"toy={runs[0]}",
            "--machine",
            "a machine",
        ]
    )
    suites([*own, "--date", "2026-01-02", "--rows", f"toy={runs[1]}"])
    capsys.readouterr()
    suites(own)
    printed = capsys.readouterr().out
    assert "| toy | 4 | 3 | 2 | 2 | 2026-01-01 to 2026-01-02 |" in printed
    assert "| all | 4 | 3 | 2 (50%) | 2 (50%) | |" in printed
    written = out.with_suffix(".md").read_text()
    assert printed.strip() in written
    assert "| toy | p0 | no kernel |\n| toy | p2 | mismatch / wrong |" in written
