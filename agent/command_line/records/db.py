"""Defines `agent db`: path, statistics, search, clean-up and migration of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.command_line.modes import Modes
from kernelwright.agent.command_line.options import AsJson, Database, Debug

if TYPE_CHECKING:
    from kernelwright.store.records import SearchHit, Stats

ACTIONS = ("path", "stats", "search", "gc", "migrate")

Action = Annotated[str, typer.Argument(help=", ".join(ACTIONS) + ".", show_default=False)]
Words = Annotated[
    list[str] | None,
    typer.Argument(help='What to search for: words, "a phrase", a beginning*.', show_default=False),
]
Run = Annotated[str | None, typer.Option(help="Search in this batch run only.")]
Correct = Annotated[
    bool | None, typer.Option("--correct/--incorrect", help="Search among these only.")
]
Limit = Annotated[int, typer.Option(min=1, help="Lines that search shows.")]


DATABASE_MODES = Modes(
    {"db search": ("run", "correct", "limit")}
    | {f"db {name}": () for name in ACTIONS if name != "search"}
)


def db(
    context: typer.Context,
    action: Action,
    words: Words = None,
    database: Database = None,
    run: Run = None,
    correct: Correct = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the database's path, size and contents; free room (gc), or bring it to this version
    (migrate).
    """
    from kernelwright.errors import InputError

    if action not in ACTIONS:
        raise InputError(f"db {action}: choose {', '.join(ACTIONS)}")
    if bool(words) != (action == "search"):
        raise InputError("db search needs words, and the other actions take none")
    DATABASE_MODES.refuse_unused(context, f"db {action}")
    if action == "search":
        _search(" ".join(words or []), database, run, correct, limit, as_json)
    else:
        _do(action, database, as_json)


def _do(action: str, database: str | None, as_json: bool) -> None:
    from kernelwright.agent.runtime.databases import open_store

    with open_store(database, readonly=action in ("path", "stats")) as store:
        match action:
            case "path":
                _say({"database": store.where}, store.where, as_json)
            case "stats":
                _stats(store.stats(), as_json)
            case "gc":
                swept = store.gc()
                gone = (
                    f"{swept.blobs} texts and {swept.links} links that nothing refers to are gone"
                )
                _say(swept.model_dump(), f"{gone}, {swept.bytes:,} bytes", as_json)
            case "migrate":
                schema = store.stats().version
                _say(
                    {"database": store.where, "schema": schema},
                    f"{store.where} is at schema {schema}",
                    as_json,
                )


def _say(facts: dict[str, Any], text: str, as_json: bool) -> None:
    import json

    typer.echo(json.dumps(facts) if as_json else text)


def _stats(stats: Stats, as_json: bool) -> None:
    if as_json:
        typer.echo(stats.model_dump_json(indent=2))
        return
    from kernelwright.agent.viewing.show.listings import stats_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(stats_view(stats))


def _search(
    query: str,
    database: str | None,
    run: str | None,
    correct: bool | None,
    limit: int,
    as_json: bool,
) -> None:
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.store.records import CandidateFilter

    with open_store(database, readonly=True) as store:
        hits = store.search(query, CandidateFilter(run=run, correct=correct), limit=limit)
    if as_json:
        import json

        typer.echo(json.dumps([_facts(line) for line in hits], indent=2))
        return
    from kernelwright.agent.viewing.show.listings import found_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(found_view(hits))


def _facts(hit: SearchHit) -> dict[str, object]:
    candidate, trajectory, verdict = hit.entry
    return {
        "trajectory": trajectory.id,
        "candidate": candidate.id,
        "turn": candidate.turn,
        "problem": trajectory.problem,
        "policy": trajectory.policy,
        "correct": verdict.correct if verdict else None,
        "fault": verdict.fault.value if verdict and verdict.fault else None,
        "speedup": verdict.speedup if verdict else None,
        "excerpt": hit.excerpt,
    }
