"""The network that stands in for the embedded policy really drafts and really mends, and says what it is."""

import json
from pathlib import Path

import pytest

from agent.solving import stand_in
from agent.stopping import StopReason
from bench.standin_corpus import broken, solution
from policies.base import PromptForm
from policies.embedded import WEIGHTS, open_embedded
from policies.scripted import Part, Script, ScriptedPolicy
from store.models import Action

MOST_BYTES = 8 * 2**20


@pytest.fixture(scope="module")
def embedded():
    policy = open_embedded(device="cpu")
    yield policy
    policy.close()


def test_its_first_greedy_draft_is_a_right_kernel(begin, embedded, store):
    run = begin(embedded)
    assert run.run() is StopReason.TARGET
    [turn] = store.turns(run.trajectory_id)
    assert turn.completion.policy == "embedded"
    assert len(turn.completion.token_ids) == len(turn.completion.logprobs)
    assert turn.sampling.temperature == 0.0


def test_it_mends_a_mistake_of_those_it_has_seen_and_what_it_drew_is_exact(begin, embedded, store):
    code = solution("fused_silu").replace("tl.load(", "tl.load_fast(", 1)
    assert code in broken(solution("fused_silu"))
    script = Script(parts=(Part(answers=(f"```python\n{code}```",)),), prompt_form=PromptForm.COMPACT)
    assert begin(ScriptedPolicy(script)).run() is StopReason.REFUSED, "the script has no second answer"
    run = begin(embedded)
    assert run.run() is StopReason.TARGET
    turns = store.turns(run.trajectory_id)
    assert [turn.action for turn in turns] == [Action.DRAFT, Action.REPAIR], "at the first try, drawn at 0.8"
    assert "load_fast" in turns[1].messages[-1].content
    assert turns[1].completion.exact, "fit for GRPO"


def test_it_says_what_it_is():
    notes = json.loads((WEIGHTS / "kernelwright.json").read_text())
    assert notes["stand_in"]
    assert f"has memorised {len(notes['kernels'])} kernels; it knows no others" in stand_in("embedded")
    assert stand_in("scripted:x") == ""
    assert "does not generalise" in (WEIGHTS / "README.md").read_text()


def test_it_is_small():
    assert sum(path.stat().st_size for path in Path(WEIGHTS).iterdir()) < MOST_BYTES
