"""Defines `agent inspect`, which shows stored trajectories in a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.options import Database, Debug

if TYPE_CHECKING:
    from kernelwright.agent.reporting.viewed_trajectory import ViewedTrajectory
    from kernelwright.agent.viewing.viewer.views import View
    from kernelwright.store.database import Store
    from kernelwright.store.records import CandidateFilter

Which = Annotated[
    str | None, typer.Argument(help="A trajectory's number, or last.", show_default=False)
]
TurnNumber = Annotated[
    int | None, typer.Option("--turn", min=1, help="Begin at this turn; with --show print it.")
]
Show = Annotated[
    str,
    typer.Option(
        help="Print turn, prompt, code, diff or ptx of one turn.", show_default="the best one"
    ),
]
Filter = Annotated[
    str,
    typer.Option("--filter", help='Such as "fault:mismatch action:repair", "correct speedup:1.2".'),
]
Limit = Annotated[int, typer.Option(min=1, help="Trajectories that the plain list shows.")]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain", help="Text instead of the viewer; so it is where stdout is no terminal."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for machines.")]


def inspect(
    id: Which = None,
    turn: TurnNumber = None,
    show: Show = "",
    filter: Filter = "",
    limit: Limit = 50,
    plain: Plain = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Look at trajectories turn by turn: prompts, code, diffs, verdicts, PTX, and each candidate's
    parent.

    In the viewer `?` lists the keys.

    Without ID it lists the trajectories. It only reads: a batch may write meanwhile.
    """
    from kernelwright.agent.reporting.selecting import trajectory_id
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.agent.viewing.viewer.filtering import parse_filter
    from kernelwright.agent.viewing.viewer.views import choose_view
    from kernelwright.errors import InputError

    candidate_filter = parse_filter(filter)
    view = choose_view(show) if show else None
    if id is None and (turn is not None or (view is not None and (plain or as_json))):
        raise InputError("--turn and --show are for one trajectory: give its number, or last")
    with open_store(db, readonly=True) as store:
        first = trajectory_id(store, id or "last")
        if as_json:
            _json(store, None if id is None else first, turn, candidate_filter, limit)
        elif plain or not _is_terminal():
            _plain(store, None if id is None else first, turn, view, candidate_filter, limit)
        else:
            _view(store, first, turn, view, candidate_filter, listing=id is None)


def _is_terminal() -> bool:
    from rich.console import Console

    return sys.stdout.isatty() and sys.stdin.isatty() and not Console().is_dumb_terminal


def _json(
    store: Store, id: int | None, turn: int | None, candidate_filter: CandidateFilter, limit: int
) -> None:
    import json

    from kernelwright.agent.reporting.viewed_trajectory import read_viewed_trajectory
    from kernelwright.agent.viewing.viewer.plain import chosen_turn, list_json, trajectory_json

    content: object
    if id is None:
        content = list_json(store, candidate_filter, limit)
    else:
        viewed = read_viewed_trajectory(store, id, candidate_filter)
        if turn is not None:
            chosen_turn(store, viewed, turn)
        content = trajectory_json(store, viewed, turn)
    typer.echo(json.dumps(content, indent=2))


def _plain(
    store: Store,
    id: int | None,
    turn: int | None,
    view: View | None,
    candidate_filter: CandidateFilter,
    limit: int,
) -> None:
    from kernelwright.agent.reporting.viewed_trajectory import read_viewed_trajectory
    from kernelwright.agent.viewing.show.progress import console
    from kernelwright.agent.viewing.viewer.plain import (
        chosen_turn,
        list_table,
        one_view,
        whole_trajectory_view,
    )
    from kernelwright.agent.viewing.viewer.views import View

    out = console()
    if id is None:
        out.print(list_table(store, candidate_filter, limit))
        return
    viewed = read_viewed_trajectory(store, id, candidate_filter)
    if view is None and turn is None:
        for part in whole_trajectory_view(store, viewed):
            out.print(part, soft_wrap=True)
        return
    chosen = chosen_turn(store, viewed, turn)
    if view is View.PTX:
        _assembly(store, viewed, chosen.candidate_id)
    else:
        out.print(one_view(view or View.TURN, store, viewed, chosen), soft_wrap=True)


def _assembly(store: Store, viewed: ViewedTrajectory, candidate_id: int) -> None:
    """Prints the assembly of a candidate. Exits with 1 if the candidate does not compile."""
    from kernelwright.agent.runtime.errors import Exit
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.agent.viewing.viewer.views import assembly_view
    from kernelwright.errors import InputError
    from kernelwright.tools.judging.assembly import Assembler

    source = store.turn(candidate_id).source
    if not source:
        raise InputError("that turn holds no code: there is nothing to compile")
    with progress() as say, Assembler() as assembler:
        assembly = assembler.assemble(store.problem(viewed.row.id), source, viewed.target, say)
    console().print(assembly_view(assembly), soft_wrap=True)
    if assembly.failure is not None:
        raise typer.Exit(int(Exit.INCORRECT))


def _view(
    store: Store,
    id: int,
    turn: int | None,
    view: View | None,
    candidate_filter: CandidateFilter,
    listing: bool,
) -> None:
    from kernelwright.agent.reporting.viewed_trajectory import read_viewed_trajectory
    from kernelwright.agent.viewing.viewer.app import Viewer
    from kernelwright.agent.viewing.viewer.plain import chosen_turn

    chosen = None
    if turn is not None:
        viewed = read_viewed_trajectory(store, id)
        chosen = chosen_turn(store, viewed, turn).candidate_id
    Viewer(
        store,
        id,
        candidate_id=chosen,
        view=view,
        candidate_filter=candidate_filter,
        listing=listing,
    ).run()
