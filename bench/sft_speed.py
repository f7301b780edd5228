"""Tokens a second of training from scratch: trl's SFTTrainer as it comes, our batches, our batches compiled.

`python -m bench.sft_speed --data CORPUS [--base new:14m] [--device auto] [--steps 60] [--tokens 65536]`. Padding is not
counted as tokens. The first fifth of the steps is left out (compilation, warm-up). On a CPU processor seconds are
taken, since such a machine is seldom alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from kernelwright.agent.command_line.arguments import choose_device
from kernelwright.rl.data.rows import read_rows
from kernelwright.rl.training.sft.base_model import load_base, load_tokenizer, parameters
from kernelwright.rl.training.sft.card import git_revision, machine_line
from kernelwright.rl.training.sft.encoding import EncodedCorpus, RowSelection, encode
from kernelwright.rl.training.sft.presets import PRESETS, PresetName, sft_config
from kernelwright.rl.training.sft.trainer import TrainingClock, make_trainer
from kernelwright.rl.training.tokenizing import train_tokenizer, training_texts

PRESET = PRESETS[PresetName.SCRATCH]


class StepTimes(TrainerCallback):
    """When each step ended."""

    def __init__(self, on_gpu: bool) -> None:
        self._now = time.monotonic if on_gpu else time.process_time
        self._on_gpu = on_gpu
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        import torch

        if self._on_gpu:
            torch.cuda.synchronize()
        self.ends.append(self._now())

    @property
    def a_step(self) -> float:
        skipped = max(1, len(self.ends) // 5)
        return (self.ends[-1] - self.ends[skipped - 1]) / (len(self.ends) - skipped)


def speed(base: str, tokenizer: Any, rows: EncodedCorpus, device: str, steps: int, budget: int, how: str) -> float:
    on_gpu = device.startswith("cuda")
    rows_a_batch = max(1, int(budget / rows.train.lengths.mean()))
    given = {
        "max_steps": steps, "logging_steps": steps, "save_strategy": "no", "per_device_train_batch_size": rows_a_batch,
        "warmup_steps": 10,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        config = sft_config(
            PRESET, given, output_dir=work, use_cpu=not on_gpu, bf16=on_gpu, report_to="none", disable_tqdm=True,
            remove_unused_columns=False, dataset_kwargs={"skip_prepare_dataset": True},
        )  # fmt: skip
        model = load_base(base, tokenizer, PRESET, device, 0).model
        own = None if how == "trl's own" else budget
        trainer = make_trainer(
            model, tokenizer, rows, config, TrainingClock(None), budget=own, compile="compiled" in how
        )
        trainer.eval_dataset = None
        laps = StepTimes(on_gpu)
        trainer.add_callback(laps)
        trainer.train()
    batches = len(trainer.get_train_dataloader())
    return len(rows.train.ids) / batches / laps.a_step


def cases(device: str) -> Iterator[str]:
    yield from ("trl's own", "our batches")
    if device.startswith("cuda"):
        yield "our batches, compiled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", default="new:14m")
    parser.add_argument("--tokenizer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=65_536)
    asked = parser.parse_args()
    device = choose_device(asked.device)
    with tempfile.TemporaryDirectory() as place:
        if asked.tokenizer is None:
            train_tokenizer(training_texts(asked.data)).save_pretrained(place)
        tokenizer = load_tokenizer(asked.tokenizer or place)
    rows = encode(read_rows(asked.data), tokenizer, RowSelection(longest=1536))
    lengths = rows.train.lengths
    unit = "second" if device.startswith("cuda") else "processor second"
    print(
        f"{asked.base}, {len(rows.train):,} rows of {lengths.mean():.0f} tokens (at most {lengths.max()}), "
        f"{asked.tokens:,} tokens a step, {asked.steps} steps; "
        f"{machine_line(device)}, revision {git_revision()}\n\n| batches | tokens a {unit} | times trl's "
        "|\n|---|---|---|"
    )
    first = 0.0
    for how in cases(device):
        found = speed(asked.base, tokenizer, rows, device, asked.steps, asked.tokens, how)
        first = first or found
        print(f"| {how} | {found:,.0f} | {found / first:.1f} |", flush=True)
    print(f"\n{parameters(load_base(asked.base, tokenizer, PRESET, device, 0).model):,} parameters")


if __name__ == "__main__":
    main()
