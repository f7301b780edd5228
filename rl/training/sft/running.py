"""`rl sft` from rows to a model folder.

The output appears only when complete; checkpoints lie in a folder beside it, and a second run
continues from them.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.agent.runtime.interrupts import STOPPING_AFTER_STEP, stop_on_interrupt
from kernelwright.errors import InputError
from kernelwright.policies.policy_card import PolicyCard, read_cards, trainings_of, write_card
from kernelwright.rl.data.importing.examples import as_corpus, check_examples
from kernelwright.rl.data.rows import count_rows, read_rows
from kernelwright.rl.training.checkpoints import (
    SETTINGS_FILE,
    TENSORBOARD_FOLDER,
    newest_checkpoint,
    save_model,
)
from kernelwright.rl.training.options import Storage
from kernelwright.rl.training.precision.keeping import gather_weights
from kernelwright.rl.training.processes import (
    ProcessRank,
    first_before_others,
    only_in_first_process,
    process_rank,
    sharding_fields,
)
from kernelwright.rl.training.sft.base_model import (
    TrainingBase,
    check_base,
    check_same_tokenizer,
    is_new,
    load_base,
    load_tokenizer,
    parameters,
)
from kernelwright.rl.training.sft.card import write_readme
from kernelwright.rl.training.sft.drawn_rows import encoded_drawn_rows
from kernelwright.rl.training.sft.encoding import EncodedCorpus, encode_rows, gather_encoded_rows
from kernelwright.rl.training.sft.options import FineTuningResult, SftOptions, WrittenWeights
from kernelwright.rl.training.sft.presets import BUCKETED_OPTIONS, PRESETS, Preset, sft_config
from kernelwright.rl.training.sft.thinking import set_thinking
from kernelwright.rl.training.tokenizing import save_tokenizer, train_tokenizer, training_texts
from kernelwright.rl.training.trl_settings import refuse_decided, silence_libraries
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    import torch
    from trl import SFTConfig

    from kernelwright.rl.training.sft.trainer import KernelSFTTrainer

Say = Callable[[str], None]
TRAINED_COLUMNS = (
    *("id", "kind", "prompt", "completion", "messages", "problem", "reference", "split"),
    *("correct", "source"),
)
"""Columns of a corpus read for training."""


def train(options: SftOptions, say: Say, command: str = "rl sft") -> FineTuningResult:
    """Starts or continues a fine-tuning, and writes the model.

    Raises InputError, PolicyRefused, InfrastructureError; KeyboardInterrupt after a checkpoint.
    """
    preset = PRESETS[options.preset]
    check_examples(options.data)
    check_base(options.base, options.adapter, preset)
    if preset.bucketed:
        refuse_decided(options.settings, BUCKETED_OPTIONS, BUCKETED_OPTIONS)
    process = process_rank(options.device)
    _refuse_single_gpu_recipes(options, preset, process)
    options = options.with_(device=process.device)
    say = only_in_first_process(process, say)
    # The first process writes the rows and the tokenizer; the others then find them.
    with first_before_others(process):
        checkpoint = newest_checkpoint(options.work) if _prepare(options) else None
        corpus = as_corpus(options.data, options.work / "rows", say)
        tokenizer = _tokenizer(options, corpus, say)
    if options.thinking is not None:
        set_thinking(tokenizer, options.thinking)
    rows = _encoded(options, corpus, tokenizer, say)
    silence_libraries()
    config = sft_config(preset, options.settings, **_fixed(options, preset))
    with _readable_trouble():
        base = load_base(
            options.base, tokenizer, preset, options.device, options.seed, options.adapter
        )
        trainer, trained = _run(options, base, rows, config, checkpoint, say)

        def readme(folder: Path) -> None:
            write_readme(folder, options, trained, command)

        _publish(options, trainer, base, trained, readme)
    return trained


def _refuse_single_gpu_recipes(options: SftOptions, preset: Preset, process: ProcessRank) -> None:
    """Raises InputError for several processes with a recipe for one GPU."""
    if process.world == 1:
        return
    if preset.bucketed or preset.four_bit:
        raise InputError(
            f"--preset {options.preset} trains on one GPU: use --preset lora or full on several"
        )
    if options.storage is WrittenWeights.INT8:
        raise InputError("--storage int8 is for small models: use bf16 with several processes")


def _encoded(options: SftOptions, corpus: Path, tokenizer: Any, say: Say) -> EncodedCorpus:
    """Encodes the rows of the corpus, and drawn rows if requested."""
    drawn_text = f" and {options.drawn:,} drawn ones" if options.drawn else ""
    say(f"encoding {count_rows(corpus):,} rows{drawn_text}")
    preset = PRESETS[options.preset]
    longest = int(options.settings.get("max_length") or preset.config["max_length"])
    choice = options.choice.with_(longest=longest)
    drawn = encoded_drawn_rows(
        options.drawn, options.drawn_seed, options.workers, options.against, tokenizer, choice
    )
    stored = encode_rows(read_rows(corpus, TRAINED_COLUMNS), tokenizer, choice)
    rows = gather_encoded_rows(chain(stored, drawn), tokenizer.eos_token_id, choice)
    say("; ".join(f"{name}: {number:,}" for name, number in sorted(rows.counts.items())))
    return rows


def _prepare(options: SftOptions) -> bool:
    """Makes the work folder, and returns whether an earlier sitting of the same training began
    there.

    Raises InputError if the folder or the output holds something else.
    """
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise InputError(f"{options.output} exists already: choose another --out, or move it away")
    note = options.work / SETTINGS_FILE
    if note.is_file():
        if json.loads(note.read_text(encoding="utf-8")).get("identity") == options.identity:
            return True
        if newest_checkpoint(options.work) is not None:
            raise InputError(
                f"{options.work} holds an unfinished training with other settings: give those again, or delete it"
            )
        # The earlier training wrote no checkpoint: its options may have been a mistake.
        shutil.rmtree(options.work)
    options.work.mkdir(parents=True, exist_ok=True)
    note.write_text(
        json.dumps({"identity": options.identity, **options.model_dump(mode="json")}, indent=2),
        encoding="utf-8",
    )
    return False


def _tokenizer(options: SftOptions, corpus: Path, say: Say) -> Any:
    """Returns the requested tokenizer, the base's, or a new tokenizer for a new model."""
    if options.tokenizer is not None:
        tokenizer = load_tokenizer(options.tokenizer)
        check_same_tokenizer(options.base, tokenizer)
        return tokenizer
    if not is_new(options.base):
        return load_tokenizer(options.base)
    folder = options.work / "tokenizer"
    if not (folder / "tokenizer.json").is_file():
        say(f"making a tokenizer of {options.vocabulary:,} tokens")
        save_tokenizer(train_tokenizer(training_texts(corpus), options.vocabulary), folder)
    return load_tokenizer(str(folder))


def _fixed(options: SftOptions, preset: Preset) -> dict[str, Any]:
    """Returns fields of SFTConfig decided by this command, and defaults below the user's
    settings.
    """
    on_gpu = options.device.startswith("cuda")
    fixed: dict[str, Any] = {
        "output_dir": str(options.work),
        "use_cpu": not on_gpu,
        "bf16": on_gpu,
        "report_to": "none",
        "disable_tqdm": True,
        "save_total_limit": 2,
        "seed": options.seed,
        "completion_only_loss": None,
        "remove_unused_columns": False,
        "eval_strategy": "no",
        "shuffle_dataset": False,
        "logging_first_step": True,
        **sharding_fields(),
    }
    if preset.bucketed:
        fixed |= {"dataset_kwargs": {"skip_prepare_dataset": True}, "optim": "adamw_torch_fused"}
    return fixed


def _run(
    options: SftOptions,
    base: TrainingBase,
    rows: EncodedCorpus,
    config: SFTConfig,
    checkpoint: Path | None,
    say: Say,
) -> tuple[KernelSFTTrainer, FineTuningResult]:
    from kernelwright.rl.training.sft.trainer import (
        BucketSettings,
        ProgressCallback,
        TrainingClock,
        make_trainer,
        seconds_of,
    )

    preset = PRESETS[options.preset]
    clock = TrainingClock(None if options.max_minutes is None else options.max_minutes * 60)
    buckets = BucketSettings(options.budget, options.compiled) if preset.bucketed else None
    trainer = make_trainer(base, rows, config, clock, buckets=buckets)
    batches = len(trainer.get_train_dataloader())
    steps_an_epoch = max(1, batches // config.gradient_accumulation_steps)
    # Tokens without padding, for the reported speed.
    a_step = len(rows.train.ids) / steps_an_epoch
    trainer.add_callback(ProgressCallback(say, clock, lambda step: a_step * step))
    earlier = 0.0 if checkpoint is None else seconds_of(checkpoint)
    begun = 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])
    trained_model: Any = trainer.model
    action = f"training {parameters(trained_model):,} parameters"
    say(f"going on at step {begun}" if begun else action)
    clock.start(earlier)
    with stop_on_interrupt(trainer.interrupt, STOPPING_AFTER_STEP):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    seconds = clock.spent
    held = trainer.evaluate()["eval_loss"] if len(rows.held) else None
    figures = _RunFigures(seconds, held, a_step, begun)
    return trainer, _summary(options, trainer, rows, figures)


class _RunFigures(NamedTuple):
    """Measurements of a fine-tuning outside the trainer's state."""

    seconds: float
    held_loss: float | None
    tokens_a_step: float
    resumed_at: int


def _summary(
    options: SftOptions, trainer: KernelSFTTrainer, rows: EncodedCorpus, figures: _RunFigures
) -> FineTuningResult:
    import torch

    log: list[dict[str, Any]] = trainer.state.log_history
    losses = _series(log, "loss")
    if not losses or not math.isfinite(losses[-1][1]):
        raise InputError(
            "the loss is NaN or infinite: start again with a smaller --set learning_rate=..."
        )
    last = [loss for _, loss in losses[-3:]]
    model: Any = trainer.model
    weights = list(model.parameters())
    sampler: Any = getattr(trainer.get_train_dataloader(), "batch_sampler", None)
    on_gpu = options.device.startswith("cuda")
    tokens = int(figures.tokens_a_step * trainer.state.global_step)
    return FineTuningResult(
        output=str(options.output),
        base=options.base,
        parameters=parameters(model),
        trained=sum(weight.numel() for weight in weights if weight.requires_grad),
        rows=rows.counts,
        steps=trainer.state.global_step,
        epochs=float(trainer.state.epoch or 0.0),
        loss=sum(last) / len(last),
        held_loss=figures.held_loss,
        tokens=tokens,
        tokens_a_second=tokens / max(figures.seconds, 1e-9),
        seconds=figures.seconds,
        padding=sampler.padding(rows.train.lengths) if hasattr(sampler, "padding") else None,
        gpu_memory=torch.cuda.max_memory_allocated() if on_gpu else None,
        step_seconds=tuple(trainer.step_seconds),
        resumed_at=figures.resumed_at,
        losses=losses,
        held_losses=_series(log, "eval_loss"),
        config={**PRESETS[options.preset].config, **options.settings, "bf16": trainer.args.bf16},
        first=trainer.is_world_process_zero(),
    )


def _series(log: list[dict[str, Any]], name: str) -> tuple[tuple[int, float], ...]:
    """Returns step and value of each logged entry with this figure."""
    return tuple((int(entry["step"]), float(entry[name])) for entry in log if name in entry)


@contextmanager
def _readable_trouble() -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InfrastructureError(
            "out of GPU memory: give a smaller --batch-tokens, or --set per_device_train_batch_size and max_length; "
            "what was done is kept"
        ) from error


def _publish(
    options: SftOptions,
    trainer: KernelSFTTrainer,
    base: TrainingBase,
    trained: FineTuningResult,
    readme: Callable[[Path], None],
) -> None:
    """Writes everything into a temporary folder beside the output, then renames the folder. All
    processes must call this: sharded weights are gathered from them.
    """
    weights = gather_weights(trainer)
    if not trainer.is_world_process_zero():
        return
    partial = options.output.with_name(f".{options.output.name}.{time.time_ns()}")
    try:
        model = trainer.accelerator.unwrap_model(trainer.model)
        _save_weights(model, weights, partial, options.storage)
        save_tokenizer(base.tokenizer, partial)
        card = PolicyCard(
            prompt_form=options.choice.form,
            parameters=trained.parameters,
            loss=round(trained.loss, 6),
            method="sft",
            rows=trained.rows,
            base=options.base,
            seed=options.seed,
            created=round(time.time()),
            steps=trained.steps,
            trained_from=str(options.data),
            ancestors=trainings_of(_card_of_base(options)),
        )
        write_card(partial, card)
        readme(partial)
        if (options.work / TENSORBOARD_FOLDER).is_dir():
            shutil.copytree(options.work / TENSORBOARD_FOLDER, partial / TENSORBOARD_FOLDER)
        if options.output.is_dir():
            options.output.rmdir()
        partial.rename(options.output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(options.work, ignore_errors=True)


def _card_of_base(options: SftOptions) -> PolicyCard:
    folder = Path(options.base).expanduser()
    if folder.is_dir() or options.adapter:
        return read_cards(folder, options.adapter)
    return PolicyCard()


def _save_weights(
    model: Any, weights: dict[str, torch.Tensor], folder: Path, storage: WrittenWeights
) -> None:
    if storage is WrittenWeights.INT8 and not hasattr(model, "peft_config"):
        from kernelwright.policies.local.quantised_weights import write_int8

        write_int8(model, folder)
        return
    stored = Storage.FP32 if storage is WrittenWeights.FP32 else Storage.BF16
    save_model(folder, model, weights, stored)
