"""`--plan`: what a training needs, from a config without weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.cli import main
from kernelwright.rl.training.capacity.layouts import CapacityRequest, plan_capacity
from kernelwright.rl.training.capacity.memory import (
    StepShape,
    TrainedPart,
    trainer_memory,
)
from kernelwright.rl.training.capacity.model_shape import shape_of
from kernelwright.rl.training.capacity.requests import gpu_rates
from kernelwright.rl.training.sft.presets import Lora

QWEN3_8B = {
    "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
STEP = StepShape(rows=64, parts=8, prompt_tokens=1500, reply_tokens=1500)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory) -> Path:
    """A folder with the config of Qwen3-8B and nothing else."""
    from transformers import Qwen3Config

    folder = tmp_path_factory.mktemp("models") / "qwen3-8b"
    Qwen3Config(**QWEN3_8B, architectures=["Qwen3ForCausalLM"]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def shape(qwen):
    return shape_of(str(qwen), Lora())


def rl(capsys, *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_the_shape_of_qwen3_8b_is_the_published_one(shape):
    assert shape.parameters == 8_190_735_360
    assert shape.layers == 36
    assert shape.kv_bytes == 147_456
    # Rank 32 on the seven matrices of each layer.
    outputs = (4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096) + 3 * (4096 + 12_288)
    assert shape.lora_parameters == 36 * 32 * outputs


def test_shards_shrink_with_the_number_of_gpus_and_parts_with_their_number(shape):
    one, eight = (trainer_memory(shape, STEP, TrainedPart(), gpus) for gpus in (1, 8))
    assert one.weights == 4 * shape.parameters
    assert one.optimizer == 8 * shape.parameters
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(eight, name) == getattr(one, name) // 8
    more = trainer_memory(shape, STEP.with_(parts=64), TrainedPart(), 1)
    assert more.activations < one.activations
    kept = trainer_memory(shape, STEP, TrainedPart(checkpointing=False), 8)
    assert kept.activations > 5 * eight.activations


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("online", [False, True])
def test_a_training_that_does_not_fit_is_told_options_that_do(shape, gpus, online):
    request = CapacityRequest(
        gpus=gpus,
        gpu=gpu_rates("A100 SXM4 40GB"),
        step=STEP,
        part=TrainedPart(),
        steps=10,
        online=online,
    )
    plan = plan_capacity(shape, request)
    assert not plan.fits
    assert plan.shortage
    words = plan.proposal
    more = re.search(r"--gpus (\d+)", words)
    parts = re.search(r"gradient_accumulation_steps=(\d+)", words)
    followed = request.with_(
        gpus=int(more[1]) if more else gpus,
        step=STEP.with_(parts=int(parts[1])) if parts else STEP,
        part=TrainedPart(lora="--lora" in words),
    )
    assert plan_capacity(shape, followed).fits


def test_a_layout_gives_every_gpu_a_role(shape):
    request = CapacityRequest(
        gpus=8, gpu=gpu_rates("H100"), step=STEP.with_(parts=16), part=TrainedPart(lora=True),
        steps=10, online=True, lag=1, judges_on_gpu=True, verdict_seconds=4.0,
    )  # fmt: skip
    plan = plan_capacity(shape, request)
    assert plan.fits
    layout = plan.layout
    assert layout.trainers + layout.rollouts + layout.judges == 8
    assert min(layout.trainers, layout.rollouts, layout.judges) >= 1
    assert layout.rollouts % layout.tensor_parallel == 0
    assert plan.seconds.step >= plan.seconds.training
    assert plan.hours == pytest.approx(10 * plan.seconds.step / 3600)


def test_a_plan_needs_no_weights_and_no_log(capsys, qwen):
    code, out, _ = rl(
        capsys, "train", "--online", "--base", qwen, "--lora", "--gpus", 8, "--gpu-type", "H100",
        "--set", "gradient_accumulation_steps=16", "--plan", "--json", "--device", "cpu",
    )  # fmt: skip
    assert code == 0
    plan = json.loads(out)
    assert plan["fits"] is True
    assert plan["gpu"]["name"] == "H100 SXM5 HBM3"
    assert plan["trained_parameters"] == 87_293_952
    assert plan["trainer"]["weights"] > 0


def test_what_cannot_fit_is_refused_in_one_line_with_the_nearest_options(capsys, qwen):
    code, out, err = rl(
        capsys, "train", "--online", "--base", qwen, "--gpus", 2, "--gpu-type", "RTX 4090", "--plan",
        "--device", "cpu",
    )  # fmt: skip
    assert code == 2
    assert "trainer" in out
    assert "it fits with --gpus" in err
    assert len(err.strip().splitlines()) == 1


def test_options_of_the_plan_are_refused_without_it(capsys, qwen):
    code, _, err = rl(
        capsys, "train", "--online", "--base", qwen, "--gpu-type", "H100", "--device", "cpu"
    )
    assert code == 2
    assert "--gpu-type goes with --plan" in err


def test_an_unknown_gpu_is_refused_with_those_that_are_known(capsys, qwen):
    code, _, err = rl(
        capsys, "train", "--online", "--base", qwen, "--plan", "--gpu-type", "Z9", "--device", "cpu"
    )
    assert code == 2
    assert "choose A100 SXM4 80GB" in err
