"""Plans as values and texts, and how a decision is active."""

import pytest

from kernelwright.policies.inductor.decisions.deciding import decide, deciding
from kernelwright.policies.inductor.decisions.plan import Choice, Plan, PlanRefused
from kernelwright.policies.inductor.decisions.registry import DECISIONS
from kernelwright.policies.inductor.decisions.session import (
    with_plan_line,
    without_plan_line,
)
from tests.policies.inductor.decisions.plan_heads import plan_of_source

PLAN = "fuse@addmm_1+relu_2 = apart; value@step_0/gelu_3 = recompute"


@pytest.mark.parametrize("text", ["default", "loops@all = keep", PLAN])
def test_a_plan_reads_back_as_it_is_written(text):
    assert str(Plan.parse(text)) == text
    assert Plan.parse(str(Plan.parse(text))) == Plan.parse(text)


def test_equal_plans_have_equal_texts_in_whatever_order_they_were_chosen():
    choices = Plan.parse(PLAN).choices
    forward, backward = Plan(), Plan()
    for choice in choices:
        forward = forward.with_choice(choice)
    for choice in reversed(choices):
        backward = backward.with_choice(choice)
    assert forward == backward
    assert str(forward) == PLAN


def test_a_choice_replaces_an_earlier_one_at_its_site():
    plan = Plan.parse("row@sum_1 = loop").with_choice(
        Choice(decision="row", site="sum_1", alternative="block")
    )
    assert str(plan) == "row@sum_1 = block"


@pytest.mark.parametrize(
    "text", ["fuse", "fuse@a+b", "fuse@a b = apart", "row@a = loop; row@a = block"]
)
def test_a_text_that_is_no_plan_is_refused_in_one_line(text):
    with pytest.raises(PlanRefused) as refusal:
        Plan.parse(text)
    assert "\n" not in str(refusal.value)


def test_a_text_of_another_form_is_told_the_form():
    with pytest.raises(PlanRefused, match="is not `decision@site = alternative`"):
        Plan.parse("nonsense")


def test_a_draft_names_its_plan_in_its_head():
    source = "# Drafted.\nimport torch\n"
    plan = Plan.parse(PLAN)
    marked = with_plan_line(source, plan)
    assert marked.splitlines()[0] == "# Drafted."
    assert PLAN in marked.splitlines()[1]
    assert plan_of_source(marked) == plan
    assert plan_of_source(source) == Plan()
    assert without_plan_line(marked) == source
    assert with_plan_line(source, Plan()) == source


def test_a_decision_is_the_default_where_no_plan_speaks_of_it():
    assert decide("row", "sum_1", "block", ("block", "loop")) == "block"
    with deciding(Plan.parse("row@sum_1 = loop")) as active:
        assert decide("row", "sum_1", "block", ("block", "loop")) == "loop"
        assert decide("row", "sum_2", "block", ("block", "loop")) == "block"
        active.require_legal()
    assert [(opened.site, opened.default) for opened in active.opened] == [
        ("sum_1", "block"),
        ("sum_2", "block"),
    ]
    assert [str(choice) for choice in active.opened[0].choices] == ["row@sum_1 = loop"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("row@sum_9 = loop", "row is open at sum_1"),
        ("row@sum_1 = parts", "legal are block, loop"),
        ("rows@sum_1 = loop", "there is no decision 'rows'"),
    ],
)
def test_an_illegal_plan_is_refused_in_one_line(text, reason):
    with deciding(Plan.parse(text)) as active:
        assert decide("row", "sum_1", "block", ("block", "loop")) == "block"
    with pytest.raises(PlanRefused, match=reason):
        active.require_legal()


def test_every_decision_has_two_alternatives_with_a_sentence_each():
    for name, decision in DECISIONS.items():
        assert decision.name == name
        assert len(decision.alternatives) >= 2
        assert all(len(sentence.split()) > 2 for sentence in decision.alternatives.values())
