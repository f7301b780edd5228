"""Defines `agent tune`, which searches a kernel's block sizes and launch options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.check import AsJson, Debug, Device, KernelBench, Named, OwnWork
from kernelwright.agent.command_line.options import Database, Quiet
from kernelwright.agent.command_line.problems import find_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelwright.agent.contracts.guarded import GuardedKernel
    from kernelwright.agent.tuning.settings import TuneSettings
    from kernelwright.agent.tuning.tuned import TuningResult
    from kernelwright.tools.evaluation.pipeline import Evaluator
    from kernelwright.tools.problem import Problem
    from kernelwright.tools.report import Report
    from kernelwright.tools.tuning.kernel_text.parameters import Setting

Kernel = Annotated[
    Path, typer.Argument(help="Any Triton kernel with `class ModelNew`.", show_default=False)
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="sm_80, 86, 89, 90, 100, 120 or gfx942.",
        show_default="the GPU's own, or sm_90",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        help="Products of fp32: ieee, split (also bf16x3 and tf32x3), or any (also tf32)."
    ),
]
Configurations = Annotated[
    int, typer.Option(min=2, max=4096, help="Configurations to compile at most.")
]
Measured = Annotated[int, typer.Option(min=2, help="The best of them, that are timed on the GPU.")]
Launches = Annotated[int, typer.Option("--max-launches", min=1, help="Timed calls at most.")]
GpuSeconds = Annotated[
    float, typer.Option("--max-gpu-seconds", min=0.1, help="Seconds of timing at most.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="N=1024,M=512",
        help="Another size to be fast at; several times for several.",
    ),
]
Keep = Annotated[
    int,
    typer.Option(
        min=1, max=16, help="Configurations to keep: several are written as an autotune list."
    ),
]
Check = Annotated[
    int,
    typer.Option(
        min=0, help="Without a GPU: so many of the best are judged under the interpreter."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="The tuned file.", show_default="KERNEL_tuned.py, in this folder"),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--picture", help="An SVG of what was tried.", show_default="beside the tuned file"
    ),
]


def tune(
    kernel: Kernel, problem: Named, target: Target = None, device: Device = "auto", precision: Precision = "split",
    configurations: Configurations = 64, measured: Measured = 16, max_launches: Launches = 4000,
    max_gpu_seconds: GpuSeconds = 120.0, shape: Shapes = None, keep: Keep = 1, check: Check = 1,
    own_work: OwnWork = "strict", kernelbench: KernelBench = None, out: Out = None, picture: Picture = None,
    db: Database = None, quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Search the numbers of a kernel: block sizes, warps, stages, input precision.

    Without a GPU it prunes by compiling alone, prints the remaining settings, and writes no kernel.
    On a GPU it measures, judges the winner in full and writes it. Ctrl-C or SIGTERM stops, and the
    same command goes on. Exits with 0 when done, 1 for an incorrect kernel.
    """
    from kernelwright.agent.candidates.candidate_files import read_candidate
    from kernelwright.agent.command_line.options import precision_class
    from kernelwright.agent.problems.finding import refuse_unused_checkouts
    from kernelwright.agent.runtime.arguments import (
        choose_device,
        choose_targets,
        own_work_mode,
    )
    from kernelwright.agent.runtime.output_files import refuse_unwritable_file
    from kernelwright.agent.tuning.files import check_path, default_path
    from kernelwright.agent.tuning.settings import TuneSettings

    source = read_candidate(kernel)
    refuse_unused_checkouts(problem, kernelbench=kernelbench)
    chosen_problem = find_named(problem, kernelbench=kernelbench)
    chosen_device = choose_device(device)
    settings = TuneSettings(
        target=choose_targets([target] if target else [], chosen_device)[0],
        device=chosen_device,
        precision=precision_class(precision),
        configurations=configurations,
        measured=measured,
        launches=max_launches,
        gpu_seconds=max_gpu_seconds,
        own_work=own_work_mode(own_work),
        shapes=tuple(_shape(text, chosen_problem) for text in shape or []),
        keep=keep,
        classes=True,
    )
    path = check_path(out or default_path(kernel), kernel)
    if picture is not None:
        refuse_unwritable_file(picture, "--picture")
    tuned = _run(kernel, source, chosen_problem, settings, path, picture, check, db, quiet=quiet)
    if as_json:
        typer.echo(tuned.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.progress import console
        from kernelwright.agent.viewing.show.tuning import tuned_view

        console().print(tuned_view(tuned))
    incorrect = tuned.report is not None and not tuned.report.correct
    raise typer.Exit(1 if tuned.failure or incorrect else 0)


def _run(
    kernel: Path, source: str, problem: Problem, settings: TuneSettings, path: Path, picture: Path | None, check: int,
    db: str | None, quiet: bool,
) -> TuningResult:  # fmt: skip
    from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops, defer_interrupts
    from kernelwright.agent.tuning.files import draw_picture, journal_of, picture_of, write_tuned
    from kernelwright.agent.tuning.journal import Journal
    from kernelwright.agent.tuning.tuning import Tuner, identity_of
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.tools.evaluation.pipeline import Evaluator
    from kernelwright.tools.hardware.machine_info import version

    with (
        announce_stops(PAUSING),
        progress(quiet) as say,
        Evaluator(device=settings.device) as evaluator,
    ):
        say("starting the tools")
        with defer_interrupts():
            # Imported while the evaluator's processes warm up.
            import torch  # noqa: F401
        gpu_name = evaluator.environment().gpu or "cpu"
        with Journal(journal_of(path), identity_of(problem, source, settings, gpu_name)) as journal:
            tuner = Tuner(
                evaluator, problem, source, settings, journal, say, kernel=str(kernel),
                priors=lambda: _priors(db, problem, gpu_name, source),
            )  # fmt: skip
            tuned, text = tuner.run(check)
        guarded = _guarded(problem, text, tuned, evaluator, settings, say) if text else None
    if guarded is not None:
        write_tuned(path, guarded, tuned, version("kernelwright") or "(not installed)")
        tuned = tuned.with_(output=str(path))
    if tuned.groups and (picture is not None or tuned.measured):
        tuned = tuned.with_(picture=str(draw_picture(tuned, picture or picture_of(path))))
    return tuned


def _guarded(
    problem: Problem, text: str, tuned: TuningResult, evaluator: Evaluator, settings: TuneSettings,
    say: Callable[[str], None],
) -> GuardedKernel:  # fmt: skip
    """Returns the tuned text with the contract of its verdict; the text alone without a full
    verdict.
    """
    from kernelwright.agent.contracts.guarded import GuardedKernel, guarded_kernel
    from kernelwright.tools.evaluation.pipeline import Options

    if tuned.report is None:
        return GuardedKernel(
            text=text, lines=("# contract   none        the tuned text was not judged in full",)
        )
    options = Options(
        targets=(settings.target,), own_work=settings.own_work, profile=False, torch_compile=False,
        contiguous_inputs=False,
    )  # fmt: skip

    def judge(guarded: str) -> Report:
        say("judging the tuned kernel with its contract")
        return evaluator.evaluate(problem, guarded, options)

    return guarded_kernel(problem, text, tuned.report, judge)


def _priors(
    db: str | None, problem: Problem, gpu_name: str, source: str
) -> list[dict[str, Setting]]:
    """Returns earlier winners for this kind of kernel on this GPU; none if there is no database
    yet, or if the default database cannot be read.
    """
    from kernelwright.agent.runtime.databases import DEFAULT_DATABASE, open_store
    from kernelwright.agent.tuning.priors import priors_for
    from kernelwright.store.connection.errors import StoreError

    if db is None and not DEFAULT_DATABASE.exists():
        return []
    try:
        with open_store(db, readonly=True) as store:
            return priors_for(store, problem, gpu_name, source)
    except StoreError as error:
        if db is not None:
            raise
        typer.echo(f"the results of earlier tunings are not used: {error}", err=True)
        return []


def _shape(text: str, problem: Problem) -> dict[str, int]:
    """Parses `M=1024,N=512` as sizes of the problem. Raises InputError."""
    from kernelwright.errors import InputError
    from kernelwright.tools.references.size_search import changeable_integers

    problem_sizes = changeable_integers(problem)
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        if name not in problem_sizes or not number.isdigit() or int(number) < 1:
            shown = ", ".join(f"{n}={v}" for n, v in problem_sizes.items()) or "none"
            raise InputError(f"--shape {text!r}: sizes of {problem.name} are {shown}")
        sizes[name] = int(number)
    return sizes
