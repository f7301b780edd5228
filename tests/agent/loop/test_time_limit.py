"""A turn that is under way is cut when the time limit of its run is reached, and the same command goes on with it."""

from __future__ import annotations

import threading
import time

import pytest

from kernelwright.agent.loop import time_limit
from kernelwright.agent.loop.stopping import Budgets, StopReason
from kernelwright.agent.loop.time_limit import TimeLimitReached, judged_until, time_limit_seconds
from kernelwright.policies.base import Message, Request, Role
from kernelwright.policies.deadlines import DeadlineReached
from kernelwright.policies.openai.openai_policy import OpenAIPolicy
from kernelwright.policies.retrying import RetryingPolicy
from kernelwright.policies.scripted import Script, ScriptedPolicy, ScriptPart
from kernelwright.store.models import CandidateState
from kernelwright.tools.options import Options
from kernelwright.tools.report import Failure, Fault, InfrastructureError, Report
from tests.agent.conftest import fenced
from tests.policies.loopback import loopback, reply

QUESTION = Message(role=Role.USER, content="a kernel")


def request_for(seconds: float) -> Request:
    return Request(messages=(QUESTION,), deadline=time.monotonic() + seconds)


def test_a_limit_counts_earlier_sittings_and_is_given_anew_once_it_was_used_up():
    budgets = Budgets(minutes=2.0, minutes_unsolved=1.0)
    assert time_limit_seconds(budgets, 0.0, solved=True) == 120.0
    assert time_limit_seconds(budgets, 0.0, solved=False) == 60.0
    assert time_limit_seconds(budgets, 50.0, solved=False) == 10.0
    assert time_limit_seconds(budgets, 130.0, solved=True) == 120.0
    assert time_limit_seconds(Budgets(), 50.0, solved=False) is None


@pytest.fixture
def never_answering():
    """A server whose answer does not come, until the test ends."""
    ended = threading.Event()
    with loopback(lambda handler: (ended.wait(400), handler.say(reply()))[1]) as server:
        yield server
        ended.set()


def test_a_question_to_a_server_is_cancelled_at_its_deadline(never_answering):
    policy = RetryingPolicy(OpenAIPolicy("m", never_answering.url))
    started = time.monotonic()
    with pytest.raises(DeadlineReached):
        policy.sample([request_for(1.0)])
    assert time.monotonic() - started < 30
    policy.close()


def test_what_was_paid_before_the_deadline_is_told():
    unreadable = {"id": "1", "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    with loopback(lambda handler: handler.say(unreadable)) as bad:
        policy = RetryingPolicy(OpenAIPolicy("m", bad.url), first_wait=100.0)
        with pytest.raises(DeadlineReached) as cut:
            policy.sample([request_for(3.0)])
        policy.close()
    [paid] = cut.value.paid[0]
    assert paid.usage.completion_tokens == 4


def test_a_run_whose_policy_does_not_answer_ends_at_its_limit_and_goes_on(store, begin, right):
    slow = ScriptedPolicy(Script(parts=(ScriptPart(answers=(right,)),), seconds=300.0))
    budgets = Budgets(minutes_unsolved=1.0 / 60)
    run = begin(slow, budgets=budgets)
    started = time.monotonic()
    assert run.run() is StopReason.WALL
    assert time.monotonic() - started < 100
    row = store.trajectory(run.trajectory_id)
    assert (row.stop_reason, row.finished is not None) == ("wall", True)
    again = begin([right], budgets=budgets)
    assert again.trajectory_id == run.trajectory_id
    assert again.stop_reason is None


@pytest.mark.slow
def test_a_verdict_that_does_not_end_is_cut_and_the_answer_stays(store, begin, right, monkeypatch):
    monkeypatch.setattr(time_limit, "TIME_LIMIT_GRACE_SECONDS", 1.0)
    hangs = right.replace("\n```\n", "\nwhile True:\n    pass\n```\n")
    budgets = Budgets(minutes=8.0 / 60)
    run = begin([hangs, right], budgets=budgets)
    assert run.run() is StopReason.WALL
    assert run.attempts == []
    [turn] = store.turns(run.trajectory_id)
    assert turn.state is CandidateState.DRAFTED
    again = begin([hangs, right], budgets=budgets)
    assert again.trajectory_id == run.trajectory_id
    assert again.current is not None
    assert "while True" in again.current.source


REPORT = Report(problem="p", problem_hash="h", candidate_hash="c", correct=True)


def test_steps_after_the_grace_end_a_verdict_and_a_fault_of_haste_is_none():
    over = time.monotonic() - time_limit.TIME_LIMIT_GRACE_SECONDS
    with pytest.raises(TimeLimitReached):
        judged_until(over, Options(), lambda _, say: (say("tracing"), REPORT)[1], lambda _: None)
    late = REPORT.with_(correct=False, failure=Failure(fault=Fault.TIMEOUT, message="no answer"))
    with pytest.raises(TimeLimitReached):
        judged_until(over, Options(), lambda _, say: late, lambda _: None)
    assert judged_until(over, Options(), lambda _, say: REPORT, lambda _: None) is REPORT


def test_a_verdict_in_time_has_no_more_seconds_than_the_run():
    options = judged_limits(time.monotonic() + 10.0)
    assert 10.0 < options.compile_seconds <= 10.0 + time_limit.TIME_LIMIT_GRACE_SECONDS
    assert options.seconds == options.lease_seconds == options.compile_seconds
    assert judged_limits(time.monotonic() + 3600.0) == Options()


def judged_limits(deadline: float) -> Options:
    seen: list[Options] = []
    judged_until(
        deadline, Options(), lambda options, say: (seen.append(options), REPORT)[1], lambda _: None
    )
    return seen[0]


@pytest.mark.slow
def test_a_verdict_of_a_pool_is_ended_by_a_caller_whose_progress_raises():
    from kernelwright.agent.judging.local_pool import LocalPool
    from kernelwright.agent.problems.finding import find_by_name

    def refuse(doing: str) -> None:
        raise TimeLimitReached("the time limit came before the verdict")

    pool = LocalPool(["cpu"], 1)
    try:
        text = fenced("import triton\n")
        with pytest.raises(InfrastructureError, match="the time limit came"):
            pool.submit(find_by_name("fused_silu"), text, Options(sizes=1), refuse).result(500)
        assert all(judge.alive for judge in pool.judges())
    finally:
        pool.close()
