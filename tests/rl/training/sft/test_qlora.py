"""`rl sft --preset qlora-3090` in 4 bits for real, on a tiny model of Qwen3's architecture: a quantised base, an
adapter, a policy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.policies.base import Message, PromptForm, Request, Role, Sampling
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.rl.training.sft.base_model import load_base, load_tokenizer, parameters
from kernelwright.rl.training.sft.encoding import RowSelection
from kernelwright.rl.training.sft.options import FineTuningResult, SftOptions
from kernelwright.rl.training.sft.presets import PRESETS, PresetName
from kernelwright.rl.training.sft.running import train
from kernelwright.tools.sandbox.zygote import visible
from tests.rl.small_corpus import small_corpus
from tests.tiny_model import save_tiny_model

pytest.importorskip("bitsandbytes", reason="needs bitsandbytes: pip install 'kernelwright[qlora]'")

QUICK = {
    "max_steps": 4,
    "logging_steps": 1,
    "gradient_accumulation_steps": 1,
    "learning_rate": 0.02,
}
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]
SHORT_OF_MEMORY = """
import sys, torch
torch.cuda.set_per_process_memory_fraction(1e-6)
from kernelwright.rl.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return small_corpus(tmp_path_factory.mktemp("corpus"), copies=2)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("models") / "tiny"))


def trained(corpus: Path, tiny: str, output: Path, device: str, **changes) -> FineTuningResult:
    given = {"settings": QUICK, "choice": RowSelection(form=PromptForm.COMPACT), **changes}
    options = SftOptions(
        base=tiny, data=corpus, output=output, preset=PresetName.QLORA_3090, device=device, **given
    )
    return train(options, lambda text: None)


def logprobs(policy: TransformersPolicy) -> tuple[float, ...]:
    asked = Request(
        messages=(Message(role=Role.USER, content="x"),), sampling=Sampling(max_tokens=3, seed=1)
    )
    [completion] = policy.sample([asked])
    assert completion.exact
    return completion.logprobs


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_the_recipe_learns_in_four_bits_and_its_adapter_is_a_policy_and_is_gone_on_with(
    corpus, tiny, device, tmp_path
):
    if device != "cpu" and torch.cuda.device_count() > 1:
        pytest.skip("one process trains on the one GPU that it sees: CUDA_VISIBLE_DEVICES=0")
    first = trained(corpus, tiny, tmp_path / "lora", device)
    assert first.losses[-1][1] < first.losses[0][1] - 0.3
    assert 0 < first.trained < first.parameters
    card = (tmp_path / "lora" / "README.md").read_text()
    assert "held in 4 bits (NF4)" in card
    assert "bitsandbytes" in card
    assert f"`bf16={device != 'cpu'}`" in card
    assert not list((tmp_path / "lora").glob("model*.safetensors")), "the adapter alone"
    plain, adapted = (
        logprobs(TransformersPolicy(tiny, adapter=adapter, device=device))
        for adapter in (None, str(tmp_path / "lora"))
    )
    assert plain != adapted
    more = trained(corpus, tiny, tmp_path / "more", device, adapter=str(tmp_path / "lora"))
    assert more.trained == first.trained
    assert more.losses[0][1] < first.losses[0][1] - 0.3


@pytest.mark.parametrize("device", DEVICES)
def test_the_base_is_held_in_nf4_and_counted_as_what_it_is(tiny, device):
    preset, tokenizer = PRESETS[PresetName.QLORA_3090], load_tokenizer(tiny)
    model = load_base(tiny, tokenizer, preset, device, 0).model
    packed = [p for p in model.parameters() if hasattr(p, "quant_state")]
    assert len(packed) == 14, "seven matrices a layer"
    assert {p.quant_state.quant_type for p in packed} == {"nf4"}
    assert all(p.quant_state.nested and p.device.type == device.partition(":")[0] for p in packed)
    whole = load_base(tiny, tokenizer, PRESETS[PresetName.LORA], "cpu", 0).model
    assert parameters(model) == parameters(whole)


@pytest.mark.parametrize("wanted", [True, False])
def test_recomputing_is_as_the_settings_say(corpus, tiny, tmp_path, monkeypatch, wanted):
    """peft would turn it on whatever they say."""
    seen = []

    def keep(model, weights, folder, storage):
        folder.mkdir()
        seen.append(model)

    monkeypatch.setattr("kernelwright.rl.training.sft.running._save_weights", keep)
    trained(
        corpus,
        tiny,
        tmp_path / "lora",
        "cpu",
        settings={**QUICK, "max_steps": 1, "gradient_checkpointing": wanted},
    )
    assert (
        any(getattr(part, "gradient_checkpointing", False) for part in seen[0].modules()) is wanted
    )


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("preset", "ends", "said"),
    [
        ("qlora-3090", 2, "does not fit in this GPU's memory: use a smaller base"),
        ("lora", 3, "out of GPU memory"),
    ],
)
def test_too_little_memory_of_a_gpu_is_one_line(corpus, tiny, tmp_path, preset, ends, said):
    command = [
        "sft",
        "--base",
        tiny,
        "--data",
        str(corpus),
        "--preset",
        preset,
        "--form",
        "compact",
    ]
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, *command, "--out", str(tmp_path / "model"), "--device", "cuda:0"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": visible(0)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == ends, done.stderr[-2000:]
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "model").exists()
