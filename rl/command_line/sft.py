"""Defines `rl sft`, which fine-tunes a policy on the rows of a corpus."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from kernelwright.agent.command_line.options import expand_groups
from kernelwright.rl.command_line.options.planning import PlanOptions
from kernelwright.rl.command_line.options.shared import (
    Adapter,
    Against,
    AsJson,
    Debug,
    Gpus,
    Settings,
    StorageName,
)

if TYPE_CHECKING:
    from kernelwright.rl.training.sft.encoding import RowSelection
    from kernelwright.rl.training.sft.options import FineTuningResult, SftOptions

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="The model's folder. Must be empty or not there.",
        show_default="runs/sft-BASE",
    ),
]


@dataclass(frozen=True)
class BaseModelOptions:
    """Options for the trained model."""

    PANEL: ClassVar[str] = "Model"
    base: Annotated[
        str, typer.Option(help="A folder, a hub name, or new:14m for a model from random weights.")
    ]
    preset: Annotated[
        str | None,
        typer.Option(
            help="qlora-3090, lora, full or scratch.", show_default="scratch for new:, else lora"
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of a new:SIZE model; without one it is made from the data."
        ),
    ] = None
    vocabulary: Annotated[
        int, typer.Option(min=300, help="Tokens of a tokenizer that is made.")
    ] = 4096
    adapter: Adapter = None

    @property
    def folder(self) -> Path:
        """Returns the output folder, unless --out names another."""
        return Path("runs") / f"sft-{self.base.strip('/').replace('/', '-').replace(':', '-')}"


@dataclass(frozen=True)
class RowOptions:
    """Options for the rows of the corpus, and the form of their prompts."""

    PANEL: ClassVar[str] = "Rows"
    data: Annotated[
        Path,
        typer.Option(
            help="The corpus: a folder that rl data wrote, or rows of others: Parquet, JSON Lines, JSON or CSV."
        ),
    ]
    form: Annotated[
        str | None,
        typer.Option(help="compact or chat.", show_default="the base's own; compact for new:"),
    ] = None
    thinking: Annotated[
        bool | None,
        typer.Option(
            "--thinking/--no-thinking",
            help="Write into the model's chat template whether it thinks (enable_thinking of Qwen3 and others).",
            show_default="as the template is",
        ),
    ] = None
    kinds: Annotated[
        str | None,
        typer.Option(help="Kinds of rows, with commas: draft,repair,fim,translate,instruct,text."),
    ] = None
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the rows to train on.")
    ] = 1.0
    without_message: Annotated[
        bool, typer.Option("--without-message", help="Repairs without what the tools said.")
    ] = False
    repeat_repairs: Annotated[
        int, typer.Option("--repeat-repairs", min=1, help="Times that each repair is trained on.")
    ] = 1
    fim: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of the rows given as fill-in-the-middle as well."
        ),
    ] = 0.0

    def choice(self, base: str, seed: int) -> RowSelection:
        """Returns the selection of training rows. Raises InputError for an unknown form or kind."""
        from kernelwright.rl.training.sft.encoding import RowSelection
        from kernelwright.rl.training.sft.sft_arguments import parse_kinds, parse_prompt_form

        return RowSelection(
            form=parse_prompt_form(self.form, base),
            kinds=parse_kinds(self.kinds),
            share=self.share,
            without_message=self.without_message,
            repairs=self.repeat_repairs,
            fim=self.fim,
            seed=seed,
        )


@dataclass(frozen=True)
class DrawnOptions:
    """Options for additional rows from the generator."""

    PANEL: ClassVar[str] = "Drawn rows"
    drawn: Annotated[
        int,
        typer.Option(
            min=0, help="So many drafts from the generator besides, which no tool has judged."
        ),
    ] = 0
    drawn_seed: Annotated[
        int, typer.Option(help="Which drafts are drawn: another number, others.")
    ] = 1_000_003
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that draw.", show_default="one a core")
    ] = None
    against: Against = None


@dataclass(frozen=True)
class SftTrainerOptions:
    """Options for trl's trainer, and for the written model."""

    PANEL: ClassVar[str] = "Trainer"
    settings: Settings = None
    config: Annotated[Path | None, typer.Option(help="Fields of SFTConfig as JSON or YAML.")] = None
    batch_tokens: Annotated[
        int | None, typer.Option(min=64, help="Tokens in a step of the scratch preset.")
    ] = None
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="The scratch preset's step.")
    ] = None
    max_minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Ends well by then: the learning rate falls with the time."),
    ] = None
    device: Annotated[
        str,
        typer.Option(
            help="auto, cpu or cuda:N. Recipes in 4 bits take a CPU only where it is named."
        ),
    ] = "auto"
    seed: Annotated[
        int, typer.Option(help="Seed of the first weights, and of the order of the rows.")
    ] = 0
    storage: StorageName = "bf16"


@expand_groups
def sft(
    model: BaseModelOptions,
    rows: RowOptions,
    drawn: DrawnOptions,
    trainer: SftTrainerOptions,
    plan: PlanOptions,
    gpus: Gpus = None,
    out: Out = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fine-tune a model on a corpus, or train a small one from scratch, with trl's SFTTrainer; then
    write a card beside it.

    After a stop the same command goes on. Exits with 0 if the model is written, 2 if you must
    change something, 3 for a failure of this machine, 130 if interrupted.
    """
    from kernelwright.rl.training.processes import leave_process_group
    from kernelwright.rl.training.sft.options import SftOptions
    from kernelwright.rl.training.sft.sft_arguments import (
        parse_device,
        parse_preset,
        parse_weight_storage,
        read_trainer_settings,
    )
    from kernelwright.rl.training.sharding.launching import run_on_gpus

    recipe = parse_preset(model.preset, model.base)
    options = SftOptions(
        base=model.base, data=rows.data, output=out or model.folder, preset=recipe, tokenizer=model.tokenizer,
        vocabulary=model.vocabulary, adapter=model.adapter, device=parse_device(trainer.device, recipe),
        choice=rows.choice(model.base, trainer.seed), thinking=rows.thinking,
        settings=read_trainer_settings(trainer.config, trainer.settings or []), batch_tokens=trainer.batch_tokens,
        compile=trainer.compile, max_minutes=trainer.max_minutes, drawn=drawn.drawn, drawn_seed=drawn.drawn_seed,
        against=tuple(drawn.against or ()), workers=drawn.workers or os.cpu_count() or 2,
        storage=parse_weight_storage(trainer.storage), seed=trainer.seed,
    )  # fmt: skip
    plan.check()
    if plan.plan:
        _plan(plan, options, gpus, as_json)
        return
    run_on_gpus(gpus, options.device, sys.argv[1:])
    trained = _trained(options, as_json)
    leave_process_group()
    if trained.first:
        _show(trained, as_json)


def _plan(plan: PlanOptions, options: SftOptions, gpus: int | None, as_json: bool) -> None:
    """Prints the capacity plan of a fine-tuning."""
    from kernelwright.errors import InputError
    from kernelwright.rl.training.sft.base_model import is_new
    from kernelwright.rl.training.sft.presets import PRESETS, Lora

    if is_new(options.base):
        raise InputError(f"--plan is for models that have a config: {options.base} fits any GPU")
    recipe = PRESETS[options.preset].lora or Lora()
    plan.show(options, options.base, recipe, gpus, as_json, _count_rows(options.data))


def _count_rows(data: Path) -> int:
    """Returns the rows of a corpus, or of a file of others."""
    from kernelwright.rl.data.importing.examples import (
        ImportOptions,
        check_examples,
        read_examples,
    )
    from kernelwright.rl.data.rows import count_rows, is_corpus

    check_examples(data)
    if is_corpus(data):
        return count_rows(data)
    return sum(1 for _ in read_examples(data, ImportOptions(), {}))


def _trained(options: SftOptions, quiet: bool) -> FineTuningResult:
    import shlex

    from kernelwright.rl.command_line.show.lines import said_lines
    from kernelwright.rl.command_line.show.resuming import goes_on_later
    from kernelwright.rl.training.sft.running import train

    with said_lines(quiet) as say, goes_on_later():
        return train(options, say, "rl " + shlex.join(sys.argv[1:]))


def _show(trained: FineTuningResult, as_json: bool) -> None:
    if as_json:
        typer.echo(trained.model_dump_json(indent=2))
        return
    held = "" if trained.held_loss is None else f" ({trained.held_loss:.4f} on rows kept back)"
    rows = "; ".join(f"{name}: {number:,}" for name, number in sorted(trained.rows.items()))
    typer.echo(f"rows     {rows}")
    typer.echo(
        f"trained  {trained.steps} steps in {trained.seconds:.0f} s, {trained.tokens_a_second:,.0f} tokens/s"
    )
    typer.echo(f"loss     {trained.loss:.4f} nats a token{held}")
    typer.echo(f"model    {trained.output}")
