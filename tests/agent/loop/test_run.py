"""Runs with the real tools on a CPU: what a policy says is drafted, judged, mended, counted and kept."""

import pytest

from kernelwright.agent.loop.machine import RunState
from kernelwright.agent.loop.stopping import Budgets, Goal, StopReason
from kernelwright.policies.base import (
    Completion,
    FinishReason,
    PolicyRefused,
    PolicyUnavailable,
    Trouble,
    Usage,
)
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.store.models import Action
from kernelwright.store.models import CandidateState as Row
from kernelwright.tools.report import Fault, InfrastructureError, Rung


def test_a_kernel_that_does_not_compile_then_is_wrong_then_is_right(
    begin, store, does_not_compile, wrong, right
):
    states = []
    run = begin([does_not_compile, wrong, right], watch=lambda run, doing: states.append(run.state))
    assert run.run() is StopReason.TARGET
    assert [a.report.rung for a in run.attempts] == [
        Rung.COMPILE,
        Rung.INTERPRETED,
        Rung.INTERPRETED,
    ]
    assert [a.report.failure.fault if a.report.failure else None for a in run.attempts] == [
        Fault.COMPILE,
        Fault.MISMATCH,
        None,
    ]
    assert [a.action for a in run.attempts] == [Action.DRAFT, Action.REPAIR, Action.REPAIR]
    walked = [state for k, state in enumerate(states) if k == 0 or state is not states[k - 1]]
    assert walked == [
        RunState.DRAFT, RunState.COMPILE, RunState.REPAIR, RunState.COMPILE, RunState.CORRECTNESS, RunState.REPAIR,
        RunState.COMPILE, RunState.CORRECTNESS, RunState.DONE,
    ]  # fmt: skip
    turns = store.turns(run.trajectory_id)
    assert [turn.parent_id for turn in turns] == [
        None,
        turns[0].candidate_id,
        turns[1].candidate_id,
    ]
    trajectory = store.trajectory(run.trajectory_id)
    assert trajectory.stop_reason == "target_reached"
    assert trajectory.best_id == turns[2].candidate_id
    assert trajectory.finished


def test_the_repair_is_told_the_line_the_mismatch_and_the_budget(
    begin, store, does_not_compile, wrong, right
):
    run = begin([does_not_compile, wrong, right], budgets=Budgets(turns=3))
    run.run()
    first, second, third = (turn.messages[-1].content for turn in store.turns(run.trajectory_id))
    assert "3 turns are left" in first
    assert "sigmoidal" in second
    assert "`compile`" in second
    assert "^" in second, "the caret"
    assert "expected" in third
    assert "Pattern: " in third
    assert "This is the last turn." in third
    assert all("H200" in text for text in (first, second, third)), "the target's facts"


def test_a_reply_without_code_is_a_turn_and_is_told_so(begin, store, right):
    run = begin(["I would rather not.", right])
    assert run.run() is StopReason.TARGET
    assert run.spent.turns == 2
    assert run.attempts[0].report.failure.fault is Fault.NO_CODE
    assert [a.action for a in run.attempts] == [Action.DRAFT, Action.DRAFT]
    assert "held no code" in store.turns(run.trajectory_id)[1].messages[-1].content


def test_three_replies_without_code_in_a_row_end_the_run(begin):
    run = begin(["no", "still no", "never", "not asked for"])
    assert run.run() is StopReason.FORMAT_ERRORS
    assert len(run.attempts) == 3


def test_a_reply_that_was_cut_off_inside_its_code_is_a_format_error(begin, store, right):
    usage = Usage(prompt_tokens=10, completion_tokens=7, dollars=0.0)
    cut = Completion(
        text=right[: len(right) // 2], finish=FinishReason.LENGTH, usage=usage, policy="scripted"
    )
    run = begin([cut, right])
    assert run.run() is StopReason.TARGET
    assert run.attempts[0].cut_off
    assert "cut off" in store.turns(run.trajectory_id)[1].messages[-1].content


def test_of_several_code_blocks_the_last_with_the_entry_point_counts(begin, wrong, right):
    run = begin(
        [
            f"{wrong}\nNo, that is wrong at the end. Better:\n\n{right}\nUse it with:\n\n```python\nprint(1)\n```\n"
        ]
    )
    assert run.run() is StopReason.TARGET


def test_a_program_that_comes_again_is_not_judged_again_and_is_told_so(begin, store, wrong, right):
    respelt = wrong.replace("mask = offsets", "# another comment\n    mask  =  offsets")
    run = begin([wrong, respelt, right])
    assert run.run() is StopReason.TARGET
    assert run.attempts[1].repeats == 0
    assert run.attempts[1].report.cached
    assert run.attempts[1].report.failure == run.attempts[0].report.failure
    after = store.turns(run.trajectory_id)[2]
    assert "the same program as at turn 1" in after.messages[-1].content
    assert after.action is Action.DRAFT, "to repair it again would give it again"


def test_the_same_program_over_and_over_ends_the_run(begin, unfinished):
    run = begin([unfinished(1)] * 9)
    assert run.run() is StopReason.STUCK
    assert len(run.attempts) == 4


@pytest.mark.parametrize(
    ("budgets", "reason", "turns"),
    [
        (Budgets(turns=2), StopReason.TURNS, 2),
        (Budgets(tokens=1), StopReason.TOKENS, 1),
        (Budgets(dollars=0.5), StopReason.DOLLARS, 2),
        (Budgets(minutes=1e-9), StopReason.WALL, 0),
        (Budgets(minutes_unsolved=1e-9), StopReason.WALL, 0),
    ],
)
def test_a_budget_is_checked_before_each_action(begin, unfinished, budgets, reason, turns):
    usage = Usage(prompt_tokens=10, completion_tokens=7, dollars=0.25)
    answers = [
        Completion(text=unfinished(k), finish=FinishReason.STOP, usage=usage, policy="scripted")
        for k in range(5)
    ]
    run = begin(answers, budgets=budgets)
    assert run.run() is reason
    assert len(run.attempts) == turns


def test_a_budget_in_dollars_is_not_held_by_guessing(begin, unfinished):
    usage = Usage(prompt_tokens=10, completion_tokens=7, dollars=None)
    answer = Completion(
        text=unfinished(0), finish=FinishReason.STOP, usage=usage, policy="scripted"
    )
    run = begin([answer, answer], budgets=Budgets(dollars=1.0))
    assert run.run() is StopReason.UNPRICED
    assert run.spent.dollars is None


class Faltering:
    """A scripted policy that raises first."""

    def __init__(self, answers, *errors):
        self._script, self._errors = ScriptedPolicy(answers), list(errors)
        self.name, self.capabilities, self.prompt_form = (
            "scripted",
            self._script.capabilities,
            self._script.prompt_form,
        )

    def close(self):
        """Nothing is held."""

    def sample(self, requests):
        if self._errors:
            raise self._errors.pop(0)
        return self._script.sample(requests)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PolicyUnavailable("the server is down", Trouble.CONNECTION), StopReason.INFRASTRUCTURE),
        (PolicyRefused("the key is wrong", Trouble.KEY), StopReason.REFUSED),
        (InfrastructureError("the GPU is lost"), StopReason.INFRASTRUCTURE),
        (KeyboardInterrupt(), StopReason.INTERRUPTED),
    ],
)
def test_what_stops_a_run_from_outside_pauses_it_and_counts_nothing(
    begin, store, right, error, reason
):
    policy = Faltering([right], error)
    run = begin(policy)
    assert run.run() is reason
    assert run.spent.turns == 0
    row = store.trajectory(run.trajectory_id)
    assert (row.stop_reason, row.finished) == (reason.value, None)
    again = begin(policy)
    assert again.trajectory_id == run.trajectory_id
    assert again.run() is StopReason.TARGET
    assert [turn.turn for turn in store.turns(again.trajectory_id)] == [0]


def test_an_answer_without_a_verdict_is_judged_and_not_asked_for_again(
    begin, store, evaluator, right, monkeypatch
):
    def lost(*arguments, **options):
        raise InfrastructureError("the GPU is lost")

    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "evaluate", lost)
        assert begin([right]).run() is StopReason.INFRASTRUCTURE
    again = begin([])
    assert again.state is RunState.COMPILE
    assert again.run() is StopReason.TARGET, "with a policy that has nothing to say"
    assert [turn.state for turn in store.turns(again.trajectory_id)] == [Row.JUDGED]


def test_a_run_stopped_after_every_step_ends_as_one_that_was_not(
    begin, store, does_not_compile, unfinished, right
):
    answers = [does_not_compile, "nothing", unfinished(1), right]
    whole = begin(answers)
    whole.run()
    ids = set()
    run = begin(answers)
    while run.state is not RunState.DONE:
        run.step()
        if run.state is RunState.DONE:
            break
        ids.add(run.trajectory_id)
        run = begin(answers)
    assert len(ids) == 1
    assert told(store, run.trajectory_id) == told(store, whole.trajectory_id)


def told(store, trajectory_id):
    turns = store.turns(trajectory_id)
    numbers = {turn.candidate_id: turn.turn for turn in turns}
    return [
        (
            t.turn,
            t.action,
            numbers.get(t.parent_id),
            t.source,
            t.messages,
            t.report.failure,
            t.report.correct,
        )
        for t in turns
    ]


def test_best_of_n_draws_drafts_only_and_a_beam_takes_the_best_further(begin, unfinished, right):
    drafts = begin([unfinished(k) for k in range(9)], search="best-of-n", samples=3)
    assert drafts.run() is StopReason.SAMPLES
    assert [a.action for a in drafts.attempts] == [Action.DRAFT] * 3
    beam = begin([unfinished(10), unfinished(11), unfinished(12), right], search="beam", samples=2)
    assert beam.run() is StopReason.TARGET
    assert [a.action for a in beam.attempts] == [
        Action.DRAFT,
        Action.DRAFT,
        Action.REPAIR,
        Action.REPAIR,
    ]
    assert [a.parent_id for a in beam.attempts[2:]] == [a.candidate_id for a in beam.attempts[:2]]


def test_refining_follows_the_best_and_stops_where_nothing_gets_better(
    begin, store, right, unfinished
):
    speed = Goal.parse("speedup:1.2")
    run = begin([right, *(unfinished(k) for k in range(20, 30))], goal=speed)
    assert run.run() is StopReason.PLATEAU
    actions = [a.action for a in run.attempts]
    assert actions == [Action.DRAFT, Action.REFINE, Action.REPAIR, Action.REPAIR, Action.REFINE]
    assert run.attempts[4].parent_id == run.attempts[0].candidate_id, "the best, not the last"
    assert store.trajectory(run.trajectory_id).best_id == run.attempts[0].candidate_id


def test_while_the_model_is_asked_whoever_watches_is_told_so(begin, unfinished):
    doing = []
    begin(
        [unfinished(1)], watch=lambda run, what: doing.append(what), budgets=Budgets(turns=1)
    ).run()
    assert "waiting for the model" in doing
