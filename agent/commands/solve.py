"""`agent solve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agent.settings import Settings
    from agent.stopping import Budgets
    from policies.base import Policy
    from tools.problem import Problem

Named = Annotated[str, typer.Argument(help='"fused softmax", model.py or kernelbench:1/23.', show_default=False)]
PolicyName = Annotated[
    str, typer.Option(help="embedded, openai:MODEL@URL, vllm:PATH, transformers:PATH or scripted:FILE.")
]
Targets = Annotated[list[str] | None, typer.Option("--target", help="sm_80, 86, 89, 90, 100, 120 or gfx942.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.")]
Turns = Annotated[int, typer.Option(min=1, help="Replies to ask for at most.")]
Samples = Annotated[int, typer.Option(min=1, help="Drafts of best-of-n, width of the beam.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Prompt and reply together.")]
MaxUsd = Annotated[float | None, typer.Option(min=0.0, help="Needs a policy whose price is known.")]
MaxGpuSeconds = Annotated[float | None, typer.Option(min=0.0, help="Seconds that its candidates may take of a GPU.")]
MaxMinutes = Annotated[float | None, typer.Option(min=0.0, help="Ends well after so long, with what there is.")]
Search = Annotated[str, typer.Option(help="serial, best-of-n or beam.")]
GoalText = Annotated[
    str | None,
    typer.Option("--goal", help="correct, speedup:1.2 or roofline:0.9. Without: roofline:0.9 on a GPU, else correct."),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=2.0,
        help="Of the policy's draws.",
        show_default="1; a small policy says first what is likeliest, then draws at 0.8",
    ),
]
ReplyTokens = Annotated[int | None, typer.Option(min=1, help="The most that one reply may take.")]
Seed = Annotated[int | None, typer.Option(help="For the policy's draws.")]
Adapter = Annotated[str | None, typer.Option(help="A LoRA adapter (vllm, transformers).")]
PromptFolder = Annotated[Path | None, typer.Option("--prompts", help="A folder with texts of your own.")]
Patience = Annotated[float, typer.Option(min=0.0, help="Seconds to go on asking a server that is unavailable.")]
Timeout = Annotated[float, typer.Option(min=1.0, help="Seconds that a server may take for one reply.")]
Database = Annotated[str | None, typer.Option("--db", help="Where it is kept.", show_default=".kernelwright/runs.db")]
KernelBench = Annotated[Path | None, typer.Option(help="A KernelBench checkout or parquet file.")]
OwnWork = Annotated[str, typer.Option(help="What its own kernels must do: strict, share:P or report.")]
Output = Annotated[Path | None, typer.Option(help="The file for the best kernel.", show_default="PROBLEM_triton.py")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the prompt, the plan and an estimate, and do nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="How it ended as one JSON object and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def solve(
    problem: Named,
    policy: PolicyName = "embedded",
    target: Targets = None,
    device: Device = "auto",
    turns: Turns = 10,
    samples: Samples = 4,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    max_gpu_seconds: MaxGpuSeconds = None,
    max_minutes: MaxMinutes = None,
    search: Search = "serial",
    goal: GoalText = None,
    temperature: Temperature = None,
    reply_tokens: ReplyTokens = None,
    seed: Seed = None,
    adapter: Adapter = None,
    prompts: PromptFolder = None,
    patience: Patience = 600.0,
    timeout: Timeout = 600.0,
    db: Database = None,
    kernelbench: KernelBench = None,
    own_work: OwnWork = "strict",
    output: Output = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a kernel for one problem: draft, judge, repair, refine, until the goal is reached or a budget is spent.

    Ctrl-C pauses, and the same command goes on at the exact turn. Exits with 0 where a correct kernel was found, 1 where none was, 2 where you must
    change something, 3 for this machine's trouble, 130 where it was paused.
    """
    from agent.asked import choose_device, choose_goal, choose_search, choose_targets, own_work_mode
    from agent.problems import find
    from agent.settings import Settings
    from policies.names import open_policy

    found = find(problem, kernelbench=kernelbench)
    place = choose_device(device)
    settings = Settings(
        policy=policy if adapter is None else f"{policy} with {adapter}",
        targets=choose_targets(target or [], place),
        device=place,
        own_work=own_work_mode(own_work),
        search=choose_search(search),
        samples=samples,
        goal=choose_goal(goal, place),
        budgets=budgets(turns, max_tokens, max_usd, max_gpu_seconds, max_minutes),
        temperature=temperature,
        reply_tokens=reply_tokens,
        seed=seed,
        prompts=prompts,
    )
    key = os.environ.get("OPENAI_API_KEY")
    opened = open_policy(policy, key=key, adapter=adapter, patience=patience, timeout=timeout)
    if dry_run:
        return _show_plan(found, opened, settings, as_json)
    return finish_solve(found, opened, settings, db, output, as_json)


def budgets(
    turns: int, tokens: int | None, usd: float | None, gpu_seconds: float | None, minutes: float | None
) -> Budgets:
    """Zero is no bound."""
    from agent.stopping import Budgets

    return Budgets(
        turns=turns, tokens=tokens, dollars=usd or None, gpu_seconds=gpu_seconds or None, minutes=minutes or None
    )


def _show_plan(problem: Problem, policy: Policy, settings: Settings, as_json: bool) -> None:
    from agent.planning import dry_run

    plan = dry_run(problem, policy, settings)
    if as_json:
        typer.echo(plan.model_dump_json(indent=2))
        return
    from agent.show.solved import dry_run_view
    from agent.show.terminal import console

    console().print(dry_run_view(plan))


def finish_solve(
    problem: Problem, policy: Policy, settings: Settings, db: str | None, output: Path | None, as_json: bool,
    forked_from: int | None = None,
) -> None:  # fmt: skip
    """Solves with the live view, shows how it ended, and exits. `forked_from`: the candidate after which it branches off."""
    from agent.kernel_file import check_path, default_path
    from agent.show.live import live
    from agent.solving import solve_problem

    path = check_path(output or default_path(problem))
    try:
        with live(quiet=as_json) as (watch, say):
            solved = solve_problem(
                problem, policy, settings, db=db, output=path, watch=watch, say=say, forked_from=forked_from
            )
    finally:
        policy.close()
    if as_json:
        typer.echo(solved.model_dump_json(indent=2))
    else:
        from agent.show.solved import solved_view
        from agent.show.terminal import console

        console().print(solved_view(solved))
    raise typer.Exit(int(solved.exit))
