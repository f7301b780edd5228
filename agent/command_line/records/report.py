"""Defines `agent report`, which reports on a trajectory or a batch run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.options import Database, Debug

if TYPE_CHECKING:
    from kernelwright.store.database import Store

Which = Annotated[
    str, typer.Argument(help="A trajectory's number, last, or a run's name.", show_default=False)
]
Html = Annotated[bool, typer.Option("--html", help="One self-contained page.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Markdown, as for a pull request.")]
Csv = Annotated[bool, typer.Option("--csv", help="A line for each problem of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for machines.")]
Against = Annotated[str | None, typer.Option(help="Another run, for the paired tests.")]
Out = Annotated[
    Path | None,
    typer.Option(help="The file.", show_default="report-ID.html for --html, else stdout"),
]


def report(
    id: Which,
    html: Html = False,
    markdown: Markdown = False,
    csv: Csv = False,
    as_json: AsJson = False,
    against: Against = None,
    out: Out = None,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Report on a trajectory (prompts, diffs, verdicts, speed) or a batch run (figures, tests, a
    table of problems).
    """
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.agent.runtime.output_files import refuse_unwritable_file
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.errors import InputError

    if html + markdown + csv + as_json > 1:
        raise InputError("choose one of --html, --markdown, --csv and --json")
    form = (
        "html" if html else "csv" if csv else "json" if as_json else "markdown" if markdown else ""
    )
    if out is not None:
        refuse_unwritable_file(out)
    with progress() as say, open_store(db, readonly=True) as store:
        say("writing the report")
        is_run = any(row.name == id for row in store.runs())
        text = _run(store, id, form, against) if is_run else _trajectory(store, id, form)
    _write(text, out or (Path(f"report-{id}.html") if html else None))


def _run(store: Store, name: str, form: str, against: str | None) -> str:
    from kernelwright.agent.reporting.run_report import report_run
    from kernelwright.agent.reporting.texts import csv_text, write_markdown

    run_report = report_run(store, name, against)
    match form:
        case "html":
            from kernelwright.agent.reporting.files import run_page

            return run_page(run_report)
        case "csv":
            return csv_text(run_report)
        case "json":
            return run_report.model_dump_json(indent=2) + "\n"
    return write_markdown(run_report)


def _trajectory(store: Store, id: str, form: str) -> str:
    from kernelwright.agent.reporting.selecting import trajectory_id
    from kernelwright.agent.reporting.trajectory_report import (
        report_trajectory,
        trajectory_markdown,
    )
    from kernelwright.errors import InputError

    if form == "csv":
        raise InputError(
            "a trajectory has no table of problems: choose --html, --markdown or --json"
        )
    trajectory_report = report_trajectory(store, trajectory_id(store, id))
    match form:
        case "html":
            from kernelwright.agent.reporting.files import trajectory_page

            return trajectory_page(trajectory_report)
        case "json":
            return trajectory_report.model_dump_json(indent=2) + "\n"
    return trajectory_markdown(trajectory_report)


def _write(text: str, out: Path | None) -> None:
    from kernelwright.agent.reporting.files import write_text

    if out is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"written to {write_text(out, text)}", err=True)
