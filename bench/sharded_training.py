"""Trainings of one process and of two with sharded weights, side by side: losses, memory, seconds.

    python -m bench.sharded_training --out FOLDER [--shape 0.6b|tiny] [--device cuda|cpu] [--seconds 145]
        [--phases pairs,speed]

`pairs`: SFT and GRPO of one model of random weights, each in one process and in two with sharded weights, by the
command line. `speed`: steps of online GRPO by this project and by trl's own `GRPOTrainer`, one after the other.
FOLDER/results.json holds what is known so far, whenever this command is ended. Processes are forked from one that
has imported torch and trl, which saves their start.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

# Asked before the fork, CUDA itself would make the children unable to use it.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
STEPS = 4
WARM_STEPS = 1
"""Steps at the start whose seconds are not counted."""
RATE = 1e-5


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environments(device: str, world: int, sharded: bool) -> list[dict[str, str]]:
    """Returns the environment variables of each process of a launch."""
    from kernelwright.rl.training.sharding.launching import fsdp_environment

    shared = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), **(fsdp_environment() if sharded else {}),
    }  # fmt: skip
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


def _in_child(work: Callable[[], None], environment: Mapping[str, str], log: Path) -> None:
    """Runs `work` with these environment variables, its output in a file."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    work()


def command(words: list[str]) -> None:
    """Runs a command of `rl`."""
    from kernelwright.rl.cli import main

    sys.argv = ["rl", *words]
    main(words)


class Launcher:
    """Forks processes, waits for them until a deadline, and ends those that are late."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder, self._deadline = folder, deadline
        self._context = multiprocessing.get_context("fork")

    def run(
        self, name: str, work: Mapping[str, tuple[Callable[[], None], Mapping[str, str]]]
    ) -> float:
        """Runs all entries at once and returns the seconds that they took. Raises RuntimeError with
        the end of the output of a process that failed.
        """
        began = time.monotonic()
        children = []
        for part, (function, environment) in work.items():
            log = self._folder / f"{name}-{part}.log"
            child = self._context.Process(target=_in_child, args=(function, environment, log))
            child.start()
            children.append((child, log))
        while any(child.exitcode is None for child, _ in children):
            failed = any(child.exitcode not in (None, 0) for child, _ in children)
            if failed or time.monotonic() > self._deadline:
                time.sleep(1.0)
                for child, _ in children:
                    child.kill()
            time.sleep(0.05)
        seconds = time.monotonic() - began
        ends = [(child.exitcode, log.read_text()[-1500:]) for child, log in children]
        if any(code != 0 for code, _ in ends):
            raise RuntimeError(f"{name} after {seconds:.0f} s: {ends}")
        return seconds


class Bench:
    """The phases, with results written after each."""

    def __init__(self, options: argparse.Namespace) -> None:
        from bench.sharded.materials import SHAPES

        self.out, self.device = options.out, options.device
        self.shape = SHAPES[options.shape]
        self.scratch = Path(options.scratch)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.launcher = Launcher(self.out, time.monotonic() + options.seconds)
        self.results: dict[str, Any] = {
            "command": " ".join(sys.argv), "shape": self.shape._asdict(), "python": platform.python_version(),
        }  # fmt: skip
        self.model = self.scratch / "model"

    def note(self, name: str, value: Any) -> None:
        """Adds a result and writes all."""
        self.results[name] = value
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1))
        print(name, json.dumps(value)[:600], flush=True)

    def attempt(self, name: str, phase: Callable[[], Any]) -> None:
        """Runs a phase and notes its result or its trouble."""
        try:
            self.note(name, phase())
        except Exception as error:
            self.note(name, {"error": str(error)[-3000:]})

    def materials(self) -> dict[str, Any]:
        """Makes model, corpus and log."""
        return {"seconds": self.launcher.run("materials", {"all": (self._make, {})})}

    def _make(self) -> None:
        import torch

        from bench.sharded.materials import save_corpus, save_log, save_model

        save_model(self.model, self.shape)
        save_corpus(self.scratch / "corpus", self.shape, rows=160)
        save_log(
            self.scratch / "runs.db",
            self.model,
            self.shape,
            "cuda:0" if self.device == "cuda" else "cpu",
        )
        if torch.cuda.is_available():
            name = torch.cuda.get_device_name(0)
            (self.out / "machine.txt").write_text(
                f"{torch.cuda.device_count()} x {name}, torch {torch.__version__}"
            )

    def words(self, kind: str, world: int) -> list[str]:
        """Returns the command line of a training of sixteen rows a step."""
        out = str(self.scratch / f"{kind}-{world}")
        parts = 4 // world
        every = [
            "--device",
            self.device if self.device == "cpu" else "cuda:0",
            "--out",
            out,
            "--json",
        ]
        every += [
            "--set",
            f"learning_rate={RATE}",
            "--set",
            "warmup_steps=0",
            "--set",
            "logging_steps=1",
        ]
        every += [
            "--set",
            "per_device_train_batch_size=4",
            "--set",
            f"gradient_accumulation_steps={parts}",
        ]
        every += ["--set", "save_strategy=no", "--set", "gradient_checkpointing=true"]
        if kind == "sft":
            lengths = [
                "--set",
                f"max_length={self.shape.row_tokens}",
                "--set",
                f"max_steps={STEPS}",
            ]
            where = [
                "--data",
                str(self.scratch / "corpus"),
                "--base",
                str(self.model),
                "--form",
                "chat",
            ]
            return ["sft", *where, "--preset", "full", *lengths, *every]
        where = [
            "--from-trajectories",
            str(self.scratch / "runs.db"),
            "--policy",
            f"transformers:{self.model}",
        ]
        return ["train", *where, "--method", "grpo", "--max-steps", str(STEPS), *every]

    def alone(self) -> dict[str, Any]:
        """Trains SFT and GRPO at once, each in a process with a GPU of its own."""
        work = {}
        for number, kind in enumerate(("sft", "grpo")):
            shown = {"CUDA_VISIBLE_DEVICES": str(number)} if self.device == "cuda" else {}
            work[kind] = (partial(command, self.words(kind, 1)), shown)
        seconds = self.launcher.run("alone", work)
        return {"seconds": seconds, **{kind: self.figures(kind, 1) for kind in work}}

    def sharded(self, kind: str) -> dict[str, Any]:
        """Trains in two processes with sharded weights."""
        function = partial(command, self.words(kind, 2))
        work = {
            f"rank{rank}": (function, environment)
            for rank, environment in enumerate(environments(self.device, 2, sharded=True))
        }
        seconds = self.launcher.run(f"sharded-{kind}", work)
        return {"seconds": seconds, **self.figures(kind, 2)}

    def figures(self, kind: str, world: int) -> dict[str, Any]:
        """Returns losses, norms of gradients, seconds and peak memory of a training."""
        folder = self.scratch / f"{kind}-{world}"
        if kind == "sft":
            told = json.loads((folder / "training.json").read_text())
            return {
                "losses": [loss for _, loss in told["losses"]], "step_seconds": told["step_seconds"][WARM_STEPS:],
                "peak_gb": (told["gpu_memory"] or 0) / 1e9, "tokens": told["tokens"],
            }  # fmt: skip
        history = [
            entry for entry in json.loads((folder / "history.json").read_text()) if "loss" in entry
        ]
        return {
            "losses": [entry["loss"] for entry in history], "norms": [entry["grad_norm"] for entry in history],
            "step_seconds": [entry["seconds"] for entry in history][WARM_STEPS:],
            "peak_gb": history[-1].get("gpu_gigabytes"), "tokens": [entry["tokens"] for entry in history],
        }  # fmt: skip

    def speed(self, trainer: str) -> dict[str, Any]:
        """Times online steps of a trainer in two processes."""
        from bench.sharded.trainer_speed import Task, write_times

        path = self.out / f"speed-{trainer}.json"
        shape = self.shape._replace(reply_tokens=min(256, self.shape.reply_tokens))
        task = Task(self.model, shape, self.device, prompts=8, group=8, steps=3, parts=2)
        function = partial(write_times, task, self.scratch / f"speed-{trainer}", trainer, path)
        work = {
            f"rank{rank}": (function, environment)
            for rank, environment in enumerate(
                environments(self.device, 2, sharded=trainer == "ours")
            )
        }
        seconds = self.launcher.run(f"speed-{trainer}", work)
        return {"launch_seconds": seconds, **json.loads(path.read_text())}


def main() -> None:
    """Runs the phases that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", default="0.6b")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=145.0)
    parser.add_argument("--phases", default="pairs,speed")
    parser.add_argument("--scratch", default="/tmp/sharded-training")
    options = parser.parse_args()
    # Imported here once, for every process.
    import peft  # noqa: F401
    import torch
    import trl  # noqa: F401

    import kernelwright.rl.training.from_log
    import kernelwright.rl.training.grpo.trainer
    import kernelwright.rl.training.sft.trainer  # noqa: F401

    assert not torch.cuda.is_initialized(), (
        "an import initialized CUDA: its children could not use it"
    )
    bench = Bench(options)
    bench.attempt("materials", bench.materials)
    if "pairs" in options.phases:
        bench.attempt("alone", bench.alone)
        bench.attempt("sharded sft", lambda: bench.sharded("sft"))
        bench.attempt("sharded grpo", lambda: bench.sharded("grpo"))
    if "speed" in options.phases:
        bench.attempt("ours", lambda: bench.speed("ours"))
        bench.attempt("trl", lambda: bench.speed("trl"))


if __name__ == "__main__":
    main()
