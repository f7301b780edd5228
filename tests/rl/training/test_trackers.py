"""The trackers of transformers, wired by `--set report_to=NAME`: each holds the loss of every step, without a network.

They come with the extra `tracking`; a test of one that is not installed is skipped.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from tests.rl.training.test_from_log import logged  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
STEPS = 2


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def log(tmp_path_factory, tiny):
    return logged(tmp_path_factory.mktemp("log"), tiny, samples=8)


def train(tracker: str, log: Path, tiny: Path, folder: Path) -> list[float]:
    """Trains two steps with a tracker whose files lie below `folder`; returns the losses."""
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder), "WANDB_SILENT": "true", "TRACKIO_DIR": str(folder / "trackio"),
        "WANDB_PROJECT": "kernels",
    }  # fmt: skip
    words = [
        "train", "--from-trajectories", log, "--policy", f"transformers:{tiny}", "--method", "grpo", "--max-steps",
        STEPS, "--set", "per_device_train_batch_size=8", "--set", f"report_to={tracker}", "--device", "cpu",
        "--out", folder / "out",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.rl", *map(str, words)],
        capture_output=True, text=True, timeout=400, env=environment, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    history = json.loads((folder / "out" / "history.json").read_text())
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert len(losses) == STEPS
    return losses


def test_tensorboard_holds_the_losses_beside_the_policy(log, tiny, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    losses = train("tensorboard", log, tiny, tmp_path)
    [events] = (tmp_path / "out" / "runs").rglob("events.out.tfevents.*")
    accumulator = EventAccumulator(str(events.parent))
    accumulator.Reload()
    logged_losses = [event.value for event in accumulator.Scalars("train/loss")]
    assert logged_losses == pytest.approx(losses, abs=1e-6)
    assert "train/reward" in accumulator.Tags()["scalars"]


def test_wandb_writes_an_offline_run(log, tiny, tmp_path):
    pytest.importorskip("wandb")
    losses = train("wandb", log, tiny, tmp_path)
    [run] = (tmp_path / "wandb").glob("offline-run-*")
    [record] = run.glob("run-*.wandb")
    content = record.read_bytes()
    assert b"train/loss" in content
    assert str(losses[-1])[:6].encode() in content


def test_trackio_holds_the_losses_in_its_database(log, tiny, tmp_path):
    pytest.importorskip("trackio")
    losses = train("trackio", log, tiny, tmp_path)
    [database] = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(database) as connection:
        rows = [json.loads(text) for (text,) in connection.execute("select metrics from metrics")]
    logged_losses = [row["train/loss"] for row in rows if "train/loss" in row]
    assert logged_losses == pytest.approx(losses, abs=1e-6)
