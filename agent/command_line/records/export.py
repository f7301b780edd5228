"""Defines `agent export`, which writes stored runs for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.options import Database, Debug

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelwright.store.database import Store

FORMATS = ("py", "jsonl", "sft", "dpo", "grpo", "kernelbench", "inspect")
ADVICE_WITHOUT_LINES = {
    "sft": "is made of a correct answer: agent solve and agent batch draft more",
    "dpo": "is made of a better and a worse answer to one prompt: agent batch --samples 8 --temperature 1.6 has them",
    "grpo": "is made of several answers to one prompt, sampled with their log-probs by the policy itself: "
    "agent batch --samples 8 --temperature 1.6 draws them",
}
"""Requirements of a line and advice on collecting them, by training format."""

Which = Annotated[
    str | None,
    typer.Argument(
        help="A trajectory's number, last, or a batch run's name; with --as also a kernel file.",
        show_default=False,
    ),
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Instead of --format: package (an installable Python package with operators of torch), hf-kernel (a "
        "repository for Hugging Face's kernels) or file (one kernel).",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(help="With --as: the package's Python name.", show_default="KERNEL_kernel"),
]
OfProblem = Annotated[
    str | None,
    typer.Option(
        "--problem",
        help="With --as and a kernel file of another origin: its problem; the file is judged first.",
        show_default=False,
    ),
]
Run = Annotated[str | None, typer.Option(help="A batch run, instead of one trajectory.")]
Format = Annotated[str, typer.Option("--format", help=", ".join(FORMATS) + ".")]
Out = Annotated[
    Path | None, typer.Option(help="The file, or for several the folder.", show_default="stdout")
]


def export(
    id: Which = None,
    run: Run = None,
    format: Format = "py",
    out: Out = None,
    package_as: As = None,
    name: Name = None,
    problem: OfProblem = None,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Write the database's contents for other programs: kernels, turns, training lines,
    KernelBench's layout, an Inspect log.

    Without ID and --run, everything is written. Omissions are reported on stderr.
    """
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.agent.runtime.output_files import refuse_unwritable_file
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.errors import InputError

    if package_as is not None:
        from kernelwright.agent.command_line.records.packages import export_package

        with progress() as say:
            line = export_package(
                package_as, id, run, problem=problem, name=name, out=out, db=db, say=say
            )
        return _say(line)
    if name is not None or problem is not None:
        raise InputError("--name and --problem belong to --as package, hf-kernel or file")
    if format not in FORMATS:
        raise InputError(f"--format {format!r}: choose {', '.join(FORMATS)}")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(
            f"there is no folder {out.absolute().parent}: make it first, or name another with --out"
        )
    if out is not None and format not in ("py", "kernelbench"):
        refuse_unwritable_file(out)
    with progress() as say, open_store(db, readonly=True) as store:
        say(f"reading what --format {format} needs")
        if format in ("py", "kernelbench"):
            _folders(store, id, run, format, out)
        else:
            _text(store, id, run, format, out)
    return None


def _folders(store: Store, id: str | None, run: str | None, format: str, out: Path | None) -> None:
    from kernelwright.agent.export.kernelbench import write_layout
    from kernelwright.agent.export.kernels import kernel_files
    from kernelwright.agent.reporting.files import write_text
    from kernelwright.agent.reporting.selecting import samples_of
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.errors import InputError

    samples = samples_of(store, id, run)
    if format == "kernelbench":
        folder = out or Path("runs") / (run or "export")
        folders = write_layout(store, samples, folder)
        if not folders:
            raise InputError(
                "none of these problems is one of KernelBench, whose layout holds no others: choose another --format"
            )
        _say(f"written to {', '.join(map(str, folders))}")
        return
    from kernelwright.agent.reporting.words import number_of

    with progress() as say:
        files = list(kernel_files(store, samples, say))
    if not files:
        if not samples:
            raise InputError(f"{store.where} holds no trajectory yet: agent solve writes the first")
        raise InputError(
            f"no correct kernel in {number_of(len(samples), 'sample')} of {store.where}: agent inspect lists them, and "
            "--format jsonl writes what was tried"
        )
    if out is None or (len(files) == 1 and out.suffix == ".py"):
        _write("".join(text for _, text in files), out)
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files:
        write_text(out / name, text)
    _say(f"{number_of(len(files), 'kernel')} written to {out}")


def _text(store: Store, id: str | None, run: str | None, format: str, out: Path | None) -> None:
    import json

    from kernelwright.agent.export.inspect_log import inspect_log
    from kernelwright.agent.export.training import (
        LeftOutCounts,
        dpo_lines,
        grpo_lines,
        select_trainable,
        sft_lines,
    )
    from kernelwright.agent.reporting.selecting import candidate_filter, references, samples_of
    from kernelwright.errors import InputError

    if format == "inspect":
        log = inspect_log(store, run or f"trajectory-{id or 'all'}", samples_of(store, id, run))
        _write(json.dumps(log, indent=2) + "\n", out)
        return
    turns = store.samples(candidate_filter(store, id, run))
    if not store.trajectories(limit=1):
        raise InputError(
            f"{store.where} holds no turn yet: agent solve or agent batch writes the first"
        )
    if format == "jsonl":
        _write("".join(turn.model_dump_json() + "\n" for turn in turns), out)
        return
    omitted = LeftOutCounts()
    fit = select_trainable(turns, references(store, id, run), omitted)
    lines: Iterable[object]
    if format == "grpo":
        lines = grpo_lines(fit, omitted)
    else:
        lines = sft_lines(fit) if format == "sft" else dpo_lines(fit)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if omitted.out:
        _say(f"left out: {omitted}")
    if not text:
        raise InputError(
            f"nothing here makes a line of {format}, which {ADVICE_WITHOUT_LINES[format]}"
        )
    _write(text, out)


def _write(text: str, out: Path | None) -> None:
    from kernelwright.agent.reporting.files import write_text

    if out is None:
        typer.echo(text, nl=False)
    else:
        _say(f"written to {write_text(out, text)}")


def _say(text: str) -> None:
    typer.echo(text, err=True)
