"""Defines `agent problems`, and the shared options for a module's arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.command_line.modes import Modes
from kernelwright.agent.command_line.options import Quiet

if TYPE_CHECKING:
    from kernelwright.tools.manifests.manifest import Manifest
    from kernelwright.tools.problem import Problem

ENTRY_PANEL = "Arguments of the module"
Init = Annotated[
    list[str] | None,
    typer.Option(
        "--init",
        metavar="[NAME=]VALUE",
        help="An argument of the constructor: width=64, config=Config(hidden_size=512), config=@FILE.json. Repeatable.",
        rich_help_panel=ENTRY_PANEL,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="[NAME=]SHAPE[:DTYPE]",
        help="An argument of forward: x=2x128x512:bf16, ids=2x128:int64<1000, mask=128:bool, gain=0.5. Repeatable.",
        rich_help_panel=ENTRY_PANEL,
    ),
]
Query = Annotated[
    str | None,
    typer.Argument(
        help="Words to look for; without them the whole catalogue is listed.", show_default=False
    ),
]
Suite = Annotated[
    str | None,
    typer.Option(
        "--manifest",
        help="Measure what a suite cannot tell from right: kernelbench, tritonbench-t, catalogue, a folder.",
    ),
]
Place = Annotated[
    Path | None,
    typer.Option("--path", "--kernelbench", "--tritonbench", help="Where the suite's checkout is."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Keep the manifest in this file, and go on from what it holds."),
]
Device = Annotated[str, typer.Option(help="Where to measure: auto, cpu or cuda:N.")]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON list, without any source.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def find_named(name: str, **options: Any) -> Problem:
    """Finds a problem by its name (`find_by_name`), with a note on stderr if the problem's name
    differs.

    Raises ProblemError.
    """
    from kernelwright.agent.problems.finding import find_by_name

    problem = find_by_name(name, **options)
    note_near_names([problem])
    return problem


def note_near_names(chosen_problems: Iterable[Problem]) -> None:
    """Prints a line on stderr for each problem whose name only resembles the typed name."""
    from kernelwright.agent.runtime.errors import note

    for problem in chosen_problems:
        if problem.taken_for:
            note(f"{problem.taken_for!r} is taken as {problem.name}")


PROBLEMS_MODES = Modes(
    {"--manifest": ("manifest", "path", "out", "device", "quiet"), "the catalogue": ("query",)}
)


def problems(
    context: typer.Context,
    query: Query = None,
    manifest: Suite = None,
    path: Place = None,
    out: Out = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the catalogue of references, or those nearest to QUERY; or measure a whole suite with --manifest."""
    PROBLEMS_MODES.refuse_unused(context, "--manifest" if manifest else "the catalogue")
    if manifest:
        if out is not None:
            from kernelwright.agent.runtime.output_files import refuse_unwritable_file

            refuse_unwritable_file(out)
        _show_manifests(_measure(manifest, path, device, out, quiet), as_json)
        return
    from kernelwright.agent.problems.finding import catalogue, nearest_problems

    listed = nearest_problems(query) if query else catalogue()
    if as_json:
        typer.echo(json.dumps([_facts(problem) for problem in listed], indent=2))
        return
    from kernelwright.agent.viewing.show.listings import problems_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(problems_view(listed))


def _facts(problem: Problem) -> dict[str, object]:
    return {
        **problem.model_dump(mode="json", exclude={"source"}),
        "hash": problem.hash,
        "cpu_sizes": problem.cpu_sizes,
    }


def _measure(
    name: str, path: Path | None, device: str, out: Path | None, quiet: bool
) -> list[Manifest]:
    from kernelwright.agent.problems.finding import load_suite
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.tools.manifests.suite import compute_suite

    suite, chosen_device = load_suite(name, path), choose_device(device)
    with progress(quiet) as say:

        def report_progress(done: int, total: int, latest: Manifest) -> None:
            say(f"{done} of {total}: {latest.problem}")

        # A CPU measures at the small sizes of the CPU rungs, a GPU at full sizes.
        return compute_suite(
            suite,
            chosen_device,
            report_progress,
            sizes="cpu" if chosen_device == "cpu" else "full",
            out=out,
        )


def _show_manifests(manifests: list[Manifest], as_json: bool) -> None:
    if as_json:
        rows = []
        for manifest in manifests:
            computed = {
                "degenerate": manifest.degenerate,
                "degenerate_kb": manifest.degenerate_kb,
            }
            rows.append({**manifest.model_dump(mode="json"), **computed})
        typer.echo(json.dumps(rows, indent=2))
        return
    from kernelwright.agent.runtime.arguments import peak_for_estimates
    from kernelwright.agent.viewing.show.listings import manifests_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(manifests_view(manifests, peak_for_estimates()))
