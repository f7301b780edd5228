"""Two processes on a CPU, for real: the weights are those that one process makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors.torch import load_file  # noqa: E402

from kernelwright.store.database import Store  # noqa: E402
from kernelwright.store.records import TrajectoryFilter  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402
from tests.rl.training.test_from_log import logged  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

CONFIGS = Path(__file__).parents[3] / "rl" / "configs"


def train(log: Path, model: Path, output: Path, processes: int) -> dict:
    """Eight rows a step at most, however many processes share them."""
    settings = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2 // processes,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
    }
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        str(processes),
        "--master_port",
        str(29_400 + os.getpid() % 500),
    ]
    command = [
        sys.executable, *(launcher if processes > 1 else []), "-m", "kernelwright.rl", "train", "--from-trajectories",
        str(log), "--policy", f"transformers:{model}",
        "--out", str(output), "--method", "grpo", "--max-steps", "3", "--device", "cpu",
        *[part for name, value in settings.items() for part in ("--set", f"{name}={value}")],
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("the policy is in") == 1
    return load_file(output / "model.safetensors")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("rows", [8, 7])
def test_two_processes_give_the_weights_of_one(tmp_path, rows):
    """Also where a step's rows cannot be halved."""
    model = save_tiny_model(tmp_path / "tiny")
    log = logged(tmp_path, model, samples=rows)
    one, two = (train(log, model, tmp_path / str(count), count) for count in (1, 2))
    assert one.keys() == two.keys()
    largest = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert largest < 2e-4, largest


ONE_SAYS_SO = """
import torch.distributed as distributed
from kernelwright.rl.training.processes import any_process_says, leave_process_group
distributed.init_process_group("gloo")
first = distributed.get_rank() == 0
assert any_process_says(first, not first, False, True) == (True, True, False, True)
print("agreed", flush=True)
leave_process_group()
"""


@pytest.mark.slow
def test_what_one_process_decides_all_do(tmp_path):
    """Its time was up at a step that the other would still have begun: the two waited for each other."""
    (tmp_path / "says.py").write_text(ONE_SAYS_SO)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
        str(28_400 + os.getpid() % 500),
        str(tmp_path / "says.py"),
    ]  # fmt: skip
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("agreed") == 2


@pytest.mark.slow
@pytest.mark.nightly
def test_two_processes_sample_judge_and_train_together(tmp_path):
    """Each samples and judges for its own problems, in a process of its own as on a GPU; both train on all of it:
    the later rounds come from weights that both made.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
        str(28_900 + os.getpid() % 500),
        "-m", "kernelwright.rl", "train", "--online", "--policy", f"transformers:{save_novice(tmp_path / 'novice')}",
        "--engine", "process",
        "--problems", str(write_problems(tmp_path / "toys")), "--max-steps", "4", "--lag", "2",
        "--problems-per-step", "4",
        "--group", "8", "--reply-tokens", "40", "--workers", "1",
        "--device", "cpu", "--db", str(tmp_path / "runs.db"), "--out", str(tmp_path / "better"),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("the policy is in") == 1
    with Store.open(tmp_path / "runs.db") as store:
        sampled = {
            run.name.partition("/")[2]: len(
                store.trajectories(TrajectoryFilter(run=run.name), limit=None)
            )
            for run in store.runs()
        }
    assert sorted(sampled) == [f"step-{step:05d}/{rank}" for step in range(4) for rank in range(2)]
    # Three problems: two are the first process's, one is the other's.
    assert list(sampled.values()).count(16) == list(sampled.values()).count(8) == 4


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_one_that_accelerate_reads(path):
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    config = config_args.load_config_from_file(str(path))
    assert config.num_processes == 2
