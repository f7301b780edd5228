"""Defines `agent recheck`, which judges stored candidates with today's judge."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kernelwright.agent.command_line.options import Database, Debug, Device, Quiet

Where = Annotated[
    str | None, typer.Argument(metavar="DATABASE", hidden=True, help="The old place of --db.")
]
"""Position of the database's name before `--db` existed. To be removed with version 0.2."""
Run = Annotated[str | None, typer.Option(help="Only the candidates of this batch run.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Candidates at once.", show_default="one a core")
]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Candidates at most, this time.", show_default="all")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="What changed as one JSON object and nothing else.")
]


def recheck(
    database: Where = None, run: Run = None, device: Device = "auto", workers: Workers = None, limit: Limit = None,
    db: Database = None, quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Judge stored candidates again with today's judge, and show which verdicts changed and why.

    New verdicts are saved beside the old ones; stored rewards are computed for the new ones, too.
    Candidates already judged by this version of the judge are skipped, so the same command goes on
    after a stop. Exits with 0 when all are judged (changed or not), 2 for unusable input, 3 if some
    could not be judged on this machine, 130 (SIGTERM: 143) if interrupted.
    """
    from kernelwright.agent.replay.rechecking import RecheckRequest
    from kernelwright.agent.replay.rechecking import recheck as recheck_all
    from kernelwright.agent.runtime.arguments import choose_device, named_database
    from kernelwright.agent.runtime.errors import Exit
    from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops
    from kernelwright.agent.viewing.show.progress import console, progress

    database_name = named_database(db, database)
    _check_there(database_name)
    request = RecheckRequest(
        run=run, device=choose_device(device), workers=workers or os.cpu_count() or 2, limit=limit
    )
    with announce_stops(PAUSING), progress(quiet) as say:
        rechecks = recheck_all(request, database_name, say)
    if as_json:
        typer.echo(rechecks.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.outcomes import rechecks_view

        console().print(rechecks_view(rechecks), soft_wrap=True)
    if rechecks.interrupted:
        raise typer.Exit(int(Exit.INTERRUPTED))
    raise typer.Exit(int(Exit.INFRASTRUCTURE if rechecks.not_judged else Exit.DONE))


def _check_there(database: str | None) -> None:
    """Raises InputError if the database is a folder or a missing file. A database server is checked
    on opening.
    """
    from pathlib import Path

    from kernelwright.agent.runtime.databases import DEFAULT_DATABASE
    from kernelwright.errors import InputError

    if database is not None and "://" in database:
        return
    path = Path(database).expanduser() if database is not None else DEFAULT_DATABASE
    if path.is_dir():
        raise InputError(
            f"--db {path} is a folder: name a file in it, such as --db {path / 'runs.db'}"
        )
    if not path.is_file():
        raise InputError(
            f"no database at {path}: agent solve and agent batch write one; --db names another"
        )
