"""Patience, on a real policy that is unavailable as often as it is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernelwright.policies.base import (
    AskingInterrupted,
    Completion,
    Message,
    PaidReply,
    PolicyRefused,
    PolicyUnavailable,
    Request,
    Role,
    Trouble,
    Usage,
)
from kernelwright.policies.retrying import RetryingPolicy
from kernelwright.policies.scripted import ScriptedPolicy

ASK = Request(messages=(Message(role=Role.USER, content="add"),))


class Flaky(ScriptedPolicy):
    """A scripted policy behind a bad line."""

    def __init__(self, failures: int, answers: Sequence[str] = ("one", "two", "three")) -> None:
        super().__init__(answers)
        self.failures, self.calls = failures, 0

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        self.calls += 1
        if self.calls <= self.failures:
            raise PolicyUnavailable("the line is down", Trouble.CONNECTION)
        return super().sample(requests)


def test_it_asks_again_until_there_is_an_answer_and_tells_of_each_wait():
    policy, waits, told = Flaky(3), [], []
    patient = RetryingPolicy(
        policy,
        sleep=waits.append,
        on_wait=lambda error, seconds: told.append((error.trouble, seconds)),
    )
    assert patient.sample([ASK])[0].text == "one"
    assert policy.calls == 4
    assert [seconds for _, seconds in told] == waits
    assert waits[2] > waits[0]


def test_it_gives_up_after_its_budget_with_the_last_error():
    policy = Flaky(10_000)
    with pytest.raises(PolicyUnavailable, match="the line is down"):
        RetryingPolicy(policy, budget=0.3, first_wait=0.05).sample([ASK])
    assert 2 <= policy.calls < 10


def test_it_never_asks_a_refusal_again():
    policy = Flaky(0, answers=["only one"])
    with pytest.raises(PolicyRefused) as caught:
        RetryingPolicy(policy, sleep=lambda seconds: pytest.fail("waited")).sample([ASK, ASK])
    assert policy.calls == 1
    assert caught.value.finished[0].text == "only one"


def test_no_budget_asks_once():
    policy = Flaky(1)
    with pytest.raises(PolicyUnavailable):
        RetryingPolicy(policy, budget=0).sample([ASK])
    assert policy.calls == 1


def test_it_says_of_itself_what_the_policy_says():
    policy = ScriptedPolicy(["x"], name="scripted:here")
    patient = RetryingPolicy(policy)
    assert (patient.name, patient.capabilities, patient.prompt_form) == (
        policy.name,
        policy.capabilities,
        policy.prompt_form,
    )


class Paid(ScriptedPolicy):
    """A scripted policy whose first answers hold no reply, and cost something."""

    def __init__(self, failures: int, answers: Sequence[str] = ("one",)) -> None:
        super().__init__(answers)
        self.failures, self.calls = failures, 0

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        self.calls += 1
        if self.calls <= self.failures:
            error = PolicyUnavailable("no reply", Trouble.NONSENSE)
            usage = Usage(prompt_tokens=100, completion_tokens=10, dollars=0.5)
            error.paid = {0: (PaidReply(text="{}", usage=usage),)}
            raise error
        return super().sample(requests)


def test_an_answer_that_was_paid_for_nothing_counts_in_the_next_one():
    [plain] = ScriptedPolicy(["one"]).sample([ASK])
    [completion] = RetryingPolicy(Paid(1), sleep=lambda seconds: None).sample([ASK])
    assert completion.usage.prompt_tokens == plain.usage.prompt_tokens + 100
    assert completion.usage.dollars == pytest.approx((plain.usage.dollars or 0.0) + 0.5)


def test_an_answer_is_paid_for_twice_at_most_and_both_are_told():
    policy = Paid(10)
    with pytest.raises(
        PolicyUnavailable, match="no reply; it was asked 2 times, and may have charged"
    ) as caught:
        RetryingPolicy(policy, sleep=lambda seconds: None).sample([ASK])
    assert policy.calls == 2
    assert [reply.usage.dollars for reply in caught.value.paid[0]] == [0.5, 0.5]


def test_ctrl_c_before_the_next_question_tells_what_was_paid():
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(AskingInterrupted) as caught:
        RetryingPolicy(Paid(1), sleep=interrupt).sample([ASK])
    assert caught.value.paid[0][0].usage.prompt_tokens == 100
