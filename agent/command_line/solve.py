"""Defines `agent solve`, which writes a kernel for a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.options import (
    JUDGING_PANEL,
    MINUTES_UNSOLVED,
    OUTPUT_PANEL,
    OWN_WORK_OF_PARTIAL_DRAFTS,
    SEARCH_PANEL,
    AsJson,
    BudgetOptions,
    Database,
    Debug,
    DraftOptions,
    JudgingOptions,
    KernelBench,
    Quiet,
    SearchOptions,
    expand_groups,
    refuse_unused_options,
    settings_of,
)
from kernelwright.agent.command_line.policy.options import PolicyName, SamplingOptions
from kernelwright.agent.command_line.problems import ENTRY_PANEL, Init, Inputs, find_named

if TYPE_CHECKING:
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.policies.base import Policy
    from kernelwright.policies.prices import Prices
    from kernelwright.tools.problem import Problem

Named = Annotated[
    str,
    typer.Argument(
        help='"fused softmax", model.py[:Class], notebook.ipynb, torch.nn:GELU or kernelbench:1/23.',
        show_default=False,
    ),
]
KernelFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="The file for the best kernel.",
        show_default="PROBLEM_triton.py",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune/--no-tune",
        help="Tune the numbers of a correct kernel (on a GPU).",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Variants = Annotated[
    int,
    typer.Option(
        "--variants",
        min=0,
        help="Further plans of the compiler's decisions that are drafted and judged; the best is taken.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
OwnWorkOrAuto = Annotated[
    str,
    typer.Option(
        help="Share of the work that own kernels must do: strict, share:P, report, or auto: the faster of strict and "
        "report.",
        rich_help_panel=JUDGING_PANEL,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="Products of fp32: ieee, split (also bf16x3 and tf32x3), or any (also tf32).",
        show_default="split; any where the problem convolves",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Backward = Annotated[
    bool,
    typer.Option(
        "--backward",
        help="Write kernels of the gradients, too: judged as a problem of their own.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        "--shapes",
        metavar="FILE.json",
        help="Calls that the kernel is for: a list of sizes or of input shapes, each judged and timed. Default: the "
        "file's get_inputs, and its get_inputs_NAME if it has any.",
        rich_help_panel=ENTRY_PANEL,
    ),
]
Dtypes = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="LIST",
        help="Dtypes of the module and its floating inputs, each judged and timed: bf16,fp16,fp32.",
        show_default="as the problem has them",
        rich_help_panel=ENTRY_PANEL,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Try the reference, print the prompt, the plan and an estimate, and do nothing else.",
    ),
]


@dataclass(frozen=True)
class SolveJudgingOptions(JudgingOptions):
    """Options for the judge of a run, the rule of own work included."""

    own_work: OwnWorkOrAuto = "auto"

    def rule_of_own_work(self, partial: bool) -> str:
        """Returns the checked rule, or `auto`. Raises InputError."""
        if self.own_work == "auto":
            return OWN_WORK_OF_PARTIAL_DRAFTS if partial else "auto"
        return super().rule_of_own_work(partial)


@expand_groups
def solve(
    context: typer.Context,
    problem: Named,
    sampling: SamplingOptions,
    search: SearchOptions,
    budget: BudgetOptions,
    judging: SolveJudgingOptions,
    drafting: DraftOptions,
    init: Init = None,
    inputs: Inputs = None,
    shapes: Shapes = None,
    dtype: Dtypes = None,
    policy: PolicyName = "embedded",
    tune: Tune = True,
    variants: Variants = 0,
    precision: Precision = None,
    backward: Backward = False,
    kernelbench: KernelBench = None,
    db: Database = None,
    out: KernelFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a kernel for one problem: draft, judge, repair, refine, until the goal is reached or a
    budget is spent.

    Ctrl-C or SIGTERM pauses, and the same command goes on at the exact turn. Exits with 0 for a
    correct kernel, 1 without one, 2 if you must change something, 3 for a failure of this machine,
    130 (SIGTERM: 143) if paused.
    """
    from kernelwright.agent.problems.finding import refuse_unused_checkouts

    refuse_unused_checkouts(problem, kernelbench=kernelbench)
    chosen_problem = find_named(
        problem, kernelbench=kernelbench, init=init or (), inputs=inputs or ()
    )
    for_one_shape = "--backward" if backward else "--variants" if variants else ""
    chosen_problem = _with_shapes(chosen_problem, shapes, dtype, for_one_shape, quiet)
    settings = solve_settings(
        policy, sampling, budget, judging, search, drafting, tune=tune, precision=precision or "",
        variants=variants,
    )  # fmt: skip
    refuse_unused_options(context, settings, policy)
    if dry_run:
        return _show_plan(
            chosen_problem,
            sampling.open_unchecked(policy),
            settings,
            sampling.read_prices(),
            out,
            as_json,
            quiet,
        )
    if backward:
        return finish_backward(
            chosen_problem,
            lambda: sampling.open_policy(policy),
            settings,
            db=db,
            out=out,
            as_json=as_json,
            quiet=quiet,
        )
    return finish_solve(
        chosen_problem,
        sampling.open_policy(policy),
        settings,
        db,
        out,
        as_json,
        quiet=quiet,
        cards=judging.target,
    )


def _with_shapes(
    problem: Problem, shapes: str | None, dtypes: str | None, for_one_shape: str, quiet: bool
) -> Problem:
    """Returns the problem with the shapes and dtypes that the user asks for; unchanged without any.

    for_one_shape: an option in use that knows only the problem's own shape, such as `--backward`;
    empty for none. Raises InputError if it meets --shapes or --dtype.
    """
    from kernelwright.agent.problems.other_inputs import has_other_inputs
    from kernelwright.agent.shapes.shape_file import read_dtypes, read_shapes
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.errors import InputError

    wanted = read_shapes(shapes) if shapes is not None else ()
    names = read_dtypes(dtypes) if dtypes is not None else ()
    if for_one_shape and (wanted or names):
        raise InputError(
            f"{for_one_shape} goes with the problem's own shape: leave out --shapes and --dtype"
        )
    if for_one_shape or not (wanted or names or has_other_inputs(problem)):
        return problem
    from kernelwright.agent.shapes.wanted_problem import problem_with_shapes

    with progress(quiet) as say:
        return problem_with_shapes(problem, wanted, names, say)


def solve_settings(
    policy: str,
    sampling: SamplingOptions,
    budget: BudgetOptions,
    judging: JudgingOptions,
    search: SearchOptions | None = None,
    drafting: DraftOptions | None = None,
    *,
    tune: bool = True,
    precision: str = "",
    variants: int = 0,
) -> Settings:
    """Returns the settings of a run, for the command and for `kernelwright.solve`. Raises
    InputError for an invalid value.

    With variants the compiler writes the first candidate.

    The embedded policy stops after MINUTES_UNSOLVED without a correct kernel, unless the user
    sets a time: later turns seldom solve an unsolved problem.
    """
    settings = settings_of(
        policy, sampling, search or SearchOptions(), budget, judging, drafting or DraftOptions(), tune=tune,
        precision=precision,
    )  # fmt: skip
    if variants:
        settings = _with_variants(settings, variants)
    if policy.startswith("embedded") and not budget.bounds_time():
        return settings.with_(budgets=settings.budgets.with_(minutes_unsolved=MINUTES_UNSOLVED))
    return settings


def _with_variants(settings: Settings, variants: int) -> Settings:
    """Returns settings whose first candidate is the best of several plans of the compiler. Raises InputError."""
    from kernelwright.agent.solve.drafting import DraftKind
    from kernelwright.errors import InputError

    if settings.draft not in (DraftKind.AUTO, DraftKind.COMPILER):
        raise InputError(
            f"--variants {variants}: plans are the compiler's: leave out --draft {settings.draft}"
        )
    return settings.with_(draft=DraftKind.COMPILER.value, variants=variants)


def _show_plan(
    problem: Problem, policy: Policy, settings: Settings, prices: Prices, out: Path | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    from kernelwright.agent.export.kernel_file import check_path, default_path
    from kernelwright.agent.solve.dry_run import dry_run
    from kernelwright.agent.viewing.show.progress import progress

    check_path(out or default_path(problem))
    try:
        with progress(quiet) as say:
            plan = dry_run(problem, policy, settings, prices, say=say)
    finally:
        policy.close()
    if as_json:
        typer.echo(plan.model_dump_json(indent=2))
        return
    from kernelwright.agent.viewing.show.outcomes import dry_run_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(dry_run_view(plan))


def finish_solve(
    problem: Problem, policy: Policy, settings: Settings, db: str | None, out: Path | None, as_json: bool,
    forked_from: int | None = None, quiet: bool = False, cards: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Solves with the live view, shows the result, and exits.

    forked_from: candidate after which the new trajectory branches off. cards: GPUs for the
    estimates of the speed of light on a machine without a GPU; None for the settings' targets.
    """
    from kernelwright.agent.export.kernel_file import check_path, default_path
    from kernelwright.agent.runtime.errors import command_seconds
    from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops
    from kernelwright.agent.solve.solving import solve_problem
    from kernelwright.agent.viewing.show.progress import live
    from kernelwright.tools.timing.card_estimates import estimate_cards

    path = check_path(out or default_path(problem))
    try:
        with announce_stops(PAUSING), live(quiet) as (watch, say):
            solved = solve_problem(
                problem,
                policy,
                settings,
                db=db,
                output=path,
                watch=watch,
                say=say,
                forked_from=forked_from,
            )
            if solved.correct and settings.device == "cpu":
                say("counting bytes and operations")
                solved = solved.with_(estimates=estimate_cards(problem, cards or settings.targets))
    finally:
        policy.close()
    solved = solved.with_(seconds=command_seconds())
    if as_json:
        typer.echo(solved.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.outcomes import solved_view
        from kernelwright.agent.viewing.show.progress import console

        console().print(solved_view(solved))
    raise typer.Exit(int(solved.exit))


def finish_backward(
    problem: Problem,
    open_policy: Callable[[], Policy],
    settings: Settings,
    *,
    db: str | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solves both problems with the live view, writes a file with both kernels, shows the results,
    and exits.
    """
    from kernelwright.agent.export.kernel_file import check_path, default_path
    from kernelwright.agent.gradients.solving import solve_with_gradients
    from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops
    from kernelwright.agent.viewing.show.progress import live

    path = check_path(out or default_path(problem))
    with announce_stops(PAUSING), live(quiet) as (watch, say):
        solved = solve_with_gradients(
            problem, open_policy, settings, db=db, output=path, watch=watch, say=say
        )
    if as_json:
        typer.echo(solved.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.outcomes import solved_view
        from kernelwright.agent.viewing.show.progress import console

        for each in (solved.forward, solved.gradients):
            if each is not None:
                console().print(solved_view(each))
        console().print(f"gradients  {solved.facts.differences_line}", soft_wrap=True)
    raise typer.Exit(int(solved.exit))
