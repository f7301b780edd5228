"""`rl data`: corpora in, clean rows out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rl.data.synth.generating import State

app = typer.Typer(help="Corpora: import, generate, clean, report.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", help="The corpus's folder.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object and nothing else.")]


@app.command()
def synth(
    out: Out,
    n: Annotated[int, typer.Option("--n", min=1, help="Verified drafts, those that the folder holds among them.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same corpus.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes that verify; about 1 GB each.")] = 2,
    target: Annotated[str, typer.Option(help="GPU to compile for: sm_80 ... sm_120, gfx942.")] = "sm_90",
    split: Annotated[
        str, typer.Option(help="train, held_out_composition, held_out_depth or held_out_family.")
    ] = "train",
    repairs: Annotated[int, typer.Option(min=0, help="Broken versions that are tried of each kernel.")] = 2,
    no_repairs: Annotated[bool, typer.Option("--no-repairs", help="Drafts only.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Generate problems with kernels that the tools found right, and broken kernels with what the tools said of them."""
    from agent.show.terminal import console, progress
    from rl.data.asked import split_asked, target_asked
    from rl.data.synth.generating import Wanted, generate

    wanted = Wanted(
        seed=seed, split=split_asked(split), target=target_asked(target), repairs=0 if no_repairs else repairs
    )
    with progress(as_json) as say:
        state = generate(wanted, n, out, workers, say)
    if as_json:
        typer.echo(state.model_dump_json(indent=1))
        return
    console().print(_view(state))


def _view(state: State) -> object:
    from rl.show.data import synth_view

    return synth_view(state)
