"""The machine is complete, and nothing goes where it does not lead."""

import re
from pathlib import Path

import networkx as nx
import pytest
from typer.testing import CliRunner

from kernelwright.agent.cli import app
from kernelwright.agent.loop.machine import (
    MACHINE,
    POLICY_STATES,
    TOOL_STATES,
    ActionOutcome,
    MachineError,
    RunState,
    follow,
    mermaid,
)


def outcomes_from(state):
    return {
        outcome
        for _, _, edge in MACHINE.out_edges(state, data=True)
        for outcome in edge["outcomes"]
    }


def test_every_state_is_in_the_machine_and_can_be_reached_from_the_draft():
    assert set(MACHINE) == set(RunState)
    assert nx.descendants(MACHINE, RunState.DRAFT) | {RunState.DRAFT} == set(RunState)


def test_every_state_but_done_can_stop_and_nothing_follows_done():
    assert MACHINE.out_degree(RunState.DONE) == 0
    for state in set(RunState) - {RunState.DONE}:
        assert ActionOutcome.STOPPED in MACHINE.edges[state, RunState.DONE]["outcomes"]


@pytest.mark.parametrize("state", POLICY_STATES)
def test_a_question_is_answered_or_not(state):
    assert outcomes_from(state) == {
        ActionOutcome.ANSWERED,
        ActionOutcome.UNREADABLE,
        ActionOutcome.ANOTHER,
        ActionOutcome.STOPPED,
    }


@pytest.mark.parametrize("state", TOOL_STATES)
def test_a_tool_passes_or_fails(state):
    assert {
        ActionOutcome.PASSED,
        ActionOutcome.FAILED,
        ActionOutcome.ABANDONED,
        ActionOutcome.ANOTHER,
        ActionOutcome.STOPPED,
    } <= outcomes_from(state)


def test_an_outcome_leads_to_one_state_except_where_the_search_chooses():
    for state in RunState:
        for outcome in set(ActionOutcome) - {ActionOutcome.ANOTHER}:
            targets = [
                other
                for _, other, edge in MACHINE.out_edges(state, data=True)
                if outcome in edge["outcomes"]
            ]
            assert len(targets) <= 1, (state, outcome, targets)


def test_every_edge_says_when_it_is_taken_and_every_outcome_is_used():
    used = [edge["outcomes"] for _, _, edge in MACHINE.edges(data=True)]
    assert all(used)
    assert frozenset().union(*used) == set(ActionOutcome)


def test_a_step_that_is_not_declared_is_refused():
    assert (
        follow(RunState.COMPILE, ActionOutcome.PASSED, RunState.CORRECTNESS) is RunState.CORRECTNESS
    )
    with pytest.raises(MachineError, match="does not go from draft to profile"):
        follow(RunState.DRAFT, ActionOutcome.PASSED, RunState.PROFILE)
    with pytest.raises(MachineError):
        follow(RunState.COMPILE, ActionOutcome.FAILED, RunState.CORRECTNESS)


def test_the_picture_names_every_state_and_the_whole_one_every_edge():
    picture, whole = mermaid(), mermaid(whole=True)
    assert picture.startswith("stateDiagram-v2\n    [*] --> draft")
    assert all(state in picture for state in RunState)
    assert whole.count(" --> ") == MACHINE.number_of_edges() + 2


def test_the_picture_in_the_documentation_is_what_the_command_prints():
    page = (Path(__file__).parents[3] / "docs/explanation/how-a-run-works.md").read_text(
        encoding="utf-8"
    )
    [picture] = re.findall(r"<!-- machine -->\n```mermaid\n(.*?)```\n<!-- end -->", page, re.DOTALL)
    assert picture == CliRunner().invoke(app, ["machine"]).stdout, (
        "put the output of `agent machine` there"
    )
