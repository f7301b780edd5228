"""The machine, declared once as data.

`Run.step` is held to it, and the picture of docs/explanation/how-a-run-works.md is held to what `mermaid` prints.
"""

from __future__ import annotations

from enum import StrEnum

import networkx as nx


class State(StrEnum):
    """The states of a run, named after the next action."""

    DRAFT = "draft"
    COMPILE = "compile"
    """Reading the text, then the offline compile."""
    CORRECTNESS = "correctness"
    """Interpreted at small shapes on a CPU, or the judge's verdict at full shapes on a GPU."""
    PROFILE = "profile"
    TUNE = "tune"
    """Other numbers for the same code: block sizes, warps, stages, input precision."""
    REPAIR = "repair"
    REFINE = "refine"
    DONE = "done"


class Outcome(StrEnum):
    """The outcomes that lead from one state to the next."""

    ANSWERED = "answered"
    """The reply holds code."""
    UNREADABLE = "unreadable"
    """The reply holds no code, or was cut off inside it: the policy's turn, counted."""
    PASSED = "passed"
    UNTUNED = "untuned"
    """Right and measured, and its numbers have not been tuned."""
    UNMEASURED = "unmeasured"
    """Right, and there is no GPU to measure its speed on."""
    FAILED = "failed"
    ABANDONED = "abandoned"
    """The candidate failed, and the best one is taken up again instead."""
    ANOTHER = "another"
    """The search turns to another candidate, or to a fresh draft."""
    STOPPED = "stopped"
    """The goal is reached, a budget is spent, or the user or this machine stops it. `StopReason` says which."""


POLICY_STATES = (State.DRAFT, State.REPAIR, State.REFINE)
TOOL_STATES = (State.COMPILE, State.CORRECTNESS, State.PROFILE)


def _edges() -> dict[tuple[State, State], set[Outcome]]:
    edges: dict[tuple[State, State], set[Outcome]] = {
        (State.COMPILE, State.CORRECTNESS): {Outcome.PASSED},
        (State.CORRECTNESS, State.PROFILE): {Outcome.PASSED},
        (State.CORRECTNESS, State.REFINE): {Outcome.UNMEASURED},
        (State.PROFILE, State.REFINE): {Outcome.PASSED},
        (State.PROFILE, State.TUNE): {Outcome.UNTUNED},
        (State.TUNE, State.COMPILE): {Outcome.ANSWERED},
        (State.TUNE, State.DONE): {Outcome.STOPPED},
    }

    def add(one: State, other: State, outcome: Outcome) -> None:
        edges.setdefault((one, other), set()).add(outcome)

    for asking in POLICY_STATES:
        add(asking, State.COMPILE, Outcome.ANSWERED)
        add(asking, State.DONE, Outcome.STOPPED)
        for other in POLICY_STATES:
            add(asking, other, Outcome.UNREADABLE if other is asking else Outcome.ANOTHER)
    for tool in TOOL_STATES:
        add(tool, State.REPAIR, Outcome.FAILED)
        add(tool, State.REFINE, Outcome.ABANDONED)
        add(tool, State.DRAFT, Outcome.ANOTHER)
        add(tool, State.TUNE, Outcome.ANOTHER)
        add(tool, State.REPAIR, Outcome.ANOTHER)
        add(tool, State.DONE, Outcome.STOPPED)
    return edges


def _build_graph() -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(State)
    for (one, other), outcomes in _edges().items():
        graph.add_edge(one, other, outcomes=frozenset(outcomes))
    return graph


MACHINE: nx.DiGraph = _build_graph()
"""Nodes are states; each edge holds the `outcomes` that lead along it."""


class MachineError(AssertionError):
    """A step that the machine does not have: a bug of ours."""


def follow(state: State, outcome: Outcome, target: State) -> State:
    """The target, if the machine goes there from this state with this outcome. Raises MachineError."""
    edge = MACHINE.get_edge_data(state, target)
    if edge is None or outcome not in edge["outcomes"]:
        raise MachineError(f"the machine does not go from {state} to {target} with {outcome}")
    return target


def mermaid(whole: bool = False) -> str:
    """A state diagram. Without `whole` the ways that only an unusual search or reply takes are left out."""
    plain = {Outcome.ANSWERED, Outcome.PASSED, Outcome.UNTUNED, Outcome.FAILED, Outcome.STOPPED}
    lines = ["stateDiagram-v2", "    [*] --> draft"]
    for one, other, edge in MACHINE.edges(data=True):
        shown = [
            outcome
            for outcome in Outcome
            if outcome in edge["outcomes"] and (whole or outcome in plain)
        ]
        if shown and (whole or other is not State.DONE or one in TOOL_STATES):
            lines.append(f"    {one} --> {other}: {', '.join(shown)}")
    return "\n".join([*lines, "    done --> [*]"])
