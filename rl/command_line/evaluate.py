"""`rl evaluate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kernelwright.policies.base import Policy
    from kernelwright.rl.evaluating.running import Evaluated, EvaluationOptions
    from kernelwright.rl.evaluating.suites import Suite

PolicyName = Annotated[
    str, typer.Option(help="embedded, transformers:PATH, vllm:PATH, openai:MODEL@URL or scripted:FILE.")
]
SuiteName = Annotated[
    str,
    typer.Option(
        "--suite",
        help="synth:composition, synth:depth, synth:family, catalogue, kernelbench:DIR, tritonbench-t:DIR, or a "
        "folder of problems.",
    ),
]
Samples = Annotated[int, typer.Option(min=1, help="Rollouts a problem. More can be added later.")]
Turns = Annotated[int, typer.Option(min=1, help="A draft, and repairs of it.")]
Number = Annotated[int | None, typer.Option("--n", min=1, help="Only the first so many problems.")]
Level = Annotated[int | None, typer.Option(min=1, help="Of KernelBench.")]
Device = Annotated[str, typer.Option(help="Where candidates are judged: auto, cpu or cuda:N.")]
PolicyDevice = Annotated[str, typer.Option(help="Where the policy computes: auto, cpu or cuda:N.")]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=2.0,
        help="Of the policy's draws.",
        show_default="0.8; with one sample a small policy's draft is greedy",
    ),
]
Seed = Annotated[int, typer.Option(help="Of the policy's draws.")]
TaskSeed = Annotated[int | None, typer.Option(help="Of generated tasks.")]
Adapter = Annotated[str | None, typer.Option(help="A LoRA adapter (vllm, transformers).")]
ReplyTokens = Annotated[int | None, typer.Option(min=1, help="The most that one reply may take.")]
AtOnce = Annotated[int, typer.Option(min=1, help="Rollouts at once.")]
Workers = Annotated[int | None, typer.Option(min=1, help="CPU rungs at once.", show_default="one a core")]
Out = Annotated[Path | None, typer.Option(help="The folder.", show_default="runs/evaluate-POLICY-SUITE")]
Card = Annotated[bool, typer.Option("--card", help="Write the figures into the model's own card as well.")]
AsJson = Annotated[bool, typer.Option("--json", help="The figures as one JSON object and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def evaluate(
    policy: PolicyName = "embedded",
    suite: SuiteName = "synth:composition",
    samples: Samples = 1,
    turns: Turns = 4,
    n: Number = None,
    level: Level = None,
    device: Device = "auto",
    policy_device: PolicyDevice = "auto",
    temperature: Temperature = None,
    seed: Seed = 0,
    task_seed: TaskSeed = None,
    adapter: Adapter = None,
    reply_tokens: ReplyTokens = None,
    at_once: AtOnce = 32,
    workers: Workers = None,
    out: Out = None,
    card: Card = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure a policy: compile rate, pass@k, solved within so many turns, fast_p, tokens, by family, with intervals.

    Every rollout is in OUT/rollouts.db. Ctrl-C pauses, and the same command goes on. Exits with 0 where all is
    finished, 2 where you must change something, 3 for this machine's trouble, 130 where it was paused.
    """
    from kernelwright.agent.command_line.arguments import choose_device, choose_targets
    from kernelwright.rl.evaluating.running import EvaluationOptions
    from kernelwright.rl.evaluating.suites import TASK_SEED, open_suite

    chosen = open_suite(suite, n, level, TASK_SEED if task_seed is None else task_seed)
    place = choose_device(device)
    asked = EvaluationOptions(
        policy=policy if adapter is None else f"{policy} with {adapter}", samples=samples, turns=turns, device=place,
        temperature=temperature, seed=seed, targets=choose_targets([], place), reply_tokens=reply_tokens,
        at_once=at_once, workers=workers or os.cpu_count() or 2,
    )  # fmt: skip
    _run(
        chosen,
        asked,
        _opened(policy, adapter, policy_device),
        out or _folder(policy, suite),
        _card(policy if adapter is None else f"transformers:{adapter}", card),
        as_json,
    )


def _opened(policy: str, adapter: str | None, device: str) -> Policy:
    from kernelwright.policies.open_policy import open_policy

    return open_policy(policy, key=os.environ.get("OPENAI_API_KEY"), adapter=adapter, device=device)


def _folder(policy: str, suite: str) -> Path:
    import re

    def slug(text: str) -> str:
        return re.sub(r"\W+", "-", text).strip("-")[-60:]

    return Path("runs") / f"evaluate-{slug(policy)}-{slug(suite)}"


def _card(policy: str, wanted: bool) -> Path | None:
    from kernelwright.errors import InputError

    folder = Path(policy.partition(":")[2]).expanduser()
    if not wanted:
        return None
    if policy.partition(":")[0] not in ("transformers", "vllm") or not folder.is_dir():
        raise InputError(f"--card writes into a model's folder, and {policy} names none: use transformers:PATH")
    return folder


def _run(
    suite: Suite, asked: EvaluationOptions, policy: Policy, folder: Path, card: Path | None, as_json: bool
) -> None:
    import shlex

    from kernelwright.agent.batch.suite_choice import check_folder
    from kernelwright.agent.viewing.show.batch import live_batch
    from kernelwright.rl.evaluating.running import evaluate as evaluate_policy

    check_folder(folder)
    command = "rl " + shlex.join(sys.argv[1:])
    try:
        with live_batch(quiet=as_json) as (watch, say):
            found = evaluate_policy(suite, policy, asked, folder, command, card=card, watch=watch, say=say)
    finally:
        policy.close()
    _show(found, as_json)


def _show(found: Evaluated, as_json: bool) -> None:
    from kernelwright.agent.errors import Exit

    if as_json:
        typer.echo(found.evaluation.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.progress import console
        from kernelwright.rl.evaluating.show import evaluation_view

        console().print(evaluation_view(found))
    if found.interrupted:
        raise typer.Exit(int(Exit.INTERRUPTED))
    raise typer.Exit(int(Exit.INFRASTRUCTURE if found.evaluation.unfinished else Exit.DONE))
