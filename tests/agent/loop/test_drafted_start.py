"""Runs that start from a draft which the policy did not write."""

from kernelwright.agent.loop.stopping import Budgets, Goal
from kernelwright.policies.base import Origin
from kernelwright.policies.inductor.draft import Draft
from kernelwright.policies.inductor.policy import DraftedTurn
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.tools.markdown.fenced_code import extract_code


def test_a_run_never_ends_with_less_than_the_draft_it_started_from(
    begin, store, right, wrong, does_not_compile
):
    """The draft is right, and what the policy makes of it is not: the draft is the result."""
    draft = Draft(source=extract_code(right))
    policy = DraftedTurn(ScriptedPolicy(["not asked", wrong, does_not_compile]), lambda _: draft)
    run = begin(policy, goal=Goal.parse("speedup:2"), budgets=Budgets(turns=3))
    run.run()
    assert [a.correct for a in run.attempts] == [True, False, False]
    assert run.best is not None
    assert run.best.turn == 0
    trajectory = store.trajectory(run.trajectory_id)
    turns = store.turns(run.trajectory_id)
    assert trajectory.best_id == turns[0].candidate_id
    assert [t.completion.origin for t in turns] == [Origin.COMPILER, Origin.POLICY, Origin.POLICY]
    assert [a.origin for a in run.attempts] == [Origin.COMPILER, Origin.POLICY, Origin.POLICY]
    assert "torch's compiler (Inductor) drafted it" in turns[1].messages[-1].content


def test_a_run_says_whom_it_waits_for(begin, right, wrong, does_not_compile):
    """A draft that is refused is written by the model after all, and the run says that too."""
    said: list[str] = []
    draft = Draft(source=extract_code(wrong))
    policy = DraftedTurn(
        ScriptedPolicy([does_not_compile, "unused", right]), lambda _: draft, turn=1
    )
    begin(policy, watch=lambda run, doing: said.append(doing), budgets=Budgets(turns=3)).run()
    waited = [doing for doing in said if doing in ("waiting for the model", "drafting (compiler)")]
    assert waited == ["waiting for the model", "drafting (compiler)", "waiting for the model"]

    said.clear()
    refused = DraftedTurn(
        ScriptedPolicy([does_not_compile, right]), lambda _: Draft(refused="sorts"), turn=1
    )
    begin(
        refused, watch=lambda run, doing: said.append(doing), budgets=Budgets(turns=2), seed=1
    ).run()
    waited = [doing for doing in said if doing in ("waiting for the model", "drafting (compiler)")]
    assert waited == ["waiting for the model", "drafting (compiler)", "waiting for the model"]
