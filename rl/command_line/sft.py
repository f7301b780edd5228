"""`rl sft`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kernelwright.rl.training.sft.options import FineTuned, Options

Base = Annotated[str, typer.Option(help="A folder, a hub name, or new:14m for a model from random weights.")]
Data = Annotated[Path, typer.Option(help="The corpus: a folder or file that rl data wrote.")]
Preset = Annotated[
    str | None, typer.Option(help="qlora-3090, lora, full or scratch.", show_default="scratch for new:, else lora")
]
Output = Annotated[
    Path | None,
    typer.Option("--out", help="The model's folder. Must be empty or not there.", show_default="runs/sft-BASE"),
]
Tokenizer = Annotated[str | None, typer.Option(help="For new:SIZE; without one it is made from the data.")]
Vocabulary = Annotated[int, typer.Option(min=300, help="Tokens of a tokenizer that is made.")]
Adapter = Annotated[str | None, typer.Option(help="A LoRA adapter to go on with.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N. Recipes in 4 bits take a CPU only where it is named.")]
Form = Annotated[str | None, typer.Option(help="compact or chat.", show_default="compact for new:, else chat")]
Kinds = Annotated[str | None, typer.Option(help="Of rows, with commas: draft,repair,fim,translate,instruct.")]
Share = Annotated[float, typer.Option(min=0.0, max=1.0, help="Of the rows.")]
NoMessage = Annotated[bool, typer.Option("--without-message", help="Repairs without what the tools said.")]
Repairs = Annotated[int, typer.Option("--repeat-repairs", min=1, help="Times that each repair is trained on.")]
Fim = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the rows given as fill-in-the-middle as well.")]
Drawn = Annotated[int, typer.Option(min=0, help="So many drafts from the generator besides, which no tool has judged.")]
DrawnSeed = Annotated[int, typer.Option(help="Which drafts are drawn: another number, others.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes that draw.", show_default="one a core")]
Against = Annotated[
    list[str] | None,
    typer.Option(help="A suite that no drawn row may be of, besides the known benchmarks. As in rl data synth."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A field of trl's SFTConfig: name=value. Many times.")
]
Config = Annotated[Path | None, typer.Option(help="Fields of SFTConfig as JSON or YAML.")]
BatchTokens = Annotated[int | None, typer.Option(min=64, help="Of the scratch preset, a step.")]
Compile = Annotated[bool | None, typer.Option("--compile/--no-compile", help="The scratch preset's step.")]
MaxMinutes = Annotated[
    float | None, typer.Option(min=0.01, help="Ends well by then: the learning rate falls with the time.")
]
Storage = Annotated[str, typer.Option("--weights", help="How a whole model is written: bf16, fp32 or int8.")]
Seed = Annotated[int, typer.Option(help="Of the first weights, and of the order of the rows.")]
AsJson = Annotated[bool, typer.Option("--json", help="How it ended as one JSON object and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def sft(
    base: Base,
    data: Data,
    preset: Preset = None,
    output: Output = None,
    tokenizer: Tokenizer = None,
    vocabulary: Vocabulary = 4096,
    adapter: Adapter = None,
    device: Device = "auto",
    form: Form = None,
    kinds: Kinds = None,
    share: Share = 1.0,
    without_message: NoMessage = False,
    repeat_repairs: Repairs = 1,
    fim: Fim = 0.0,
    drawn: Drawn = 0,
    drawn_seed: DrawnSeed = 1_000_003,
    workers: Workers = None,
    against: Against = None,
    settings: Settings = None,
    config: Config = None,
    batch_tokens: BatchTokens = None,
    compile: Compile = None,
    max_minutes: MaxMinutes = None,
    weights: Storage = "bf16",
    seed: Seed = 0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fine-tune a model on a corpus, or train a small one from scratch, with trl's SFTTrainer; then a card beside it.

    The same command goes on where it was stopped or killed. Exits with 0 where the model is written, 2 where you must
    change something, 3 for this machine's trouble, 130 where it was interrupted.
    """
    from kernelwright.rl.training.sft.options import Options
    from kernelwright.rl.training.sft.sft_arguments import (
        parse_device,
        parse_preset,
        parse_prompt_form,
        parse_row_selection,
        parse_weight_storage,
        read_trainer_settings,
    )

    recipe = parse_preset(preset, base)
    options = Options(
        base=base, data=data,
        output=(output or Path("runs") / f"sft-{base.strip('/').replace('/', '-').replace(':', '-')}"),
        preset=recipe, tokenizer=tokenizer, adapter=adapter, device=parse_device(device, recipe),
        choice=parse_row_selection(parse_prompt_form(form, base), kinds, share, without_message, repeat_repairs, fim,
        seed),
        settings=read_trainer_settings(config, settings or []), vocabulary=vocabulary, batch_tokens=batch_tokens,
        compile=compile,
        max_minutes=max_minutes, drawn=drawn, drawn_seed=drawn_seed, against=tuple(against or ()),
        workers=workers or os.cpu_count() or 2, storage=parse_weight_storage(weights), seed=seed,
    )  # fmt: skip
    _show(_trained(options, as_json), as_json)


def _trained(options: Options, quiet: bool) -> FineTuned:
    import shlex

    from kernelwright.rl.training.sft.running import train

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    return train(options, say, "rl " + shlex.join(sys.argv[1:]))


def _show(trained: FineTuned, as_json: bool) -> None:
    if as_json:
        typer.echo(trained.model_dump_json(indent=2))
        return
    held = "" if trained.held_loss is None else f" ({trained.held_loss:.4f} on rows kept back)"
    typer.echo(f"trained  {trained.steps} steps in {trained.seconds:.0f} s, {trained.tokens_a_second:,.0f} tokens/s")
    typer.echo(f"loss     {trained.loss:.4f} nats a token{held}")
    typer.echo(f"model    {trained.output}")
