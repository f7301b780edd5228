"""An online training that is killed outright goes on with the same command, from its last whole checkpoint, and
samples no round twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from safetensors.torch import load_file  # noqa: E402

from kernelwright.store.database import Store  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402

STEPS = 4


def command(novice: Path, problems: Path, output: Path) -> list[str]:
    settings = (
        "learning_rate=1e-3",
        "warmup_steps=0",
        "gradient_accumulation_steps=2",
        "save_steps=1",
    )
    return [
        sys.executable, "-m", "kernelwright.rl", "train", "--online", "--policy", f"transformers:{novice}",
        "--problems", str(problems),
        "--out", str(output), "--max-steps", str(STEPS), "--problems-per-step", "2", "--group", "4", "--turns", "1",
        "--reply-tokens", "40",
        "--workers", "1", "--lag", "0", "--device", "cpu", "--json", "--db", str(output.with_suffix(".db")),
        *[part for s in settings for part in ("--set", s)],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.nightly
def test_an_online_training_that_is_killed_goes_on_to_the_same_weights(tmp_path):
    novice, problems = save_novice(tmp_path / "model"), write_problems(tmp_path / "toys")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = subprocess.run(
        command(novice, problems, tmp_path / "whole"),
        check=True,
        capture_output=True,
        timeout=500,
        env=environment,
    )
    assert json.loads(whole.stdout)["steps"] == STEPS
    killed = subprocess.Popen(
        command(novice, problems, tmp_path / "cut"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 400
    while (
        not list((tmp_path / "cut.training").glob("checkpoint-2/whole.json"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "cut").exists()
    done = subprocess.run(
        command(novice, problems, tmp_path / "cut"),
        check=True,
        capture_output=True,
        timeout=500,
        env=environment,
    )
    told = json.loads(done.stdout)
    assert (told["resumed_at"], told["steps"]) == (2, STEPS)
    with Store.open(tmp_path / "cut.db", create=False, readonly=True) as store:
        rounds = Counter(run.name for run in store.runs())
        drafts = len(list(store.samples()))
    assert set(rounds.values()) == {1}, "no round is begun twice"
    assert drafts == STEPS * 2 * 4
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    for name, weights in first.items():
        assert torch.allclose(weights, second[name], atol=1e-5), name
