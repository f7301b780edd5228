"""Defines `rl evaluate`, which measures pass@k of a policy on suites of problems."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from kernelwright.agent.command_line.options import expand_groups
from kernelwright.rl.command_line.options.shared import Adapter, AsJson, Debug, PolicyDevice

if TYPE_CHECKING:
    from kernelwright.policies.base import Policy
    from kernelwright.rl.evaluating.comparing import RecordedEvaluation
    from kernelwright.rl.evaluating.running import (
        EvaluationOptions,
        EvaluationOutput,
        EvaluationResult,
    )
    from kernelwright.rl.evaluating.suites import Suite

Out = Annotated[
    Path | None, typer.Option(help="The folder.", show_default="runs/evaluate-POLICY-SUITE")
]
Earlier = Annotated[
    Path | None,
    typer.Option(
        "--against", help="Compare with an earlier evaluation, problem by problem: its folder, or its rollouts.db.",
        show_default=False, rich_help_panel="Rollouts",
    ),
]  # fmt: skip
Card = Annotated[
    bool, typer.Option("--card", help="Write the figures into the model's own card as well.")
]


@dataclass(frozen=True)
class SuiteOptions:
    """Options for the problems of an evaluation."""

    PANEL: ClassVar[str] = "Suite"
    suite: Annotated[
        str,
        typer.Option("--suite", help="synth:composition, synth:depth, synth:family, catalogue, kernelbench:DIR, "
        "tritonbench-t:DIR, or a folder of problems."),
    ] = "synth:composition"  # fmt: skip
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first so many problems.")
    ] = None
    level: Annotated[
        int | None, typer.Option(min=1, help="The level of KernelBench.", show_default="1 to 3")
    ] = None
    task_seed: Annotated[int | None, typer.Option(help="Seed of the generated problems.")] = None

    def open(self) -> Suite:
        """Returns the suite. Raises InputError and ProblemError for an unknown suite."""
        from kernelwright.rl.evaluating.suites import TASK_SEED, open_suite

        return open_suite(
            self.suite,
            self.limit,
            self.level,
            TASK_SEED if self.task_seed is None else self.task_seed,
        )


@dataclass(frozen=True)
class PolicyOptions:
    """Options for the policy and its sampling."""

    PANEL: ClassVar[str] = "Policy"
    policy: Annotated[
        str,
        typer.Option(
            help="embedded, transformers:PATH, vllm:PATH, openai:MODEL@URL or scripted:FILE."
        ),
    ] = "embedded"
    adapter: Adapter = None
    policy_device: PolicyDevice = "auto"
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, max=2.0, help="Sampling temperature.",
        show_default="0.8; with one sample a small policy's draft is greedy"),
    ] = None  # fmt: skip
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0
    reply_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of one reply at most.")
    ] = None

    @property
    def label(self) -> str:
        """Returns the policy's stored name, with its adapter."""
        return self.policy if self.adapter is None else f"{self.policy} with {self.adapter}"


@dataclass(frozen=True)
class RolloutCounts:
    """Options for the number of rollouts and turns, and for the judging machine."""

    PANEL: ClassVar[str] = "Rollouts"
    samples: Annotated[
        int, typer.Option(min=1, help="Rollouts for each problem. More can be added later.")
    ] = 1
    turns: Annotated[
        int, typer.Option(min=1, help="Turns a rollout: a draft, and repairs of it.")
    ] = 4
    device: Annotated[
        str, typer.Option(help="Where candidates are judged: auto, cpu or cuda:N.")
    ] = "auto"
    at_once: Annotated[int, typer.Option(min=1, help="Rollouts at once.")] = 32
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Candidates that are compiled or interpreted at once.",
            show_default="one a core",
        ),
    ] = None


@expand_groups
def evaluate(
    suite: SuiteOptions,
    policy: PolicyOptions,
    rollouts: RolloutCounts,
    out: Out = None,
    earlier: Earlier = None,
    card: Card = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure a policy: compile rate, pass@k, solved within a number of turns, fast_p, tokens, by
    family, with intervals.

    Every rollout is in OUT/rollouts.db. Ctrl-C pauses, and the same command goes on. Exits with 0
    if all is finished, 1 if pass@1 is lower than that of --against by more than chance explains, 2
    if you must change something, 3 for a failure of this machine, 130 if paused.
    """
    import shlex

    from kernelwright.agent.runtime.arguments import choose_device, choose_targets
    from kernelwright.rl.evaluating.comparing import refuse_unshared
    from kernelwright.rl.evaluating.running import EvaluationOptions, EvaluationOutput

    device = choose_device(rollouts.device)
    compared = _earlier(earlier)
    options = EvaluationOptions(
        policy=policy.label, samples=rollouts.samples, turns=rollouts.turns, device=device,
        temperature=policy.temperature, seed=policy.seed, targets=choose_targets([], device),
        reply_tokens=policy.reply_tokens, at_once=rollouts.at_once, workers=rollouts.workers or os.cpu_count() or 2,
    )  # fmt: skip
    folder = out or _folder(policy.policy, suite.suite)
    model = policy.policy if policy.adapter is None else f"transformers:{policy.adapter}"
    carded = _card(model, card)
    opened = _opened(policy.policy, policy.adapter, policy.policy_device)
    try:
        # Drawing problems takes seconds, so every other refusal comes first.
        chosen = suite.open()
        if compared is not None:
            refuse_unshared(compared, [problem.hash for problem in chosen.problems])
        command = "rl " + shlex.join(sys.argv[1:])
        output = EvaluationOutput(folder, command, carded, compared)
        _run(chosen, opened, options, output, as_json)
    finally:
        opened.close()


def _earlier(against: Path | None) -> RecordedEvaluation | None:
    """Reads the evaluation of --against before problems are drawn, which takes seconds. Raises InputError."""
    if against is None:
        return None
    from kernelwright.rl.evaluating.comparing import read_earlier

    return read_earlier(against)


def _opened(policy: str, adapter: str | None, device: str) -> Policy:
    from kernelwright.policies.opening.open_policy import open_policy
    from kernelwright.policies.server_names import key_variable

    return open_policy(
        policy, key=os.environ.get(key_variable(policy)), adapter=adapter, device=device
    )


def _folder(policy: str, suite: str) -> Path:
    import re

    def slug(text: str) -> str:
        return re.sub(r"\W+", "-", text).strip("-")[-60:]

    return Path("runs") / f"evaluate-{slug(policy)}-{slug(suite)}"


def _card(policy: str, write_card: bool) -> Path | None:
    from kernelwright.errors import InputError

    folder = Path(policy.partition(":")[2]).expanduser()
    if not write_card:
        return None
    if policy.partition(":")[0] not in ("transformers", "vllm") or not folder.is_dir():
        raise InputError(
            f"--card writes into a model's folder, and {policy} names none: use transformers:PATH"
        )
    return folder


def _run(
    suite: Suite,
    policy: Policy,
    options: EvaluationOptions,
    output: EvaluationOutput,
    as_json: bool,
) -> None:
    from kernelwright.agent.runtime.output_files import refuse_unwritable_folder
    from kernelwright.agent.viewing.show.batch import live_batch
    from kernelwright.rl.evaluating.running import evaluate_policy

    refuse_unwritable_folder(output.folder)
    with live_batch(quiet=as_json) as live:
        result = evaluate_policy(suite, policy, options, output, watch=live.watch, say=live.say)
    _show(result, as_json)


def _show(result: EvaluationResult, as_json: bool) -> None:
    from kernelwright.agent.runtime.errors import Exit
    from kernelwright.rl.command_line.show.resuming import STOPPED

    comparison = result.comparison
    if as_json:
        compared = {} if comparison is None else {"comparison": comparison.model_dump(mode="json")}
        typer.echo(json.dumps({**result.evaluation.model_dump(mode="json"), **compared}, indent=2))
    else:
        from kernelwright.agent.viewing.show.progress import console
        from kernelwright.rl.evaluating.show import evaluation_view

        console().print(evaluation_view(result))
    if result.interrupted:
        typer.echo(STOPPED, err=True)
        raise typer.Exit(int(Exit.INTERRUPTED))
    if result.evaluation.unfinished:
        raise typer.Exit(int(Exit.INFRASTRUCTURE))
    raise typer.Exit(
        int(Exit.INCORRECT if comparison is not None and comparison.is_worse else Exit.DONE)
    )
