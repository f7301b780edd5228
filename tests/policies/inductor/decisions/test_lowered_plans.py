"""Plans of real problems: traced once, lowered again, and judged by the interpreter."""

import time

import pytest

from kernelwright.policies.inductor.decisions.menu import MenuRefused, menu_of
from kernelwright.policies.inductor.decisions.plan import Choice, Plan
from kernelwright.policies.inductor.decisions.ranking import promise_of, promising_plans
from kernelwright.policies.inductor.decisions.registry import DECISIONS
from kernelwright.policies.inductor.decisions.session import (
    PLAN_PROCESS_ENTRY,
    without_plan_line,
)
from kernelwright.policies.inductor.draft import DraftMode, draft_request
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from tests.policies.inductor.decisions.conftest import PROBLEMS
from tests.policies.inductor.decisions.plan_heads import plan_of_source


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(device="cpu") as evaluator:
        yield evaluator


def choices_by_decision(session) -> dict[str, Choice]:
    first: dict[str, Choice] = {}
    for choice in session.default.choices:
        first.setdefault(choice.decision, choice)
    return first


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_kind_of_decision_gives_a_draft_that_is_right(name, sessions, evaluator):
    session = sessions[name]
    assert session.default.draft.usable, session.default.refused
    for choice in choices_by_decision(session).values():
        plan = Plan().with_choice(choice)
        lowered = session.lower(plan)
        assert lowered.draft.usable, f"{choice}: {lowered.refused}"
        assert plan_of_source(lowered.draft.source) == plan
        report = evaluator.evaluate(PROBLEMS[name], lowered.draft.source, Options(sizes=2))
        assert report.correct, f"{choice}: {report.explanation}"


def test_the_problems_here_open_the_decisions_of_strict_drafts(sessions):
    opened = {name for problem in PROBLEMS for name in choices_by_decision(sessions[problem])}
    assert opened >= {
        "value", "fuse", "loops", "reduction", "row", "softmax", "product", "right", "operands",
        "convolution", "patches",
    }  # fmt: skip
    assert opened <= set(DECISIONS)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_plan_changes_the_draft_and_the_default_is_lowered_again_as_it_was(name, sessions):
    session = sessions[name]
    plans = promising_plans(session, 2)
    texts = [without_plan_line(plan.draft.source) for plan in plans]
    assert len(plans) == 3
    assert len(set(texts)) == 3
    assert texts[0] == session.default.draft.source
    # Other plans were lowered in between, and leave nothing behind.
    del session._lowered[str(Plan()), True]
    assert session.lower(Plan()).draft.source == texts[0]


def test_counts_leave_time_for_drafts(sessions):
    session = sessions["gated"]
    slowness, seconds = 0.3, 4.0
    assert slowness * len(session.default.choices) > seconds
    plans = promising_plans(session, 1, seconds, lambda _: time.sleep(slowness))
    assert len(plans) == 2


def test_a_process_that_was_too_slow_gives_no_answer_to_a_later_plan(drafter):
    request = draft_request(PROBLEMS["half"].source, DraftMode.STRICT, False, (), False, False, 60)
    conversation = drafter._process.open(PLAN_PROCESS_ENTRY, request)
    assert "no draft within" in conversation.receive(0.01)["refused"]
    answer = conversation.ask({"plan": "product@bmm = sum", "code": True, "seconds": 60}, 60)
    assert answer == {"refused": "the drafting process was ended: no answer within 0.01 s"}


def test_counts_are_those_of_the_lowered_draft(sessions):
    session = sessions["gated"]
    for choice in session.default.choices[:4]:
        plan = Plan().with_choice(choice)
        assert session.count(plan).facts == session.lower(plan).facts


def test_a_sum_in_place_of_a_tiled_product_is_counted_with_its_repeated_loads(sessions):
    session = sessions["half"]
    by_sum = session.count(Plan.parse("product@bmm = sum"))
    assert by_sum.facts.bytes > session.default.facts.bytes
    assert promise_of(by_sum, session.default) == by_sum.facts.rank


def test_fewer_bytes_are_no_reason_for_a_choice_whose_default_was_measured(sessions):
    session = sessions["gated"]
    in_place = session.count(Plan.parse("right@mm_default = in_place"))
    assert in_place.facts.bytes < session.default.facts.bytes
    assert promise_of(in_place, session.default) == session.default.facts.rank


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fuse@nothing_1+mul_9 = apart", "is not open under this plan"),
        ("row@amax = sideways", "amax"),
        ("colour@amax = red", "there is no decision 'colour'"),
    ],
)
def test_an_illegal_plan_is_refused_in_one_line(text, reason, sessions):
    session = sessions["gated"]
    answer = session.lower(Plan.parse(text))
    assert not answer.draft.usable
    assert reason in answer.refused
    assert "\n" not in answer.refused


def test_a_menu_numbers_legal_actions_and_applies_a_choice(sessions):
    session = sessions["gated"]
    menu = menu_of(session, session.default, "sm_90")
    prompt = menu.prompt()
    assert prompt.startswith("target sm_90")
    assert f"launch 1: {session.default.facts.launches[0].operators[0]}" in prompt
    assert 600 < len(prompt) < 900 * 4  # 300 to 900 tokens of about three to four characters
    assert menu.apply("stop") == Plan()
    first, third = menu.actions[0].choice, menu.actions[2].choice
    assert menu.apply("1 3") == Plan().with_choice(first).with_choice(third)
    lowered = session.lower(menu.apply("1"))
    facts, default = lowered.facts, session.default.facts
    assert facts.bytes - default.bytes == menu.actions[0].bytes
    assert menu_of(session, lowered, "sm_90").lowered.plan == lowered.plan


@pytest.mark.parametrize("reply", ["", "0", "99", "1 2 3 4 5", "go", "stop 1"])
def test_a_reply_without_a_legal_action_is_refused_in_one_line(reply, sessions):
    menu = menu_of(sessions["half"], sessions["half"].default, "sm_90")
    with pytest.raises(MenuRefused) as refusal:
        menu.apply(reply)
    assert "\n" not in str(refusal.value)
