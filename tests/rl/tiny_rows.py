"""A tiny real model with its tokenizer, rows that it or another one sampled, and trl's trainer on them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from kernelwright.rl.training.grpo.rows import ScoredCompletion


def loaded(folder: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def random_rows(count: int, vocabulary: int = 300, seed: int = 0) -> list[ScoredCompletion]:
    """Of different lengths, with log-probs of nobody in particular."""
    dice = random.Random(seed)

    def ids(low: int, high: int) -> list[int]:
        return [dice.randrange(3, vocabulary) for _ in range(dice.randint(low, high))]

    rows = []
    for place in range(count):
        completion = ids(3, 12)
        logps = [-dice.uniform(3.5, 8.0) for _ in completion]
        rows.append(
            ScoredCompletion(ids(2, 9), completion, logps, dice.uniform(0.2, 1.0) * (-1) ** place)
        )
    return rows


def scored(model: Any, row: ScoredCompletion, temperature: float = 1.0) -> Any:
    """Log-probs of one row's completion, one at a time and without padding: the plainest way there is."""
    import torch

    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1).gather(
        -1, torch.tensor(list(row.completion_ids))[:, None]
    )[:, 0]


def on_policy(model: Any, rows: list[ScoredCompletion]) -> list[ScoredCompletion]:
    """The same rows with the model's own log-probs."""
    import torch

    with torch.no_grad():
        return [row._replace(logps=scored(model.eval(), row).tolist()) for row in rows]


def trainer(
    model: Any,
    tokenizer: Any,
    rows: list[ScoredCompletion],
    folder: Path,
    *,
    decoupled: bool = False,
    steps: int = 1,
    **settings: Any,
) -> Any:
    """One batch of all rows a step, on the CPU."""
    from kernelwright.rl.training.grpo.config import GRPOFacts, grpo_config
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer

    own = {
        "per_device_train_batch_size": 8,
        "save_strategy": "no",
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        **settings,
    }
    facts = GRPOFacts(
        output_dir=str(folder), max_steps=steps, seed=0, device="cpu", parameters=1, lora=False,
        temperature=own.pop("temperature", 1.0),
        longest_completion=16,
    )  # fmt: skip
    config = grpo_config(own, facts)
    return TrajectoryGRPOTrainer(
        model, config, lambda number: rows, decoupled=decoupled, processing_class=tokenizer
    )


def loss_of(
    trainer: Any, parameter: str = "model.layers.0.self_attn.q_proj.weight"
) -> tuple[float, Any]:
    """The loss of the first step as trl computes it, part by part, and its gradient at one weight."""
    import torch

    model = trainer.model.train()
    accumulation = trainer.args.gradient_accumulation_steps
    trainer.current_gradient_accumulation_steps = accumulation
    weight = dict(model.named_parameters())[parameter]
    total, gradient = 0.0, torch.zeros_like(weight)
    for place in range(accumulation):
        loss = trainer._compute_loss(model, trainer._prepare_inputs([place]))
        total += float(loss.detach())
        gradient += torch.autograd.grad(loss, weight)[0]
    return total, gradient
