"""Small steps on bf16 weights: with fp32 masters they add up to what was wanted, and alone they are rounded away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors.torch import load_file  # noqa: E402

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.rl.training.from_log import train_from_log  # noqa: E402
from kernelwright.rl.training.options import LogOptions, Method, Precision  # noqa: E402
from kernelwright.rl.training.precision.holding import FreeMemory, choose_precision, hold_weights  # noqa: E402
from kernelwright.rl.training.precision.master_weights import MasterWeights  # noqa: E402
from tests.rl.training.test_from_log import logged  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

RATE = 1e-6
STEPS = 300


def moved_by(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    """AdamW's steps by one gradient that stays: each moves every weight by the learning rate."""
    direction = torch.ones_like(weight)
    for _ in range(STEPS):
        weight.grad = direction.clone()
        optimizer.step()


def weights() -> torch.Tensor:
    return 0.02 * torch.randn(200_000, generator=torch.Generator().manual_seed(0))


def test_steps_of_a_millionth_reach_the_wanted_change_with_masters_and_nearly_nothing_without():
    wanted = -RATE * STEPS
    start = weights()
    alone = torch.nn.Parameter(start.to(torch.bfloat16))
    moved_by(alone, torch.optim.AdamW([alone], lr=RATE, weight_decay=0.0))
    lost = (alone.float() - start).mean().item() / wanted

    weight = torch.nn.Parameter(start.to(torch.bfloat16))
    master = start.clone()
    optimizer = MasterWeights(
        torch.optim.AdamW([weight], lr=RATE, weight_decay=0.0), {weight: master}
    )
    moved_by(weight, optimizer)
    in_bf16 = (weight.float() - start).mean().item() / wanted
    in_fp32 = (master - start).mean().item() / wanted
    print(
        f"of the wanted change: bf16 alone {lost:.3f}, its masters {in_fp32:.4f}, the bf16 weights {in_bf16:.4f}"
    )
    assert lost < 0.5
    assert in_fp32 == pytest.approx(1.0, abs=0.02)
    assert in_bf16 == pytest.approx(1.0, abs=0.02)
    assert torch.equal(weight.detach(), master.to(torch.bfloat16))


def test_a_training_that_goes_on_from_its_state_moves_the_masters_alike():
    whole, half = (torch.nn.Parameter(weights().to(torch.bfloat16)) for _ in range(2))
    first = MasterWeights(torch.optim.AdamW([whole], lr=RATE), {whole: weights()})
    moved_by(whole, first)
    again = MasterWeights(torch.optim.AdamW([half], lr=RATE), {half: weights()})
    moved_by(half, again)
    with torch.no_grad():
        resumed = torch.nn.Parameter(half.detach().clone())
    third = MasterWeights(torch.optim.AdamW([resumed], lr=RATE), {resumed: weights()})
    third.load_state_dict(again.state_dict())
    moved_by(whole, first)
    moved_by(resumed, third)
    assert torch.equal(whole, resumed)
    assert torch.equal(first.state_dict()["masters"][0], third.state_dict()["masters"][0])


def test_an_optimizer_that_keeps_its_state_on_the_gpu_is_refused():
    class Elsewhere(torch.optim.SGD):
        pass

    weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises(InputError, match="cannot step fp32 masters"):
        MasterWeights(Elsewhere([weight], lr=1.0), {weight: torch.zeros(2)})


GB = 10**9


@pytest.mark.parametrize(
    ("billions", "device", "host", "precision"),
    [
        (0.5, 85, 100, Precision.FP32),
        (2.5, 85, 100, Precision.FP32),
        (7.6, 85, 130, Precision.BF16),
        (7.6, 150, 130, Precision.BF16),
        (4.0, 150, 130, Precision.FP32),
        (70.0, None, 1000, Precision.FP32),
    ],
)
def test_the_precision_is_chosen_by_memory(billions, device, host, precision):
    memory = FreeMemory(None if device is None else device * GB, host * GB)
    assert choose_precision(int(billions * 1e9), Precision.AUTO, memory) is precision


@pytest.mark.parametrize(("device", "host"), [(85, 30), (24, 500)])
def test_weights_that_fit_in_no_precision_are_refused_with_what_they_need(device, host):
    with pytest.raises(InputError, match=r"7\.6 B parameters need 137 GB .* use --lora"):
        choose_precision(7_600_000_000, Precision.AUTO, FreeMemory(device * GB, host * GB))


def test_the_line_before_a_training_names_the_precision_and_the_memory():
    narrow = hold_weights(torch.nn.Linear(1000, 1000), "cpu", Precision.BF16)
    assert (
        narrow.text
        == "weights bf16 with fp32 masters: 0.0 GB on cpu and 0.0 GB in host memory with the optimizer"
    )
    assert {weight.dtype for weight in narrow.model.parameters()} == {torch.bfloat16}
    assert {master.dtype for master in (narrow.masters or {}).values()} == {torch.float32}
    assert hold_weights(torch.nn.Linear(10, 10), "cpu", Precision.AUTO).text.startswith(
        "weights fp32"
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def log(tmp_path_factory, tiny) -> Path:
    return logged(tmp_path_factory.mktemp("log"), tiny)


@pytest.mark.parametrize("method", [Method.GRPO, Method.RFT])
def test_a_training_in_bf16_publishes_the_masters_that_it_trained(log, tiny, tmp_path, method):
    settings = {"learning_rate": RATE, "warmup_steps": 0, "per_device_train_batch_size": 8}
    said: list[str] = []
    options = LogOptions(
        db=str(log), policy=f"transformers:{tiny}", output=tmp_path / "out", method=method, max_steps=6,
        settings=settings, precision=Precision.BF16,
    )  # fmt: skip
    trained = train_from_log(options, show=lambda plan: None, say=said.append)
    assert any("weights bf16 with fp32 masters" in line for line in said)
    before, after = (
        load_file(tiny / "model.safetensors"),
        load_file(tmp_path / "out" / "model.safetensors"),
    )
    changes = torch.cat([(after[name].float() - before[name].float()).flatten() for name in after])
    assert trained.steps == 6
    assert 0.2 * 6 * RATE < changes.abs().mean().item() <= 6 * RATE, (
        "AdamW moves a weight by the rate at most"
    )
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"


@pytest.mark.slow
def test_a_training_in_bf16_whose_time_is_up_goes_on_with_its_masters(log, tiny, tmp_path):
    settings = {"learning_rate": RATE, "warmup_steps": 0, "per_device_train_batch_size": 8}
    fields = {
        "db": str(log), "policy": f"transformers:{tiny}", "output": tmp_path / "out", "method": Method.GRPO,
        "max_steps": 3, "settings": settings, "precision": Precision.BF16,
    }  # fmt: skip
    paused = train_from_log(LogOptions(**fields, max_minutes=1e-6), show=lambda plan: None)
    assert paused is not None
    assert paused.paused
    done = train_from_log(LogOptions(**fields), show=lambda plan: None)
    assert done is not None
    assert (done.resumed_at, done.steps) == (paused.steps, 3)
    once = {**fields, "output": tmp_path / "once"}
    train_from_log(LogOptions(**once), show=lambda plan: None)
    resumed, whole = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "once"))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.gpu
def test_on_a_gpu_the_weights_are_bf16_there_and_the_masters_move_in_host_memory(
    log, tiny, tmp_path
):
    held = hold_weights(torch.nn.Linear(2000, 2000), "cuda:0", Precision.BF16)
    assert {(weight.device.type, weight.dtype) for weight in held.model.parameters()} == {
        ("cuda", torch.bfloat16)
    }
    assert {(master.device.type, master.dtype) for master in (held.masters or {}).values()} == {
        ("cpu", torch.float32)
    }
    options = LogOptions(
        db=str(log), policy=f"transformers:{tiny}", output=tmp_path / "out", method=Method.GRPO, max_steps=6,
        settings={"learning_rate": RATE, "warmup_steps": 0, "per_device_train_batch_size": 8},
        precision=Precision.BF16, device="cuda:0", force=True,
    )  # fmt: skip
    train_from_log(options, show=lambda plan: None)
    before, after = (
        load_file(tiny / "model.safetensors"),
        load_file(tmp_path / "out" / "model.safetensors"),
    )
    changes = torch.cat([(after[name].float() - before[name].float()).flatten() for name in after])
    assert 0.2 * 6 * RATE < changes.abs().mean().item() <= 6 * RATE
