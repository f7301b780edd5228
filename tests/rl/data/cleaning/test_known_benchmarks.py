"""Benchmarks that are known by their hashes: no training problem is one of theirs, with no checkout there."""

import pytest

from kernelwright.errors import InputError
from kernelwright.rl.data.cleaning import known_benchmarks as module
from kernelwright.rl.data.cleaning.known_benchmarks import hash_suite, load_known_benchmarks
from kernelwright.rl.data.cleaning.suites import Benchmarks, graphs_of
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Split
from kernelwright.rl.data.synth.engine.tasks import task_of, tasks
from kernelwright.rl.training.online.problem_source import ProblemSource
from kernelwright.rl.training.sft.drawn_rows import drawn_rows
from kernelwright.tools.problem import Problem

RELU = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, t):\n        "
    "return t.relu()\n"
)
DRAWS = 600


def test_the_file_is_of_todays_hashes_and_holds_no_text():
    found = load_known_benchmarks()
    assert {suite.name: suite.problems for suite in found.suites} == {
        "kernelbench": 250,
        "tritonbench-t": 152,
    }
    for suite in found.suites:
        assert all(
            len(digest) == 40 and int(digest, 16) for digest in [*suite.graphs, *suite.trees]
        )


def test_a_benchmarks_operation_is_known_however_it_is_spelt():
    leak = Benchmarks([]).leak(RELU)
    assert leak is not None
    assert leak.dropped
    assert leak.problem in ("kernelbench:1/19", "tritonbench-t:relu")
    assert graph_hash(RELU) in graphs_of()


def test_a_file_of_another_hash_is_refused(monkeypatch):
    monkeypatch.setattr(module, "CANARY", RELU)
    load_known_benchmarks.cache_clear()
    with pytest.raises(InputError, match="another graph hash"):
        load_known_benchmarks()
    load_known_benchmarks.cache_clear()


def test_nothing_that_is_drawn_is_a_benchmarks():
    """Some draws are, before they are held against the benchmarks; none is after."""
    free = [
        task for number in range(DRAWS) if (task := task_of(Split.TRAIN, 0, number, frozenset()))
    ]
    assert any(graph_hash(task.problem.source) in graphs_of() for task in free)
    drawn = [row.reference for row in drawn_rows(200, 0, 1)]
    of_streams = [task.problem.source for task in tasks(Split.TRAIN, 200)]
    online = [problem.source for problem in ProblemSource(("synth",), 0).at(0, 100)]
    assert not [text for text in [*drawn, *of_streams, *online] if graph_hash(text) in graphs_of()]


def test_a_suite_of_ones_own_is_kept_out_besides(tmp_path):
    first = next(iter(ProblemSource(("synth",), 0).at(0, 1)))
    (tmp_path / "own.py").write_text(first.source)
    graph = graph_hash(first.source)
    kept = ProblemSource(("synth",), 0, (str(tmp_path),)).at(0, 50)
    assert graph not in {graph_hash(problem.source) for problem in kept}


def test_a_suite_is_its_problems_hashes():
    suite = hash_suite(
        "mine", [Problem(name="mine:1", source=RELU), Problem(name="mine:2", source=RELU)]
    )
    assert (suite.problems, list(suite.graphs.values()), list(suite.trees.values())) == (
        2,
        ["mine:1"],
        ["mine:1"],
    )


def test_held_out_problems_are_not_trained_on():
    trained = {problem.name for problem in ProblemSource(("catalogue",), 0).at(0, 500)}
    assert "fused_softmax" in trained
    assert "mish" not in trained
