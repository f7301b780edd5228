"""Two processes on a CPU (gloo) with sharded weights, started by `--gpus 2`: they train as one
process does, go on where they were killed, and load no more than their shards.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors.torch import load_file  # noqa: E402

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.rl.training.sharding.launching import run_on_gpus  # noqa: E402
from tests.rl.small_corpus import small_corpus  # noqa: E402
from tests.rl.training.test_from_log import logged  # noqa: E402
from tests.tiny_model import save_tiny_adapter, save_tiny_model  # noqa: E402

ROOT = Path(__file__).parents[4]
RATE = ("--set", "learning_rate=1e-3", "--set", "warmup_steps=0", "--device", "cpu")
TOLERANCE = 1e-4
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}/src:{ROOT}"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def log(tmp_path_factory, tiny):
    return logged(tmp_path_factory.mktemp("log"), tiny, samples=8)


def rl(*words: object) -> list[str]:
    return [sys.executable, "-m", "kernelwright.rl", *map(str, words)]


def run(*words: object) -> subprocess.CompletedProcess:
    done = subprocess.run(
        rl(*words), capture_output=True, text=True, timeout=500, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def grpo(log: Path, tiny: Path, output: Path, gpus: int, *more: object) -> list[object]:
    """The words of a training of eight rows a step, however many processes share them."""
    return [
        "train", "--from-trajectories", log, "--policy", f"transformers:{tiny}", "--method", "grpo",
        "--max-steps", 3, "--set", "per_device_train_batch_size=2", "--gpus", gpus,
        "--set", f"gradient_accumulation_steps={4 // gpus}", "--out", output, *RATE, *more,
    ]  # fmt: skip


def sft(corpus: Path, tiny: Path, output: Path, gpus: int, *more: object) -> list[object]:
    return [
        "sft", "--data", corpus, "--base", tiny, "--gpus", gpus, "--set", "max_length=2048",
        "--set", f"gradient_accumulation_steps={4 // gpus}", "--set", "max_steps=2",
        "--set", "logging_steps=1", "--storage", "fp32", "--out", output, *RATE, *more,
    ]  # fmt: skip


def weights(folder: Path) -> dict:
    names = ("model.safetensors", "adapter_model.safetensors")
    return load_file(next(folder / name for name in names if (folder / name).is_file()))


def largest_difference(first: Path, second: Path) -> float:
    one, two = weights(first), weights(second)
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def losses(folder: Path) -> list[tuple[float, float]]:
    """Loss and norm of the gradient, by step."""
    history = json.loads((folder / "history.json").read_text())
    return [(entry["loss"], entry["grad_norm"]) for entry in history if "loss" in entry]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [(), ("--lora",)], ids=["whole", "lora"])
def test_grpo_of_two_processes_has_the_losses_and_gradients_of_one(tmp_path, tiny, log, adapter):
    for gpus in (1, 2):
        run(*grpo(log, tiny, tmp_path / str(gpus), gpus, *adapter))
    one, two = (losses(tmp_path / str(gpus)) for gpus in (1, 2))
    assert len(one) == 3
    for alone, shared in zip(one, two, strict=True):
        assert alone == pytest.approx(shared, abs=TOLERANCE)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "new lora", "stored lora"])
def test_sft_of_two_processes_gives_the_weights_of_one(tmp_path, tiny, kind):
    corpus = small_corpus(tmp_path / "corpus", copies=1)
    more = ("--preset", "full" if kind == "whole" else "lora")
    if kind == "stored lora":
        more += ("--adapter", save_tiny_adapter(tiny, tmp_path / "adapter"))
    results = {}
    for gpus in (1, 2):
        done = run(*sft(corpus, tiny, tmp_path / str(gpus), gpus, *more, "--json"))
        results[gpus] = json.loads(done.stdout)
    for (_, one), (_, two) in zip(results[1]["losses"], results[2]["losses"], strict=True):
        assert one == pytest.approx(two, abs=TOLERANCE)
    assert largest_difference(tmp_path / "1", tmp_path / "2") < TOLERANCE


def rank_processes(launcher: int) -> list[int]:
    """The processes that the launcher started, in the order of their ranks."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    ranks = {}
    for child in map(int, children):
        entries = Path(f"/proc/{child}/environ").read_text().split("\0")
        ranks |= {int(entry[5:]): child for entry in entries if entry.startswith("RANK=")}
    return [ranks[rank] for rank in sorted(ranks)]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_costs_at_most_the_step_under_way(tmp_path, tiny, log, rank):
    steps = ("--max-steps", 6, "--set", "save_steps=1", "--set", "learning_rate=1e-4")
    run(*grpo(log, tiny, tmp_path / "whole", 2, *steps))
    words = grpo(log, tiny, tmp_path / "killed", 2, *steps)
    started = subprocess.Popen(
        rl(*words), env=ENVIRONMENT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    work = tmp_path / "killed.training"
    while not (work / "checkpoint-2" / "whole.json").is_file():
        assert started.poll() is None, started.stderr.read()[-2000:]
        time.sleep(0.02)
    os.kill(rank_processes(started.pid)[rank], signal.SIGKILL)
    _, said = started.communicate(timeout=120)
    assert started.returncode == 3
    assert f"process {rank} of this training was ended by signal 9" in said
    reached = max(
        int(path.parent.name.partition("-")[2]) for path in work.glob("checkpoint-*/whole.json")
    )
    assert reached >= 2
    going_on = run(*words).stderr
    assert f"step {reached + 1}/6" in going_on
    assert f"step {reached}/6" not in going_on
    assert largest_difference(tmp_path / "whole", tmp_path / "killed") == 0.0


LOADING = """
import sys, threading, torch.distributed as distributed
distributed.init_process_group("gloo")
import torch, transformers, accelerate, torch.distributed.fsdp, torch.distributed.tensor
import torch.distributed.checkpoint.hf_storage
from kernelwright.rl.training.sharding.loading import load_sharded

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

load_sharded(sys.argv[1], "cpu", torch.float32)  # warms up everything that is imported late
peak, over = 0, threading.Event()
def watch():
    global peak
    while not over.wait(0.002):
        peak = max(peak, anonymous())
before = anonymous()
thread = threading.Thread(target=watch)
thread.start()
model = load_sharded(sys.argv[2], "cpu", torch.float32)
over.set(); thread.join()
size = sum(weight.numel() for weight in model.parameters()) * 4
share = size / distributed.get_world_size()
print(f"ratio {(peak - before) / share:.3f} of {share / 1e6:.0f} MB", flush=True)
"""


@pytest.mark.slow
def test_loading_takes_little_more_memory_than_the_shard(tmp_path, tiny):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(tiny)
    config.update({"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8})
    config.layer_types = ["full_attention"] * 8
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "larger")
    (tmp_path / "load.py").write_text(LOADING)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
        str(27_400 + os.getpid() % 500), str(tmp_path / "load.py"), str(tiny), str(tmp_path / "larger"),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # Two processes write into one pipe, now and then both into one line.
    ratios = [float(ratio) for ratio in re.findall(r"ratio (\d+\.\d{3})", done.stdout)]
    assert len(ratios) == 2
    assert max(ratios) < 1.3, done.stdout


def test_several_processes_of_a_recipe_for_one_gpu_are_refused_in_one_line(tmp_path, tiny):
    corpus = small_corpus(tmp_path / "corpus", copies=1)
    words = ["sft", "--base", "new:tiny", "--data", corpus, "--gpus", 2, "--device", "cpu"]
    done = subprocess.run(
        rl(*words, "--out", tmp_path / "out"),
        capture_output=True, text=True, timeout=300, env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert (
        lines[-1] == "rl: --preset scratch trains on one GPU: use --preset lora or full on several"
    )


def test_more_gpus_than_the_machine_has_are_refused():
    visible = torch.cuda.device_count()
    with pytest.raises(InputError, match=f"--gpus 64: this machine shows {visible} "):
        run_on_gpus(64, "cuda:0", ["train"])


def test_one_gpu_needs_no_processes():
    assert run_on_gpus(1, "cuda:0", ["train"]) is None
    assert run_on_gpus(None, "cpu", ["train"]) is None


def test_a_launcher_of_another_number_of_processes_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match="--gpus 2, and the launcher started 4 processes"):
        run_on_gpus(2, "cpu", ["train"])
    assert run_on_gpus(4, "cpu", ["train"]) is None
