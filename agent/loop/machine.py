"""The state machine of a run, declared once as data.

`Run.step` follows the machine. A test compares the diagram of docs/explanation/how-a-run-works.md
with the output of `mermaid`. A run with a wrong first draft, whose repair is correct and then tuned
on a GPU:

    draft -answered-> compile -passed-> correctness -failed-> repair
    repair -answered-> compile -passed-> correctness -passed-> profile -untuned-> tune
    tune -answered-> compile -passed-> correctness -passed-> profile -passed-> refine -stopped-> done
"""

from __future__ import annotations

from enum import StrEnum

import networkx as nx


class RunState(StrEnum):
    """The states of a run, named after the next action."""

    DRAFT = "draft"
    COMPILE = "compile"
    """Reading the source text, then the offline compile."""
    CORRECTNESS = "correctness"
    """Interpreted at small shapes on a CPU, or judged at full shapes on a GPU."""
    PROFILE = "profile"
    TUNE = "tune"
    """Searching other numbers for the same code: block sizes, warps, stages, input precision."""
    REPAIR = "repair"
    REFINE = "refine"
    DONE = "done"


class ActionOutcome(StrEnum):
    """The outcomes of an action, which lead from one state to the next."""

    ANSWERED = "answered"
    """The reply holds code."""
    UNREADABLE = "unreadable"
    """The reply holds no code, or was cut off inside the code; the turn is counted."""
    PASSED = "passed"
    UNTUNED = "untuned"
    """Correct and measured, with numbers that have not been tuned."""
    UNMEASURED = "unmeasured"
    """Correct; speed not measured (no GPU)."""
    FAILED = "failed"
    ABANDONED = "abandoned"
    """The candidate failed, and the run goes back to the best candidate."""
    ANOTHER = "another"
    """The search turns to another candidate, or to a fresh draft."""
    STOPPED = "stopped"
    """The goal is reached, a budget is spent, or the user or this machine stops the run.
    `StopReason` says which.
    """


POLICY_STATES = (RunState.DRAFT, RunState.REPAIR, RunState.REFINE)
"""States whose action asks the policy for a candidate."""
TOOL_STATES = (RunState.COMPILE, RunState.CORRECTNESS, RunState.PROFILE)
"""States whose action judges the candidate."""


def _edges() -> dict[tuple[RunState, RunState], set[ActionOutcome]]:
    edges: dict[tuple[RunState, RunState], set[ActionOutcome]] = {
        (RunState.COMPILE, RunState.CORRECTNESS): {ActionOutcome.PASSED},
        (RunState.CORRECTNESS, RunState.PROFILE): {ActionOutcome.PASSED},
        (RunState.CORRECTNESS, RunState.REFINE): {ActionOutcome.UNMEASURED},
        (RunState.PROFILE, RunState.REFINE): {ActionOutcome.PASSED},
        (RunState.PROFILE, RunState.TUNE): {ActionOutcome.UNTUNED},
        (RunState.TUNE, RunState.COMPILE): {ActionOutcome.ANSWERED},
        (RunState.TUNE, RunState.DONE): {ActionOutcome.STOPPED},
    }

    def add(source: RunState, target: RunState, outcome: ActionOutcome) -> None:
        edges.setdefault((source, target), set()).add(outcome)

    for policy_state in POLICY_STATES:
        add(policy_state, RunState.COMPILE, ActionOutcome.ANSWERED)
        add(policy_state, RunState.DONE, ActionOutcome.STOPPED)
        for target in POLICY_STATES:
            add(
                policy_state,
                target,
                ActionOutcome.UNREADABLE if target is policy_state else ActionOutcome.ANOTHER,
            )
    for tool_state in TOOL_STATES:
        add(tool_state, RunState.REPAIR, ActionOutcome.FAILED)
        add(tool_state, RunState.REFINE, ActionOutcome.ABANDONED)
        add(tool_state, RunState.DRAFT, ActionOutcome.ANOTHER)
        add(tool_state, RunState.TUNE, ActionOutcome.ANOTHER)
        add(tool_state, RunState.REPAIR, ActionOutcome.ANOTHER)
        add(tool_state, RunState.DONE, ActionOutcome.STOPPED)
    return edges


def _build_graph() -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(RunState)
    for (source, target), outcomes in _edges().items():
        graph.add_edge(source, target, outcomes=frozenset(outcomes))
    return graph


MACHINE: nx.DiGraph = _build_graph()
"""Graph of the machine: nodes are states; each edge holds the `outcomes` that lead along the
edge.
"""


class MachineError(AssertionError):
    """A transition outside the machine: a bug of this program."""


def follow(state: RunState, outcome: ActionOutcome, target: RunState) -> RunState:
    """Returns the target if the machine goes there from this state with this outcome. Raises
    MachineError otherwise.
    """
    edge = MACHINE.get_edge_data(state, target)
    if edge is None or outcome not in edge["outcomes"]:
        raise MachineError(f"the machine does not go from {state} to {target} with {outcome}")
    return target


def mermaid(whole: bool = False) -> str:
    """Writes the machine as a Mermaid state diagram.

    whole: also the edges that only an unusual search or reply takes.
    """
    plain = {
        ActionOutcome.ANSWERED,
        ActionOutcome.PASSED,
        ActionOutcome.UNTUNED,
        ActionOutcome.FAILED,
        ActionOutcome.STOPPED,
    }
    lines = ["stateDiagram-v2", "    [*] --> draft"]
    for source, target, edge in MACHINE.edges(data=True):
        shown = [
            outcome
            for outcome in ActionOutcome
            if outcome in edge["outcomes"] and (whole or outcome in plain)
        ]
        if shown and (whole or target is not RunState.DONE or source in TOOL_STATES):
            lines.append(f"    {source} --> {target}: {', '.join(shown)}")
    return "\n".join([*lines, "    done --> [*]"])
