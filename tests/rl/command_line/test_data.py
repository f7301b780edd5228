"""`rl data` on the command line: what it says, and how it ends."""

import json

import pytest

from kernelwright.agent.batch.suite_choice import choose_problems
from kernelwright.rl.cli import main
from kernelwright.rl.data.corpus_arguments import parse_target_names
from kernelwright.rl.data.rows import Kind, read_rows, row_of, write_rows
from kernelwright.rl.training.online.problem_source import HELD_OUT_SEED, ProblemSource


def ran(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["data", *arguments])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_corpus_goes_from_jsonl_to_a_report(tmp_path, capsys):
    lines = [
        {"instruction": f"Write kernel {i}", "output": f"import triton  # {i} " + "abc " * i}
        for i in range(6)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, [*lines, lines[0]])))
    code, out, _ = ran(
        capsys,
        "import",
        "jsonl",
        str(tmp_path / "in.jsonl"),
        "--out",
        str(tmp_path / "rows"),
        "--licence",
        "MIT",
    )
    assert (code, "7" in out) == (0, True)
    code, out, _ = ran(
        capsys,
        "clean",
        str(tmp_path / "rows"),
        "--out",
        str(tmp_path / "clean"),
        "--workers",
        "1",
        "--json",
    )
    assert code == 0
    assert (json.loads(out)["rows"], json.loads(out)["exact"]) == (7, 1)
    code, out, _ = ran(capsys, "clean", str(tmp_path / "rows"), "--out", str(tmp_path / "clean"))
    assert (code, "7 of 7 rows could not be compared" in out) == (0, True)
    code, out, _ = ran(capsys, "report", str(tmp_path / "clean"))
    assert code == 0
    assert "report.md" in out
    assert "MIT" in (tmp_path / "clean" / "report.md").read_text()
    assert all(row.kind is Kind.INSTRUCT for row in read_rows(tmp_path / "clean"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("import", "xml", "here", "--out", "there"), "unknown format xml"),
        (("import", "csv", "/nowhere", "--out", "there"), "nothing at /nowhere"),
        (("synth", "--n", "1", "--out", "there", "--split", "best"), "unknown split best"),
        (("synth", "--n", "1", "--out", "there", "--target", "sm_1"), "sm_1"),
        (("clean", "/nowhere", "--out", "there"), "no corpus"),
        (("clean", "/nowhere", "--out", "there", "--against", "kernelbench"), "kernelbench:DIR"),
        (("report", "/nowhere"), "no corpus"),
        (("inductor", "--problems", "synth:none", "--out", "there"), "synth:N"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = ran(capsys, *arguments)
    assert (code, said in err, err.count("\n")) == (2, True, 1), err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_rows_is_not_generated_into(tmp_path, capsys):
    write_rows(tmp_path, [row_of(Kind.DRAFT, "a", "b")])
    code, _, err = ran(capsys, "synth", "--n", "1", "--out", str(tmp_path))
    assert code == 2
    assert "did not write" in err


def test_generated_problems_become_files_that_the_agent_takes(tmp_path, capsys):
    code, out, _ = ran(capsys, "problems", "--n", "3", "--seed", "5", "--kind", "synth:depth", "--out",
        str(tmp_path / "deep"))  # fmt: skip
    assert (code, "3 problems" in out) == (0, True)
    found = choose_problems([str(tmp_path / "deep")])
    source = ProblemSource(["synth:depth"], 5)
    assert [problem.hash for problem in found] == [problem.hash for problem in source.at(0, 3)]
    assert not [path for path in tmp_path.iterdir() if path.name != "deep"], (
        "nothing half written beside it"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--out", "taken"], "not empty: choose another --out"),
        (["--kind", "synth:nothing"], "choose synth, synth:train"),
        (["--kind", "nothing"], "choose synth, synth:train"),
        (["--seed", str(HELD_OUT_SEED)], "are reserved for measuring: choose a smaller one"),
    ],
)
def test_problems_that_cannot_be_written_are_one_line(tmp_path, capsys, monkeypatch, changes, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").touch()
    code, _, err = ran(capsys, "problems", "--n", "2", "--out", "new", *changes)
    assert (code, said in err, err.count("\n")) == (2, True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_option_without_its_value_is_told_of_by_the_program_that_was_called(capsys):
    code, out, err = ran(capsys, "clean", "rows", "--out", "clean", "--compile")
    assert (code, out) == (2, "")
    assert err == "rl: Option '--compile' requires an argument (see rl data clean --help)\n"


def test_targets_come_one_by_one_or_with_commas():
    assert parse_target_names(["sm_80", "sm_90, gfx942", "sm_80", ""]) == (
        "sm_80",
        "sm_90",
        "gfx942",
    )
    assert parse_target_names([]) == ()
