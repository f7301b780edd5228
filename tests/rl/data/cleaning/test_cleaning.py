"""Cleaning: what counts as the same, what is a benchmark's, and that an interrupted run goes on."""

import json
import os

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.errors import InputError
from kernelwright.rl.data.cleaning.labelling import MissingLabel, label_corpus
from kernelwright.rl.data.cleaning.near_duplicates import NearDuplicates, minhash_signature
from kernelwright.rl.data.cleaning.programs import programs_in
from kernelwright.rl.data.cleaning.running import clean_corpus
from kernelwright.rl.data.cleaning.suites import Benchmarks, problems_of
from kernelwright.rl.data.corpus_figures import gather_facts
from kernelwright.rl.data.corpus_report import remarks, write_report
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Kind, Split, read_rows, row_of, write_rows
from kernelwright.rl.data.synth.engine.tasks import tasks
from kernelwright.rl.data.tree_hashes import tree_hash

FORM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

size = {size}

def get_inputs():
    return [torch.randn(4, size)]

def get_init_inputs():
    return []
"""


def reference(forward: str, init: str = "pass", size: int = 64, arguments: str = "") -> str:
    return FORM.format(forward=forward, init=init, size=size, arguments=arguments)


@pytest.fixture
def benchmark(tmp_path):
    """A checkout in KernelBench's layout, of problems of our own."""
    level = tmp_path / "bench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_Cosine.py").write_text(reference("return torch.cos(x)"))
    (level / "2_Sine_then_mean.py").write_text(
        reference("y = torch.sin(x)\n        return torch.mean(y, dim=1)")
    )
    return f"kernelbench:{tmp_path / 'bench'}"


def rows_of(*references: str):
    return [
        row_of(Kind.DRAFT, f"draft\n{r}", f"answer {i} " * 30, reference=r, source="test")
        for i, r in enumerate(references)
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("return torch.relu(x)", "return F.relu(x)"),
        ("return torch.relu(x)", "return x.relu()"),
        ("return torch.relu(x)", "return torch.clamp(x, min=0)"),
        ("return x * torch.sigmoid(x)", "return F.silu(x)"),
        (
            "return torch.softmax(x * 2.0, dim=1)",
            "y = x * 3.0\n        return F.softmax(y, dim=-1)",
        ),
        ("return torch.sum(x, dim=1, keepdim=True)", "return x.sum(dim=-1)"),
        (
            "return (x + 1.0) @ x.T",
            "y = torch.add(x, 2.0)\n        z = torch.exp(x)\n        return torch.matmul(y, x.t())",
        ),
    ],
)
def test_spellings_sizes_and_constants_make_no_other_graph(first, second):
    assert graph_hash(reference(first)) == graph_hash(reference(second, size=128)) != ""


def test_a_layer_is_the_function_of_its_name_and_sequential_is_its_parts():
    layer = reference("return self.act(x)", "self.act = nn.ReLU()")
    chain = reference("return self.both(x)", "self.both = nn.Sequential(nn.ReLU(), nn.Tanh())")
    assert graph_hash(layer) == graph_hash(reference("return torch.relu(x)"))
    assert graph_hash(chain) == graph_hash(reference("return torch.tanh(F.relu(x))"))


def test_another_operation_another_order_or_another_operand_is_another_graph():
    texts = ["return torch.relu(x)", "return torch.tanh(torch.relu(x))", "return torch.relu(torch.tanh(x))",
        "return torch.relu(x) + x", "return torch.relu(x) - x", "return x - torch.relu(x)"]  # fmt: skip
    assert len({graph_hash(reference(t)) for t in texts}) == len(texts)


def test_what_the_answer_does_not_depend_on_is_no_part_of_the_graph():
    dead = reference("y = torch.exp(x)\n        return torch.relu(x)")
    assert graph_hash(dead) == graph_hash(reference("return torch.relu(x)"))


def test_renamed_and_resized_models_have_one_tree():
    assert tree_hash(reference("return torch.cos(x) * 2.0")) == tree_hash(
        reference("return torch.cos(x) * 3.0", size=9)
        .replace("(self, x)", "(self, value)")
        .replace("cos(x)", "cos(value)")
    )


def test_a_benchmarks_problem_is_dropped_however_it_is_spelt(tmp_path, benchmark):
    rows = rows_of(
        reference("return x.cos()", size=7),
        reference("return torch.sin(x).mean(dim=-1)"),
        reference("return torch.cos(x) + 1.0"),
    )
    write_rows(tmp_path / "in", rows)
    result = clean_corpus(tmp_path / "in", tmp_path / "out", [benchmark], 1, lambda _: None)
    assert (result.rows, result.leaked, result.kept) == (3, 2, 1)
    assert result.leaks == {"kernelbench:1/1": 1, "kernelbench:1/2": 1}
    assert result.flagged == 1
    (kept,) = read_rows(tmp_path / "out")
    (flag,) = map(json.loads, (tmp_path / "out" / "flagged.jsonl").read_text().splitlines())
    assert flag["id"] == kept.id
    assert flag["problem"] == "kernelbench:1/1"


SAID = (
    "Rewrite this for a GPU, please don't change its results:\n{code}\nKeep the "
    "signature, and don't forget the tests."
)


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        (SAID.format(code=reference("return x.cos()")), "sure"),
        (SAID.format(code="```python\nwidth = 3\n" + reference("return x.cos()") + "```"), "sure"),
        ("What is it?\n" + reference("return x.cos()").replace("\n", "\n    "), "sure"),
        (
            "Write a cosine",
            SAID.format(code=reference("return x.cos()").replace("class Model(", "class Cosine(")),
        ),
    ],
    ids=["between sentences", "fenced", "indented", "in the completion"],
)
def test_a_benchmarks_problem_in_a_text_is_dropped_without_a_reference(
    tmp_path, benchmark, prompt, completion
):
    write_rows(
        tmp_path / "in",
        [row_of(Kind.INSTRUCT, prompt, completion), row_of(Kind.INSTRUCT, "Write", "@jit")],
    )
    result = clean_corpus(tmp_path / "in", tmp_path / "out", [benchmark], 1, lambda _: None)
    assert (result.leaked, result.leaks) == (1, {"kernelbench:1/1": 1})
    assert (result.rows, result.uncompared, result.kept) == (2, 1, 1)


def test_a_prompt_with_a_benchmarks_words_is_flagged_without_a_reference(tmp_path, benchmark):
    cut = reference("return torch.cos(x)").replace(
        "def forward(self, x):", "def forward(self, x) ->"
    )
    write_rows(tmp_path / "in", [row_of(Kind.FIM, cut, "rest")])
    result = clean_corpus(tmp_path / "in", tmp_path / "out", [benchmark], 1, lambda _: None)
    assert (result.leaked, result.flagged, result.uncompared) == (0, 1, 1)


def test_a_text_of_errors_is_looked_through_in_bounded_time():
    assert list(programs_in("def f(:\n" * 3000 + "import torch\n")) == []
    assert list(programs_in("import torch\nsays: it's so\n@x\ndef f():\n    pass\n")) == [
        "import torch\n", "@x\ndef f():\n    pass\n",
    ]  # fmt: skip


def test_the_catalogues_held_out_problems_are_always_held_out():
    held = {p.name for p in problems_of([])}
    assert "mish" in held
    assert "fused_softmax" not in held
    leak = Benchmarks(problems_of([])).leak(find_by_name("mish").source)
    assert leak is not None
    assert leak.dropped


def test_exact_and_near_duplicates_go_and_another_graph_stays(tmp_path):
    text = reference("return torch.exp(x) - torch.tan(x)")
    code = "\n".join(f"line_{i} = tl.load(x_ptr + {i})" for i in range(60))
    again = row_of(Kind.DRAFT, text + "  \r\n", code, reference=text)
    nearly = row_of(Kind.DRAFT, text, code.replace("line_7 ", "other "), reference=text)
    other = row_of(
        Kind.DRAFT,
        text,
        code.replace("line_7 ", "other "),
        reference=reference("return torch.exp(x) * x"),
    )
    first = row_of(Kind.DRAFT, text, code, reference=text)
    write_rows(tmp_path / "in", [first, again, nearly, other])
    result = clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None)
    assert (result.exact, result.near, result.kept) == (1, 1, 2)


def test_signatures_tell_likeness():
    near = NearDuplicates()
    text = " ".join(f"word{i}" for i in range(200))
    assert not near.is_duplicate("a", minhash_signature(text))
    assert near.is_duplicate("a", minhash_signature(text.replace("word50 ", "")))
    assert not near.is_duplicate("b", minhash_signature(text))
    assert not near.is_duplicate("a", minhash_signature(" ".join(f"other{i}" for i in range(200))))


def test_an_interrupted_cleaning_uses_what_it_has(tmp_path):
    rows = rows_of(
        *(reference(f"return torch.{name}(x) * x") for name in ("exp", "sin", "tan", "erf"))
    )
    write_rows(tmp_path / "in", rows, shard_rows=2)

    def stop(step: str) -> None:
        if "compared" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, stop)
    steps: list[str] = []
    result = clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, steps.append)
    assert result.kept == 4
    assert not any("looked at" in step for step in steps)
    assert len(list(read_rows(tmp_path / "out"))) == 4
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "clean.json",
        "flagged.jsonl",
        "rows-00000.parquet",
    ]


def test_a_source_that_changed_is_not_given_the_old_result(tmp_path):
    rows = rows_of(reference("return torch.exp(x) * x"), reference("return torch.tan(x) * x"))
    write_rows(tmp_path / "in", rows[:1])
    first = clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None)
    assert clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None) == first
    write_rows(tmp_path / "in", rows[1:])
    with pytest.raises(InputError, match="has changed since"):
        clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None)
    (tmp_path / "in" / "rows-00001.parquet").unlink()
    assert clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None) == first
    os.utime(tmp_path / "in" / "rows-00000.parquet", ns=(1, 1))
    with pytest.raises(InputError, match="has changed since"):
        clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None)


def test_a_corpus_of_leaks_only_leaves_an_empty_one_that_can_be_reported(tmp_path, benchmark):
    write_rows(tmp_path / "in", rows_of(reference("return x.cos()")))
    result = clean_corpus(tmp_path / "in", tmp_path / "out", [benchmark], 1, lambda _: None)
    assert (result.leaked, result.kept, list(read_rows(tmp_path / "out"))) == (1, 0, [])
    assert remarks(result, None) == ["Nothing is left of 1 rows: the corpus is empty."]
    write_report(tmp_path / "out", gather_facts(tmp_path / "out", [benchmark]), tmp_path / "out")
    assert "1 rows in, 0 kept" in (tmp_path / "out" / "report.md").read_text()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    write_rows(tmp_path / "in", rows_of(reference("return x")))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("dear")
    with pytest.raises(InputError, match="not empty"):
        clean_corpus(tmp_path / "in", tmp_path / "out", [], 1, lambda _: None)
    with pytest.raises(InputError, match="is no suite"):
        clean_corpus(tmp_path / "in", tmp_path / "other", ["kernelbenck:here"], 1, lambda _: None)


@pytest.mark.slow
def test_labels_are_the_tools_own(tmp_path):
    task = tasks(Split.TRAIN, 1, seed=4)[0]
    good = row_of(Kind.DRAFT, "p", task.solution, reference=task.problem.source)
    bad = row_of(
        Kind.DRAFT,
        "p",
        task.solution.replace("tl.arange", "tl.aranje"),
        reference=task.problem.source,
    )
    prose = row_of(Kind.INSTRUCT, "p", "no kernel")
    bare = row_of(Kind.TRANSLATE, "p", "def kernel(): ...", reference=task.problem.source)
    useless = row_of(Kind.TRANSLATE, "p", task.solution, reference="class Other: ...")
    write_rows(tmp_path, [good, bad, prose, bare, useless])
    told = label_corpus(tmp_path, ("sm_90", "sm_80"), correct=False, workers=1, say=lambda _: None)
    found = list(read_rows(tmp_path))
    assert [row.compile for row in found] == [
        {"sm_90": True, "sm_80": True},
        {"sm_90": False, "sm_80": False},
        {},
        {},
        {},
    ]
    assert [row.correct for row in found] == [None] * 5
    assert (told.judged, told.unlabelled) == (2, dict.fromkeys(MissingLabel, 1))


def test_a_report_proves_what_is_not_in_the_data(tmp_path, benchmark):
    write_rows(
        tmp_path / "c", rows_of(reference("return torch.cos(x) * x"), reference("return x.cos()"))
    )
    facts = gather_facts(tmp_path / "c", [benchmark])
    assert facts.rows == 2
    assert len(facts.leaks) == 1
    assert "kernelbench:1/1" in facts.leaks[0]
    written = write_report(tmp_path / "c", facts, tmp_path / "r")
    page = (tmp_path / "r" / "report.md").read_text()
    assert "1 rows are a benchmark's" in page
    assert "could not be compared" not in page
    assert {p.name for p in written} == {
        "report.md",
        "provenance.json",
        "families.png",
        "lengths.png",
    }
    assert (
        json.loads((tmp_path / "r" / "provenance.json").read_text())["against"]["kernelbench"] == 2
    )
    result = clean_corpus(tmp_path / "c", tmp_path / "cleaned", [benchmark], 1, lambda _: None)
    after = gather_facts(tmp_path / "cleaned", [benchmark])
    assert (after.leaks, after.suites) == ((), result.suites)


def test_a_report_says_how_many_rows_it_can_say_nothing_of(tmp_path, benchmark):
    rows = [
        *rows_of(reference("return torch.cos(x) * x")),
        row_of(Kind.INSTRUCT, "Write a cosine", "@triton.jit"),
    ]
    write_rows(tmp_path / "c", rows)
    facts = gather_facts(tmp_path / "c", [benchmark])
    write_report(tmp_path / "c", facts, tmp_path / "c")
    page = (tmp_path / "c" / "report.md").read_text()
    assert "None of the 1 rows that could be compared" in page
    assert "1 of 2 rows could not be compared" in page
