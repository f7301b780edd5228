"""What a model's folder says about itself: read back as it was written, refused where it is none."""

import json

import pytest

from kernelwright.policies.base import PolicyRefused, PromptForm
from kernelwright.policies.policy_card import (
    CARD_FILE,
    MAX_ANCESTORS,
    AveragedPolicy,
    PolicyCard,
    front_matter,
    read_card,
    read_cards,
    trainings_of,
    write_card,
)
from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS


def test_a_card_is_read_as_it_was_written(tmp_path):
    card = PolicyCard(
        prompt_form=PromptForm.COMPACT, parameters=14, base="new:14m", rows={"read": 3}, lineage=("a", "b"),
        averaged=(AveragedPolicy(policy="transformers:x", revision="r", step=30),), limits="a fact of another version",
    )  # fmt: skip
    write_card(tmp_path, card)
    assert read_card(tmp_path) == card
    assert json.loads((tmp_path / CARD_FILE).read_text()).keys() == card.model_fields_set | {
        "limits"
    }


def test_the_policy_that_ships_has_a_whole_card():
    card = read_card(EMBEDDED_WEIGHTS)
    assert card.prompt_form is PromptForm.COMPACT
    assert (card.parameters, card.method, card.steps) == (14_556_544, "grpo", 30)
    assert [one.step for one in card.averaged] == [None, None]
    assert not card.model_extra


def test_a_folder_that_says_nothing_is_asked_in_a_chat(tmp_path):
    assert read_card(tmp_path).prompt_form is PromptForm.CHAT


@pytest.mark.parametrize(
    "text", ["no json", "[]", '{"prompt_form": "shouting"}', '{"parameters": "many"}']
)
def test_what_is_no_card_is_refused_in_one_line(tmp_path, text):
    (tmp_path / CARD_FILE).write_text(text)
    with pytest.raises(PolicyRefused, match="correct or delete it") as refused:
        read_card(tmp_path)
    assert "\n" not in str(refused.value)


def test_an_adapter_has_what_it_does_not_say_from_its_model_but_never_the_facts_of_its_training(
    tmp_path,
):
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    trained = PolicyCard(
        seed=1, base="new:14m", loss=0.5, method="sft", parameters=7, prompt_form=PromptForm.COMPACT
    )
    for folder, card in ((model, trained), (adapter, PolicyCard(seed=2))):
        folder.mkdir()
        write_card(folder, card)
    both = read_cards(model, adapter)
    assert (both.seed, both.parameters, both.prompt_form) == (2, 7, PromptForm.COMPACT)
    assert (both.base, both.loss, both.method) == (None, None, None)
    assert read_cards(model, None).seed == 1


def test_a_cards_last_training_joins_those_before_it():
    first = PolicyCard(
        base="new:14m", method="sft", loss=0.5, seed=1, rows={"read": 3}, lineage=("a",)
    )
    second = PolicyCard(base="m", method="grpo", ancestors=trainings_of(first))
    assert [(one.method, one.loss) for one in trainings_of(second)] == [
        ("sft", 0.5),
        ("grpo", None),
    ]
    assert trainings_of(PolicyCard(prompt_form=PromptForm.COMPACT, lineage=("a",))) == ()
    for _ in range(20):
        second = PolicyCard(base="m", method="rft", ancestors=trainings_of(second))
    assert len(second.ancestors) == MAX_ANCESTORS


def test_a_hub_reads_the_front_matter(tmp_path):
    from huggingface_hub import ModelCard as HubCard

    text = front_matter(PolicyCard(base="Qwen/Qwen3-8B", method="grpo")) + "# A name\n"
    read = HubCard(text)
    assert read.data.base_model == "Qwen/Qwen3-8B"
    assert {"triton", "grpo"} <= set(read.data.tags)
    assert read.text.strip() == "# A name"
    assert HubCard(front_matter(PolicyCard(base="new:14m"))).data.base_model is None
