"""Options of rollouts that `rl train --online` and `rl loop` share, and their parsing into fields of OnlineOptions.

The command line imports this module: nothing heavy is imported at its top.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

PANEL = "Rollouts"
Problems = Annotated[
    list[str] | None,
    typer.Option(
        "--problems",
        rich_help_panel=PANEL,
        help="synth, synth:SPLIT, catalogue, a folder, a file. May be repeated.",
        show_default=False,
    ),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        rich_help_panel=PANEL,
        help="A suite that no generated problem may be of, besides the known benchmarks.",
        show_default=False,
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        rich_help_panel=PANEL,
        help="Where rollouts are logged.",
        show_default=".kernelwright/runs.db",
    ),
]
Prompts = Annotated[
    int, typer.Option(rich_help_panel=PANEL, min=1, help="Problems a step; of a loop from its log, a cycle.")
]
Group = Annotated[int, typer.Option(rich_help_panel=PANEL, min=2, help="Trajectories a problem.")]
Turns = Annotated[int, typer.Option(rich_help_panel=PANEL, min=1, help="Turns a trajectory; the first is a draft.")]
Workers = Annotated[
    int | None,
    typer.Option(rich_help_panel=PANEL, min=1, help="Processes that judge.", show_default="cores less two"),
]
Judge = Annotated[
    str,
    typer.Option(
        rich_help_panel=PANEL, help="What judges: interpreted, compiled (offline compile, then interpreted) or cuda:N."
    ),
]
OwnWork = Annotated[
    str,
    typer.Option(
        "--own-work",
        rich_help_panel=PANEL,
        help="strict: its own kernels must do the work; share:P: at least this part of the GPU time; report: "
        "only told.",
    ),
]
Lag = Annotated[
    int,
    typer.Option(
        rich_help_panel=PANEL,
        min=0,
        max=4,
        help="Rounds that are sampled and judged while one is trained on; 0: one after the other.",
    ),
]
ReplyTokens = Annotated[
    int | None,
    typer.Option(rich_help_panel=PANEL, min=1, help="Of a reply, at most.", show_default="the agent's own"),
]
Engine = Annotated[
    str,
    typer.Option(
        rich_help_panel=PANEL,
        help="What samples: transformers, process, vllm, openai:MODEL@URL (a vLLM server), or auto.",
    ),
]
Places = Annotated[
    int | None,
    typer.Option(rich_help_panel=PANEL, min=1, help="Rows of the running batch.", show_default="512 on a GPU"),
]
Flat = Annotated[
    str,
    typer.Option(
        "--zero-variance", rich_help_panel=PANEL, help="Drop groups that all earned the same, or resample for others."
    ),
]


def rollout_fields(
    problems: list[str] | None, against: list[str] | None, db: str | None, prompts: int, group: int, turns: int,
    workers: int | None,
    judge: str, own_work: str, lag: int, reply_tokens: int | None,
) -> dict[str, Any]:  # fmt: skip
    """Fields of OnlineOptions from the options of the command line. Raises InputError where one means nothing."""
    from kernelwright.agent.command_line.arguments import own_work_mode

    return {
        "problems": tuple(problems or ["synth"]), "against": tuple(against or ()), "db": db, "prompts": prompts,
        "group": group, "turns": turns,
        "workers": workers, "judge": judge, "own_work": own_work_mode(own_work), "lag": lag,
        "reply_tokens": reply_tokens,
    }  # fmt: skip
