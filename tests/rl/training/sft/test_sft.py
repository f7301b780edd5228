"""`rl sft` on the real thing: small models, real rows, real checkpoints."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kernelwright.agent.runtime.errors import Exit, explain
from kernelwright.errors import InputError
from kernelwright.policies.base import Message, PolicyRefused, PromptForm, Request, Role, Sampling
from kernelwright.policies.local.transformers_policy import TransformersPolicy, prompt_ids
from kernelwright.rl.cli import build
from kernelwright.rl.data.rows import Kind, read_rows, row_of
from kernelwright.rl.training.sft.batches import Buckets, widths_of
from kernelwright.rl.training.sft.encoding import (
    RowSelection,
    chat_messages,
    encode,
    gather_encoded_rows,
    without_message,
)
from kernelwright.rl.training.sft.options import SftOptions
from kernelwright.rl.training.sft.presets import PresetName
from kernelwright.rl.training.sft.running import _prepare as prepared
from kernelwright.rl.training.sft.running import train
from kernelwright.rl.training.sft.sft_arguments import parse_device
from kernelwright.rl.training.tokenizing import train_tokenizer, training_texts
from kernelwright.tools.hardware.gpus import Driver
from tests.rl.small_corpus import small_corpus
from tests.tiny_model import save_tiny_adapter, save_tiny_model

QUICK = {"logging_steps": 1, "save_steps": 4, "num_train_epochs": 4, "learning_rate": 5e-3}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("corpus"), copies=1)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer(training_texts(corpus), 600)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


def options(corpus, output, **changes):
    given = {
        "base": "new:tiny",
        "settings": QUICK,
        "batch_tokens": 4096,
        "vocabulary": 600,
        **changes,
    }
    return SftOptions(data=corpus, output=output, **given)


def quiet(text):
    pass


@pytest.mark.slow
def test_a_model_from_scratch_learns_and_is_a_whole_policy(corpus, tmp_path):
    trained = train(options(corpus, tmp_path / "model"), quiet)
    assert trained.losses[-1][1] < 0.7 * trained.losses[0][1]
    assert trained.rows["left out: held-out split"] == 1
    assert not list(tmp_path.glob("*.training"))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "tokens a second" in card
    assert (tmp_path / "model" / "loss.png").read_bytes()[:4] == b"\x89PNG"
    policy = TransformersPolicy(str(tmp_path / "model"), device="cpu")
    assert policy.prompt_form is PromptForm.COMPACT
    asked = Request(
        messages=(Message(role=Role.USER, content="draft\n"),),
        sampling=Sampling(max_tokens=3, seed=1),
    )
    assert policy.sample([asked])[0].exact


class Killed(BaseException):
    """As if the process were gone."""


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_at_its_checkpoint_with_the_same_losses(
    corpus, tmp_path
):
    short = {**QUICK, "num_train_epochs": 2, "save_steps": 2}
    whole = train(options(corpus, tmp_path / "whole", settings=short), quiet)

    def kill(text):
        if text.startswith("step 3 of"):
            raise Killed

    with pytest.raises(Killed):
        train(options(corpus, tmp_path / "model", settings=short), kill)
    assert not (tmp_path / "model").exists()
    (tmp_path / "model.training" / "checkpoint-3").mkdir()  # one that was cut off
    with pytest.raises(InputError, match="other settings"):
        train(options(corpus, tmp_path / "model", settings=short, seed=1), quiet)
    resumed = train(options(corpus, tmp_path / "model", settings=short), quiet)
    assert resumed.resumed_at == 2
    assert dict(resumed.losses)[resumed.steps] == pytest.approx(
        dict(whole.losses)[whole.steps], rel=1e-3
    )


@pytest.mark.slow
def test_ctrl_c_ends_the_step_saves_and_the_same_command_goes_on(corpus, tmp_path):
    def interrupt(text):
        if text.startswith("step 2 of"):
            os.kill(os.getpid(), signal.SIGINT)

    short = {**QUICK, "num_train_epochs": 2, "save_steps": 100}
    with pytest.raises(KeyboardInterrupt):
        train(options(corpus, tmp_path / "model", settings=short), interrupt)
    assert not (tmp_path / "model").exists()
    assert train(options(corpus, tmp_path / "model", settings=short), quiet).resumed_at in (2, 3)


def test_it_ends_well_when_its_time_is_up(corpus, tmp_path):
    endless = {**QUICK, "num_train_epochs": 100_000}
    trained = train(options(corpus, tmp_path / "model", settings=endless, max_minutes=0.03), quiet)
    assert trained.seconds < 20
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_lora_on_a_language_model_gives_an_adapter_that_the_policy_opens(corpus, tiny, tmp_path):
    settings = {
        "max_steps": 2,
        "logging_steps": 1,
        "gradient_accumulation_steps": 1,
        "max_length": 2000,
        "learning_rate": 0.01,
    }
    lora = options(
        corpus,
        tmp_path / "lora",
        base=tiny,
        preset=PresetName.LORA,
        settings=settings,
        choice=RowSelection(form=PromptForm.COMPACT),
    )
    trained = train(lora, quiet)
    assert 0 < trained.trained < trained.parameters
    policy = TransformersPolicy(tiny, adapter=str(tmp_path / "lora"), device="cpu")
    assert (policy.prompt_form, TransformersPolicy(tiny).prompt_form) == (
        PromptForm.COMPACT,
        PromptForm.CHAT,
    )
    asked = Request(
        messages=(Message(role=Role.USER, content="x"),), sampling=Sampling(max_tokens=2, seed=1)
    )
    assert policy.sample([asked])[0].adapter_revision
    assert (
        f"--policy transformers:{tiny} --adapter {tmp_path / 'lora'}"
        in (tmp_path / "lora" / "README.md").read_text()
    )
    more = train(lora.with_(output=tmp_path / "more", adapter=str(tmp_path / "lora")), quiet)
    assert more.trained == trained.trained


def test_packing_as_in_the_published_recipe_trains(corpus, tiny, tmp_path):
    settings = {
        "max_steps": 2,
        "logging_steps": 1,
        "gradient_accumulation_steps": 2,
        "packing": True,
        "max_length": 1500,
    }
    trained = train(
        options(corpus, tmp_path / "m", base=tiny, preset=PresetName.FULL, settings=settings), quiet
    )
    assert trained.steps == 2


def test_weights_in_int8_are_small_and_say_nearly_the_same(tiny, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kernelwright.policies.local.quantised_weights import read_int8, write_int8

    whole = AutoModelForCausalLM.from_pretrained(tiny).eval()
    write_int8(whole, tmp_path / "small")
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path / "small")
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        assert torch.allclose(
            read_int8(tmp_path / "small").eval()(ids).logits, whole(ids).logits, atol=0.3
        )
    small = next((tmp_path / "small").glob("*.safetensors")).stat().st_size
    assert small < 0.4 * (Path(tiny) / "model.safetensors").stat().st_size
    asked = Request(
        messages=(Message(role=Role.USER, content="x"),), sampling=Sampling(max_tokens=3, seed=1)
    )
    assert TransformersPolicy(str(tmp_path / "small"), device="cpu").sample([asked])[0].revision


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base": "new:14g"}, "choose new:"),
        ({"base": "/nowhere/at/all"}, "no model at"),
        ({"base": "TINY", "preset": PresetName.LORA, "adapter": "ADAPTER"}, "was made for"),
        ({"base": "TINY", "preset": PresetName.FULL, "tokenizer": "OTHER"}, "is not the one"),
        ({"settings": {"learning_rat": 1}}, "near ones are learning_rate"),
        ({"settings": {"learning_rate": "abc"}}, "expected a number"),
        ({"choice": RowSelection(kinds=(Kind.TRANSLATE,))}, "nothing to train on"),
        ({"output": "TINY"}, "exists already"),
        ({"data": "EMPTY"}, "holds no file of rows"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_leaves_no_model(
    corpus, tiny, tokenizer, tmp_path, changes, said
):
    tokenizer.save_pretrained(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    adapter = tmp_path / "adapter"
    if changes.get("adapter"):
        save_tiny_adapter(tiny, adapter)
        notes = json.loads((adapter / "adapter_config.json").read_text()) | {
            "base_model_name_or_path": "Someone/Else-8B"
        }
        (adapter / "adapter_config.json").write_text(json.dumps(notes))
    places = {
        "TINY": tiny,
        "ADAPTER": str(adapter),
        "OTHER": str(tmp_path / "other"),
        "EMPTY": tmp_path / "empty",
    }
    changes = {
        name: places.get(value, value) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    given = {"output": tmp_path / "model", "data": corpus, **changes}
    with pytest.raises((InputError, PolicyRefused), match=said) as caught:
        train(options(given.pop("data"), given.pop("output"), **given), quiet)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "model").exists()
    if "output" not in changes:
        assert not prepared(options(corpus, tmp_path / "model")), "a mistake stands in nobody's way"


def test_a_recipe_in_four_bits_is_refused_without_a_gpu_and_taken_to_a_cpu_that_is_named(
    corpus, tiny, monkeypatch
):
    monkeypatch.setattr("kernelwright.tools.hardware.gpus.read_driver", Driver)
    asked = ["sft", "--base", tiny, "--data", str(corpus), "--preset", "qlora-3090"]
    refused = CliRunner().invoke(build(), asked).exception
    assert isinstance(refused, InputError)
    assert "needs an NVIDIA GPU" in str(refused)
    assert (
        parse_device("cpu", PresetName.QLORA_3090) == parse_device("auto", PresetName.LORA) == "cpu"
    )


def test_without_bitsandbytes_the_recipe_says_what_to_install(corpus, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ModuleNotFoundError, match="bitsandbytes") as missing:
        train(options(corpus, tmp_path / "model", base=tiny, preset=PresetName.QLORA_3090), quiet)
    assert explain(missing.value) == (
        "bitsandbytes is not installed: pip install 'kernelwright[qlora]' (agent doctor says what is missing)",
        Exit.INFRASTRUCTURE,
    )


def test_batches_hold_every_row_once_in_few_shapes():
    lengths = np.random.default_rng(0).integers(20, 900, size=5000)
    buckets = Buckets(lengths, budget=8192)
    seen = [row for batch in buckets for row, _ in batch if row >= 0]
    assert sorted(seen) == list(range(5000))
    assert len({(len(batch), batch[0][1]) for batch in buckets}) <= 6
    assert buckets.padding(lengths) < 0.2
    assert all(lengths[row] <= width for batch in buckets for row, width in batch if row >= 0)
    first = list(buckets)
    buckets.set_epoch(1)
    assert list(buckets) != first


def test_widths_are_exact_where_there_are_few():
    assert widths_of(np.array([30, 64, 64, 200])) == [32, 64, 224]


def test_our_loss_is_the_models_own(corpus, tokenizer):
    import torch

    from kernelwright.rl.training.sft.base_model import load_base
    from kernelwright.rl.training.sft.batches import PaddedRows
    from kernelwright.rl.training.sft.presets import PRESETS
    from kernelwright.rl.training.sft.trainer import head_loss, sum_of_losses

    rows = encode(read_rows(corpus), tokenizer, RowSelection()).train
    model = load_base("new:tiny", tokenizer, PRESETS[PresetName.SCRATCH], "cpu", 0).model.eval()
    data = PaddedRows(rows, tokenizer.pad_token_id)
    width = int(max(rows.lengths[:3]))
    batch = data.collate([data[(row, width)] for row in range(3)])
    with torch.no_grad():
        total = sum_of_losses(model, batch["input_ids"], batch["labels"], head_loss)
        ours = total / (batch["labels"][:, 1:] != -100).sum()
        mask = (batch["input_ids"] != tokenizer.pad_token_id).long()
        assert float(ours) == pytest.approx(
            float(model(**batch, attention_mask=mask).loss), rel=1e-4
        )


@pytest.mark.slow
@pytest.mark.nightly
def test_a_compiled_step_is_the_same_step_and_compiles_one_layer_for_all(tokenizer):
    """Whatever the number of layers: per shape one program of a layer and one of the head."""
    import torch
    from torch._dynamo.utils import counters

    from kernelwright.rl.training.sft.base_model import load_base
    from kernelwright.rl.training.sft.presets import PRESETS, PresetName
    from kernelwright.rl.training.sft.trainer import compile_by_region, head_loss, sum_of_losses

    plain = load_base("new:tiny", tokenizer, PRESETS[PresetName.SCRATCH], "cpu", 0).model.train()
    compiled = load_base("new:tiny", tokenizer, PRESETS[PresetName.SCRATCH], "cpu", 0).model.train()
    head = compile_by_region(compiled)
    counters.clear()
    for number, shape in enumerate([(2, 32), (3, 64), (2, 32)]):
        ids = torch.randint(10, 200, shape, generator=torch.Generator().manual_seed(number))
        losses = [
            sum_of_losses(plain, ids, ids, head_loss),
            sum_of_losses(compiled, ids, ids, head),
        ]
        for model, loss in zip((plain, compiled), losses, strict=True):
            model.zero_grad()
            loss.backward()
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-3)
        for one, other in zip(compiled.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3)
    assert len(compiled.model.layers) == 2
    assert counters["stats"]["unique_graphs"] == 4


def test_a_row_is_trained_on_with_the_ids_that_the_policy_will_be_asked_with(corpus, tokenizer):
    row = next(iter(read_rows(corpus)))
    encoded = encode([row], tokenizer, RowSelection()).train
    asked = Request(messages=(Message(role=Role.USER, content=row.prompt),))
    assert encoded.ids[: encoded.prompts[0]].tolist() == prompt_ids(tokenizer, asked, "here")
    assert encoded.ids[-1] == tokenizer.eos_token_id


def test_repairs_are_trained_on_as_often_as_asked_and_never_where_they_are_kept_back(
    corpus, tokenizer
):
    rows = [row for row in read_rows(corpus) if row.kind is Kind.REPAIR]
    once, thrice = (
        encode(rows, tokenizer, RowSelection(repairs=times), held_rows=1) for times in (1, 3)
    )
    assert len(thrice.train) == 3 * len(once.train)
    assert len(thrice.held) == len(once.held)
    assert thrice.counts["trained on: repair"] == 3 * once.counts["trained on: repair"]


def test_a_repair_can_be_asked_in_sentences_and_without_its_message(corpus):
    from kernelwright.agent.prompts import Prompts

    row = next(row for row in read_rows(corpus) if row.kind is Kind.REPAIR)
    asked = chat_messages(row, row.prompt, Prompts(PromptForm.CHAT))[-1]["content"]
    assert "class Model(nn.Module)" in asked
    assert "no attribute put" in asked
    assert "tl.put(" in without_message(row)
    assert "no attribute put" not in without_message(row)


def test_drafts_from_the_generator_are_counted_as_not_judged(corpus, tokenizer):
    from kernelwright.rl.training.sft.drawn_rows import _chunk, drawn_rows

    one = list(drawn_rows(30, 5, 1))
    assert [row.id for row in one] == list(dict.fromkeys(row.id for row in _chunk((5, 0, ()))))[:30]
    assert all(row.split == "train" for row in one)
    counts = encode([*read_rows(corpus), *one], tokenizer, RowSelection()).counts
    assert counts["trained on: draft (not judged by the tools)"] >= 25


@pytest.mark.slow
def test_rows_made_ready_where_they_are_drawn_are_those_that_one_process_encodes(tokenizer):
    from kernelwright.rl.training.sft.drawn_rows import drawn_rows, encoded_drawn_rows

    choice = RowSelection(fim=0.5, longest=1000)
    apart = gather_encoded_rows(
        encoded_drawn_rows(60, 5, 2, (), tokenizer, choice), tokenizer.eos_token_id, choice
    )
    here = encode(drawn_rows(60, 5, 1), tokenizer, choice)
    assert apart.counts == here.counts
    assert apart.counts["read"] == 60
    assert apart.counts[f"trained on: {Kind.FIM} (not judged by the tools)"] > 10
    assert apart.train.ids.tolist() == here.train.ids.tolist()
    assert apart.train.prompts.tolist() == here.train.prompts.tolist()


@pytest.mark.slow
def test_drawing_processes_load_no_deep_learning_library(tokenizer):
    """A machine with 64 cores starts 64 of them, and each would read thousands of files."""
    from kernelwright.rl.training.sft.light_tokenizer import LightTokenizer

    code = (
        "import pickle, sys; from kernelwright.rl.training.sft import drawn_rows; drawn_rows.CHUNK_ROWS = 8; "
        "drawn_rows._begin(*pickle.loads(sys.stdin.buffer.read()));"
        "rows = drawn_rows._ready_chunk((5, 0, ())); print(len(rows), {'torch', 'transformers', 'pyarrow'} & "
        "sys.modules.keys())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps((LightTokenizer.of(tokenizer), RowSelection())),
        capture_output=True,
    )
    assert told.stdout.split()[1:] == [b"set()"], told.stderr.decode()[-500:]
    assert int(told.stdout.split()[0]) > 2


def test_a_template_that_does_more_is_left_to_transformers(tokenizer):
    from copy import deepcopy

    from kernelwright.rl.training.sft.light_tokenizer import LightTokenizer

    trimming = deepcopy(tokenizer)
    trimming.chat_template = trimming.chat_template.replace(
        "m['content'] }}", "m['content'] | trim }}"
    )
    assert trimming.chat_template != tokenizer.chat_template
    assert LightTokenizer.of(trimming) is None
    assert LightTokenizer.of(tokenizer) is not None


def test_fill_in_the_middle_gives_the_whole_back(corpus, tokenizer):
    rows = [row_of(Kind.DRAFT, "draft\nx", "a\nb\nc\nd\n")]
    ids = encode(rows, tokenizer, RowSelection(fim=1.0)).train
    text = tokenizer.decode(ids.ids[ids.starts[1] : ids.starts[2]])
    before, rest = text.removeprefix("<|fim_prefix|>").split("<|fim_suffix|>")
    after, middle = rest.removesuffix("<|im_end|>").split("<|fim_middle|>")
    assert before + middle + after == "a\nb\nc\nd\n"


def test_one_process_that_sees_several_gpus_is_told_to_see_one(corpus, tmp_path, monkeypatch):
    """transformers would use all of them, and `--device cuda:1` would be the first."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(
        InputError,
        match=r"sees 2 GPUs: train on all .* --gpus 2, or show it one \(CUDA_VISIBLE_DEVICES=1\)",
    ):
        train(options(corpus, tmp_path / "model", device="cuda:1"), quiet)
    assert not list(tmp_path.glob("model*"))
