"""`agent export` into `rl sft`: every training format of an export is trained on as it is."""

import json

import pytest

from kernelwright.errors import InputError
from kernelwright.policies.base import PromptForm
from kernelwright.rl.training.sft.options import SftOptions
from kernelwright.rl.training.sft.presets import PresetName
from kernelwright.rl.training.sft.running import train
from kernelwright.rl.training.sft.sft_arguments import parse_prompt_form
from tests.agent.command_in_process import agent_here
from tests.rl.logged import answer, verdict
from tests.tiny_model import save_tiny_model

pytestmark = pytest.mark.usefixtures("log")


@pytest.fixture
def log(store, tell):
    for ids in ((5, 6, 7), (5, 6, 8)):
        tell("exp", (answer(ids), verdict(correct=True)))
    tell("exp", (answer((5, 6, 9)), verdict(correct=False)))


def options(data, tmp_path):
    settings = {
        "max_steps": 1,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "max_length": 400,
    }
    base = save_tiny_model(tmp_path / "tiny")
    return SftOptions(
        base=str(base),
        data=data,
        output=tmp_path / "model",
        preset=PresetName.FULL,
        settings=settings,
        device="cpu",
    )


@pytest.mark.slow
@pytest.mark.parametrize(("form", "rows"), [("sft", 2), ("dpo", 1), ("grpo", 2), ("jsonl", 2)])
def test_an_export_is_trained_on_as_it_is_and_never_on_its_wrong_answers(tmp_path, form, rows):
    out = tmp_path / "exported"
    exported = agent_here(
        "export", "--format", form, "--db", "runs.db", "--out", str(out), folder=tmp_path
    )
    assert exported.returncode == 0, exported.stderr
    trained = train(options(out, tmp_path), lambda _: None)
    assert trained.rows["trained on: instruct"] == rows
    assert trained.rows["read"] == sum(
        number for name, number in trained.rows.items() if name != "read"
    )
    assert trained.steps == 1
    assert not (tmp_path / "model.training").exists()


def test_rows_that_are_too_long_are_counted_with_the_limit_and_the_option_that_raises_it(tmp_path):
    data = tmp_path / "rows.jsonl"
    pairs = [{"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "b " * 900}]
    data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    rows = train(options(data, tmp_path), lambda _: None).rows
    assert rows["left out: longer than 400 tokens (--set max_length=N raises the limit)"] == 1


def test_a_file_of_another_kind_is_refused_before_a_model_is_loaded(tmp_path):
    (tmp_path / "page.md").write_text("# A page\n")
    wrong = SftOptions(base="new:tiny", data=tmp_path / "page.md", output=tmp_path / "model")
    with pytest.raises(InputError, match=r"page\.md is no file of rows"):
        train(wrong, lambda _: None)
    assert not (tmp_path / "model.training").exists()


def test_prompts_have_the_form_that_the_base_is_asked_in(tmp_path):
    (tmp_path / "kernelwright.json").write_text('{"prompt_form": "compact"}')
    assert parse_prompt_form(None, str(tmp_path)) is PromptForm.COMPACT
    assert parse_prompt_form(None, "some/hub-model") is PromptForm.CHAT
    assert parse_prompt_form("chat", str(tmp_path)) is PromptForm.CHAT
