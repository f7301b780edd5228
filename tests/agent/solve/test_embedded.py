"""The network that ships really drafts, of problems that it was never shown, and says what it is."""

import json
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.solve.solving import embedded_policy_note
from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS, open_embedded
from kernelwright.rl.data.cleaning.suites import graphs_of
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Split
from kernelwright.rl.data.synth.engine.tasks import tasks

MOST_BYTES = 32 * 2**20


@pytest.fixture(scope="module")
def embedded():
    policy = open_embedded(device="cpu")
    yield policy
    policy.close()


def test_its_first_greedy_draft_of_the_fused_softmax_is_a_right_kernel(begin, embedded, store):
    run = begin(embedded)
    run.run()
    turn = store.turns(run.trajectory_id)[0]
    assert turn.completion.policy == "embedded"
    assert turn.report.correct
    assert turn.sampling.temperature == 0.0
    assert len(turn.completion.token_ids) == len(turn.completion.logprobs)
    assert turn.completion.token_ids, "fit for GRPO: every token with its log-prob"


def test_the_softmax_alone_was_never_drawn_for_its_training():
    """Its graph is a benchmark's, so whoever trains on the generator's draws has not seen it."""
    graph = graph_hash(find_by_name("fused_softmax").source)
    assert graph in graphs_of()
    assert graph not in {graph_hash(task.problem.source) for task in tasks(Split.TRAIN, 300)}


def test_it_says_what_it_is():
    notes = json.loads((EMBEDDED_WEIGHTS / "kernelwright.json").read_text())
    assert notes["note"] == embedded_policy_note("embedded") != ""
    assert embedded_policy_note("scripted:x") == ""
    card = (EMBEDDED_WEIGHTS / "README.md").read_text()
    assert f"{notes['parameters']:,} weights" in card
    assert "not judged by the tools" in card


def test_it_is_small():
    assert sum(path.stat().st_size for path in Path(EMBEDDED_WEIGHTS).iterdir()) < MOST_BYTES
