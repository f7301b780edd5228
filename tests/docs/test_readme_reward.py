"""The README's reward for TRL trains a real model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

MODEL = ROOT / "policies" / "weights"
"""The policy that ships, in the place of a model that a network would fetch."""
BRIEF = """GRPOConfig(
    output_dir="kernels", num_generations=2, per_device_train_batch_size=2, max_completion_length=48, max_steps=1,
    report_to="none", use_cpu=True, bf16=False, logging_steps=1, disable_tqdm=True,
)"""


@pytest.mark.slow
def test_the_reward_of_the_readme_is_taken_by_trl_for_a_step(tmp_path: Path) -> None:
    [text] = [block.text for block in blocks(ROOT / "README.md") if block.title == "grpo.py"]
    text, models = re.subn(r'"Qwen/[^"]+"', repr(str(MODEL)), text)
    text, devices = re.subn(r'"cuda:0"', '"cpu"', text)
    text, configs = re.subn(r"GRPOConfig\(.+\)", BRIEF, text)
    assert (models, devices, configs) == (1, 1, 1)
    (tmp_path / "grpo.py").write_text(text, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        [sys.executable, "grpo.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    assert re.search(r"'rewards/kernel_reward/mean': '?\d", process.stdout), process.stdout[-3000:]
