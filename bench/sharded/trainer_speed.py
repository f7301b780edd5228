"""Seconds of online GRPO steps by this project's trainer and by trl's own `GRPOTrainer`, on one task.

Both train the same model on the same prompts and groups with replies of one length and a reward
that follows from the ids alone, in as many processes as the launcher started. trl generates with
transformers; this project with its running batch, from a copy of the weights.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.sharded.materials import TEXT, Shape


class Task(NamedTuple):
    """The steps to be timed."""

    model: Path
    shape: Shape
    device: str
    prompts: int
    group: int
    steps: int
    parts: int


def texts_of(task: Task) -> list[str]:
    """Returns the prompts of a step."""
    length = task.shape.prompt_tokens
    return [
        (f"{number} " + TEXT * (length // len(TEXT) + 1))[:length] for number in range(task.prompts)
    ]


def reward_of(ids: Sequence[int]) -> float:
    """Returns 1 for a reply whose ids add up to an even number."""
    return float(sum(ids) % 2 == 0)


def _peak(device: str) -> float | None:
    import torch

    return torch.cuda.max_memory_allocated() / 1e9 if device.startswith("cuda") else None


def _times(began: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(began)]


def _shared_settings(task: Task, world: int, folder: Path) -> dict[str, Any]:
    rows = task.prompts * task.group
    return {
        "output_dir": str(folder), "max_steps": task.steps, "use_cpu": not task.device.startswith("cuda"),
        "bf16": task.device.startswith("cuda"), "gradient_checkpointing": True, "beta": 0.0, "loss_type": "dapo",
        "per_device_train_batch_size": rows // world // task.parts, "gradient_accumulation_steps": task.parts,
        "max_completion_length": task.shape.reply_tokens, "temperature": 1.0, "learning_rate": 1e-6,
        "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_steps": 1, "seed": 0,
    }  # fmt: skip


def time_trl(task: Task, folder: Path) -> dict[str, Any]:
    """Returns the seconds of each step of trl's own trainer, generation included."""
    import torch
    from accelerate import PartialState
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    world = PartialState(cpu=not task.device.startswith("cuda")).num_processes
    began: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            began.append(time.monotonic())

        def on_train_end(self, *_: object, **__: object) -> None:
            began.append(time.monotonic())

    def reward(completion_ids: list[list[int]], **_: object) -> list[float]:
        return [reward_of(ids) for ids in completion_ids]

    asked = [[{"role": "user", "content": text}] for text in texts_of(task)]
    config = GRPOConfig(num_generations=task.group, **_shared_settings(task, world, folder))
    trainer = GRPOTrainer(
        model=str(task.model), reward_funcs=reward, args=config,
        train_dataset=Dataset.from_dict({"prompt": asked * task.steps}),
    )  # fmt: skip
    trainer.add_callback(Clock())
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    if task.device.startswith("cuda"):
        torch.cuda.synchronize()
    return {
        "trainer": "trl GRPOTrainer, DDP", "world": world, "seconds": _times(began), "peak_gb": _peak(task.device),
        "reply_tokens": history[-1].get("completions/mean_length"),
        "dtype": str(next(trainer.model.parameters()).dtype),
    }  # fmt: skip


def time_ours(task: Task, folder: Path) -> dict[str, Any]:
    """Returns the seconds of each step of this project's trainer: sampling by the running batch,
    the step, and the weights' way back to the sampler.
    """
    from kernelwright.policies.base import Message, Request, Role, Sampling
    from kernelwright.rl.training.grpo.config import GRPOFacts, grpo_config
    from kernelwright.rl.training.grpo.rows import ScoredCompletion, in_order
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.online.sampler import open_samplers
    from kernelwright.rl.training.processes import gather_from_all, process_rank
    from kernelwright.rl.training.subject import load_for_training, open_subject, parameters

    process = process_rank(task.device)
    subject = open_subject(f"transformers:{task.model}")
    options = OnlineOptions(
        policy=f"transformers:{task.model}", output=folder / "out", device=process.device, engine="transformers",
        places=task.prompts * task.group // process.world,
    )  # fmt: skip
    held = load_for_training(subject, options)
    [sampler] = open_samplers(subject, options, process)
    began: list[float] = []
    phases: list[dict[str, float]] = []
    texts = texts_of(task)[process.rank :: process.world]

    def draw(number: int) -> list[ScoredCompletion]:
        rows = []
        requests = []
        for text in texts:
            asked = Request(messages=(Message(role=Role.USER, content=text),))
            for seed in range(task.group):
                sampling = Sampling(max_tokens=task.shape.reply_tokens, seed=1000 * number + seed)
                requests.append(asked.with_(sampling=sampling))
        answers = sampler.policy.sample(requests)
        for start in range(0, len(answers), task.group):
            group = answers[start : start + task.group]
            rewards = [reward_of(answer.token_ids or ()) for answer in group]
            mean = sum(rewards) / len(rewards)
            for answer, value in zip(group, rewards, strict=True):
                rows.append(
                    ScoredCompletion(
                        answer.prompt_token_ids, answer.token_ids, answer.logprobs, value - mean
                    )
                )
        return rows

    def batches(number: int) -> list[ScoredCompletion]:
        began.append(time.monotonic())
        sampler.follow(trainer.accelerator.unwrap_model(trainer.model), f"step-{number}")
        moved = time.monotonic()
        shares = gather_from_all(process, lambda: draw(number))
        phases.append({"transfer": moved - began[-1], "generation": time.monotonic() - moved})
        return in_order(row for share in shares for row in share)

    facts = GRPOFacts(
        output_dir=str(folder), max_steps=task.steps, seed=0, device=process.device,
        parameters=parameters(held.model), lora=False, temperature=1.0, longest_completion=task.shape.reply_tokens,
    )  # fmt: skip
    decided = ("output_dir", "max_steps", "use_cpu", "seed", "max_completion_length", "temperature")
    settings = _shared_settings(task, process.world, folder)
    for name in decided:
        settings.pop(name)
    config = grpo_config(settings, facts)
    trainer = TrajectoryGRPOTrainer(held.model, config, batches, processing_class=subject.tokenizer)
    trainer.train()
    began.append(time.monotonic())
    sampler.close()
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "trainer": "kernelwright, FSDP2" if process.world > 1 else "kernelwright", "world": process.world,
        "seconds": _times(began), "phases": phases, "peak_gb": _peak(task.device),
        "tokens": [entry.get("tokens") for entry in history], "drift": history[0].get("drift/largest_log_ratio"),
    }  # fmt: skip


def write_times(task: Task, folder: Path, trainer: str, path: Path) -> None:
    """Times a trainer ("ours" or "trl") and writes the result of the first process."""
    import os

    result = (time_ours if trainer == "ours" else time_trl)(task, folder)
    tokens = task.prompts * task.group * task.shape.reply_tokens
    # The first step compiles kernels and fills caches.
    later = sorted(result["seconds"][1:])
    result["tokens_a_second"] = tokens / later[len(later) // 2]
    if os.environ.get("RANK", "0") == "0":
        path.write_text(json.dumps(result, indent=1))
