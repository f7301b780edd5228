"""trl's SFTTrainer, with a clock, checkpoints that are whole or not there, and for small models batches and a step
that keep a GPU busy.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import SFTTrainer

from kernelwright.rl.training.safety.gradients import FiniteGradients
from kernelwright.rl.training.sft.batches import IGNORED_LABEL, dataset_of, loader_of
from kernelwright.rl.training.sft.encoding import EncodedCorpus
from kernelwright.rl.training.trl_settings import keep_trainer_quiet

COMPLETE_FILE = "whole.json"
"""Written last into a checkpoint: one without it was cut off. Holds the seconds that were spent on training."""
HeadLoss = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
"""Language-model head, hidden states and targets to the sum of losses."""
LOSS_MEASUREMENTS = 12
"""Number of measurements of the loss on the rows that are kept back."""


class TrainingClock:
    """Counts the seconds of training, those of earlier sittings among them."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.earlier = 0.0
        self._started = time.monotonic()

    def start(self, earlier: float = 0.0) -> None:
        """Starts counting; `earlier` are the seconds that the training had taken before it was interrupted."""
        self.earlier, self._started = earlier, time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds of training, those before an interruption among them."""
        return self.earlier + time.monotonic() - self._started

    @property
    def share(self) -> float:
        """The share of the limit that is spent; 0 where there is none."""
        return 0.0 if self.limit is None else self.spent / self.limit


class Schedule:
    """Linear warm-up, then a cosine to nothing at the last step or at the end of the time, whichever comes first."""

    def __init__(self, steps: int, warm_up: int, clock: TrainingClock) -> None:
        self._steps, self._warm_up, self._clock = max(1, steps), max(1, warm_up), clock

    def __call__(self, step: int) -> float:
        """Returns the factor of the learning rate at a step: a linear warm-up, then half a cosine over steps or over
        time.
        """
        share = min(1.0, max(step / self._steps, self._clock.share))
        return min(1.0, (step + 1) / self._warm_up) * (0.5 + 0.5 * math.cos(math.pi * share))


class KernelSFTTrainer(SFTTrainer):
    """trl's trainer, which also ends with the clock, never leaves half a checkpoint, writes no card (ours is written at
    the end).
    """

    def __init__(self, clock: TrainingClock, **options: Any) -> None:
        super().__init__(**options)
        keep_trainer_quiet(self)
        self.clock = clock
        self.interrupted = False
        self.add_callback(_Ending(self))
        self.add_callback(FiniteGradients())

    def interrupt(self) -> None:
        """Has it save and stop at the end of the step."""
        self.interrupted = True

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The config's own where there is no limit of time."""
        if self.clock.limit is None:
            return super().create_scheduler(num_training_steps, optimizer)
        if self.lr_scheduler is None:
            # How many steps there will be is not known; a share of them would be a share of nothing.
            warm_up = (
                int(self.args.warmup_steps)
                if self.args.warmup_steps >= 1
                else min(100, num_training_steps // 20)
            )
            own: Any = optimizer or self.optimizer
            self.lr_scheduler = LambdaLR(own, Schedule(num_training_steps, warm_up, self.clock))
        return self.lr_scheduler

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Does nothing: trl would write a model card into every checkpoint."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = (
            Path(str(self.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        )
        notes = {"step": self.state.global_step, "seconds": self.clock.spent}
        (folder / COMPLETE_FILE).write_text(json.dumps(notes), encoding="utf-8")


class BucketedSFTTrainer(KernelSFTTrainer):
    """A trainer for small models on one device: rows of like length together, one compiled program for each shape,
    nothing that waits for the GPU.

    Seen on an H200 with 10 M parameters and short rows: SFTTrainer as it comes 0.08 M tokens/s, batches like these and
    torch.compile 2 M.
    """

    def __init__(self, rows: EncodedCorpus, budget: int, compile: bool, **options: Any) -> None:
        super().__init__(**options)
        self._kept, self._budget = rows, budget
        self._head = compile_by_region(self.model) if compile else head_loss

    def get_train_dataloader(self) -> Any:
        """Batches of the training rows, each of rows of similar length under the token budget."""
        return self._loader(self._kept.train, self._budget)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Batches of the rows that are kept back; `eval_dataset` is not used."""
        return self._loader(self._kept.held, self._budget)

    def _loader(self, tokens: Any, budget: int) -> Any:
        pad, on_gpu = self._tokenizer.pad_token_id, self.args.device.type == "cuda"
        return self.accelerator.prepare(loader_of(tokens, pad, budget, self.args.seed, on_gpu))

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Mean over the tokens that count.

        trl's own also measures entropy and accuracy, and waits for the GPU three times a step.
        """
        labels = inputs["labels"]
        count = (
            (labels[:, 1:] != IGNORED_LABEL).sum()
            if num_items_in_batch is None
            else num_items_in_batch
        )
        autocast = torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.args.bf16)
        with autocast, _as_trained(model.training):
            total = sum_of_losses(self.model, inputs["input_ids"], labels, self._head)
        return total / torch.as_tensor(count, device=total.device).clamp(min=1)

    def floating_point_ops(self, inputs: Any) -> int:
        """Returns 0: counting would walk over all parameters at every step."""
        return 0


def sum_of_losses(
    model: Any, ids: torch.Tensor, labels: torch.Tensor, head: HeadLoss
) -> torch.Tensor:
    """Nats over all labels.

    Rows are padded on the right, so plain causal attention needs no mask; saying so leaves no mask to be looked for.
    """
    plain = model.config.model_type == "qwen3" and set(model.config.layer_types) == {
        "full_attention"
    }
    own = causal_mask(ids) if model.config._attn_implementation == "eager" else None
    mask: Any = {"full_attention": own} if plain else None
    hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    return head(model.lm_head, hidden, functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL))


def causal_mask(ids: torch.Tensor) -> torch.Tensor:
    """What attention that is written out adds to its scores: (1, 1, width, width), in the type that it computes in."""
    kind, device = ids.device.type, ids.device
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    width = ids.shape[1]
    return torch.full((width, width), torch.finfo(dtype).min, dtype=dtype, device=device).triu(1)[
        None, None
    ]


def head_loss(lm_head: Any, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the summed cross entropy of hidden states of shape (batch, tokens, width) as a scalar."""
    logits = lm_head(hidden)
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
    )


def compile_by_region(model: Any) -> HeadLoss:
    """Compiles one decoder layer, which all layers share, and gives the compiled head: per shape two small programs
    instead of one of the whole model.

    Each shape by itself, since a program for all shapes is slower than a few programs for few shapes. The whole model
    took 30 s a shape on an H200's host.
    """
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    if model.device.type == "cpu":
        # Written out, attention is compiled too; torch's own takes a third of a step in its backward there.
        model.config._attn_implementation = "eager"
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    return cast(HeadLoss, torch.compile(head_loss, dynamic=False))


@contextlib.contextmanager
def _as_trained(training: bool) -> Iterator[None]:
    """Measuring runs as written: its few batches are not worth programs of their own."""
    if training:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


class _Ending(TrainerCallback):
    """Stops when the time is up, and measures the loss on rows kept back now and then."""

    def __init__(self, trainer: KernelSFTTrainer) -> None:
        self._trainer, self._measured = trainer, 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Asks for a measurement of the loss now and then, and for the end where the time is over."""
        clock = self._trainer.clock
        share = max(clock.share, state.global_step / max(1, state.max_steps))
        if (
            self._trainer.eval_dataset is not None
            and int(share * LOSS_MEASUREMENTS) > self._measured
            and share < 1.0
        ):
            self._measured = int(share * LOSS_MEASUREMENTS)
            control.should_evaluate = True
        if self._trainer.interrupted:
            control.should_save = True
        if clock.share >= 1.0 or self._trainer.interrupted:
            control.should_training_stop = True


class ProgressCallback(TrainerCallback):
    """A line for people whenever trl logs."""

    def __init__(
        self, say: Callable[[str], None], clock: TrainingClock, tokens_seen: Callable[[int], float]
    ) -> None:
        self._say, self._clock, self._tokens_seen = say, clock, tokens_seen

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Says step, seconds, loss (nats a token) and tokens a second whenever the trainer logs a loss."""
        if not logs or not ({"loss", "eval_loss"} & logs.keys()):
            return
        rate = self._tokens_seen(state.global_step) / max(self._clock.spent, 1e-9)
        name = "loss" if "loss" in logs else "eval_loss"
        said = {"loss": "loss", "eval_loss": "loss on rows kept back"}[name]
        self._say(
            f"step {state.global_step} of {state.max_steps}, {self._clock.spent:.0f} s, {said} "
            f"{float(logs[name]):.4f}, {rate:,.0f} "
            "tokens/s"
        )


def newest_checkpoint(folder: Path) -> Path | None:
    """Returns the newest complete checkpoint and deletes those that were cut off."""
    found = {}
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if (path / COMPLETE_FILE).is_file():
            found[int(path.name.rpartition("-")[2])] = path
        else:
            shutil.rmtree(path)
    return found[max(found)] if found else None


def seconds_of(checkpoint: Path) -> float:
    """Returns the seconds that a training had used at a checkpoint."""
    return float(json.loads((checkpoint / COMPLETE_FILE).read_text(encoding="utf-8"))["seconds"])


def make_trainer(
    model: Any, tokenizer: Any, rows: EncodedCorpus, config: Any, clock: TrainingClock, *, peft_config: Any = None,
    budget: int | None = None, compile: bool = False,
) -> KernelSFTTrainer:  # fmt: skip
    """`budget`: tokens a batch, for our own batches; None takes trl's."""
    options: dict[str, Any] = {
        "model": model, "args": config, "processing_class": tokenizer, "peft_config": peft_config,
        "train_dataset": dataset_of(rows.train), "eval_dataset": dataset_of(rows.held) if len(rows.held) else None,
    }  # fmt: skip
    if budget is None:
        return KernelSFTTrainer(clock, **options)
    return BucketedSFTTrainer(rows, budget, compile, clock=clock, **options)
