"""`agent check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tools.pipeline import Options
    from tools.problem import Problem
    from tools.results import Failure, Report

Kernel = Annotated[Path, typer.Argument(help="The candidate: a Python file with `class ModelNew`.", show_default=False)]
Named = Annotated[
    str, typer.Option("--problem", "-p", help='"fused softmax", model.py or kernelbench:1/23.', show_default=False)
]
Targets = Annotated[
    list[str] | None, typer.Option("--target", help="sm_80, 86, 89, 90, 100, 120 or gfx942; several make a matrix.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.")]
OwnWork = Annotated[str, typer.Option(help="What its own kernels must do: strict, share:P or report.")]
KernelBench = Annotated[Path | None, typer.Option(help="A KernelBench checkout or parquet file.")]
TritonBench = Annotated[Path | None, typer.Option(help="A TritonBench checkout, for tritonbench-t:NAME.")]
Profile = Annotated[bool, typer.Option("--profile/--no-profile", help="Measure its speed (needs a GPU).")]
Ncu = Annotated[bool, typer.Option("--ncu", help="Read hardware counters with NVIDIA Nsight Compute.")]
Sanitizer = Annotated[bool, typer.Option("--sanitizer", help="Run under NVIDIA compute-sanitizer too.")]
Cache = Annotated[Path | None, typer.Option("--cache", help="A folder to keep verdicts in, and to take them from.")]
AsJson = Annotated[bool, typer.Option("--json", help="The report as one JSON object and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def check(
    kernel: Kernel,
    problem: Named,
    target: Targets = None,
    device: Device = "auto",
    own_work: OwnWork = "strict",
    kernelbench: KernelBench = None,
    tritonbench: TritonBench = None,
    profile: Profile = True,
    ncu: Ncu = False,
    sanitizer: Sanitizer = False,
    cache: Cache = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Judge one kernel: does it compile, is it right, does it do its own work, how fast is it?

    Exits with 0 only for a correct kernel that does its own work, 1 where it is not, 2 for what cannot be used, 3 where this machine failed.
    """
    from agent.asked import choose_device, choose_targets, own_work_mode, read_candidate

    source = read_candidate(kernel)
    from agent.problems import find
    from tools.source import read_source

    found = find(problem, kernelbench=kernelbench, tritonbench=tritonbench)
    asked = own_work_mode(own_work)
    place = choose_device(device)
    targets = choose_targets(target or [], place)
    if failure := read_source(source):
        report = _unreadable(found, source, failure)
    else:
        from tools.pipeline import Options

        options = Options(targets=targets, own_work=asked, profile=profile, ncu=ncu, sanitizer=sanitizer)
        report = _judge(found, source, place, options, cache, quiet=as_json)
    _show(report, as_json)
    raise typer.Exit(0 if report.correct else 1)


def _unreadable(problem: Problem, source: str, failure: Failure) -> Report:
    """The report of a text that cannot be a candidate: no process is started for it."""
    from tools.results import Report
    from tools.source import advice, candidate_hash

    return Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=candidate_hash(source),
        failure=failure,
        advice=advice(source),
    )


def _judge(problem: Problem, source: str, device: str, options: Options, cache: Path | None, quiet: bool) -> Report:
    from agent.interrupts import deferred
    from agent.show.terminal import progress
    from tools.pipeline import Evaluator

    with progress(quiet) as say, Evaluator(device=device, cache_dir=cache) as evaluator:
        with deferred():
            import torch  # noqa: F401 (here, while the evaluator's processes warm up)
        return evaluator.evaluate(problem, source, options, progress=say)


def _show(report: Report, as_json: bool) -> None:
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
        return
    from agent.show.terminal import console
    from agent.show.verdict import report_view

    console().print(report_view(report))
