"""Options shared by commands, with the same name, meaning and help panel in every command.

A group is a frozen dataclass whose fields are typer options. A command decorated with
`expand_groups` takes groups as parameters; on the command line each field of a group is an option
of its own. If a group has a PANEL, its options are listed there in `--help`.

Example: `def batch(search: SearchOptions, ...)` becomes a command with the options --search,
--width and --goal; the function receives `SearchOptions(search="beam", width=4, goal=None)`.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from kernelwright.agent.command_line.modes import Modes, names_of
from kernelwright.agent.command_line.policy.options import SamplingOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from kernelwright.agent.loop.settings import Settings
    from kernelwright.agent.loop.stopping import Budgets
    from kernelwright.agent.tuning.settings import PrecisionClass
    from kernelwright.policies.prices import Prices

SEARCH_PANEL = "Search and goal"
BUDGET_PANEL = "Budgets of one trajectory"
JUDGING_PANEL = "Judging"
OUTPUT_PANEL = "Database and output"
USUAL_TURNS = 10
"""Default of the maximum number of replies."""
MINUTES_UNSOLVED = 1.5
"""Minutes without a correct kernel after which `agent solve` stops asking the embedded policy,
unless the user sets a time: with the last verdict the command ends within two minutes.
"""

Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.", rich_help_panel=JUDGING_PANEL)]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="sm_80, 86, 89, 90, 100, 120, gfx942, or a card (a100, l4, rtx4090); several make a matrix. Without a GPU "
        "the least time that each allows for the problem is estimated.",
        rich_help_panel=JUDGING_PANEL,
    ),
]
TrainMode = Annotated[
    bool,
    typer.Option(
        "--train-mode",
        help="Refuse what draws random numbers as built.",
        rich_help_panel=JUDGING_PANEL,
    ),
]
OWN_WORK_OF_PARTIAL_DRAFTS = "share:0.01"
"""Rule of own work with `--partial`, which leaves operators to torch, unless another rule is set.
"""
OwnWork = Annotated[
    str,
    typer.Option(
        help="Share of the work that the candidate's own kernels must do: strict, share:P or report.",
        rich_help_panel=JUDGING_PANEL,
    ),
]
KernelBench = Annotated[
    Path | None,
    typer.Option(help="A KernelBench checkout or parquet file.", rich_help_panel=JUDGING_PANEL),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="The database: a file, or the URL of a server.",
        show_default=".kernelwright/runs.db",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object and nothing else.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show no progress on stderr.", rich_help_panel=OUTPUT_PANEL)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


@dataclass(frozen=True)
class SearchOptions:
    """Options for the choice of the next candidate, and for the end of the run."""

    search: Annotated[
        str, typer.Option(help="serial, best-of-n or beam.", rich_help_panel=SEARCH_PANEL)
    ] = "serial"
    width: Annotated[
        int,
        typer.Option(
            min=1, help="Drafts of best-of-n, width of the beam.", rich_help_panel=SEARCH_PANEL
        ),
    ] = 4
    goal: Annotated[
        str | None,
        typer.Option(
            help="correct, eager:1.2, compile:1.1 (over torch.compile) or sol:0.9 (of the speed of light).",
            show_default="sol:0.9 on a GPU, else correct",
            rich_help_panel=SEARCH_PANEL,
        ),
    ] = None


@dataclass(frozen=True)
class DraftOptions:
    """Options for the author of the first candidate."""

    draft: Annotated[
        str,
        typer.Option(
            help="Who writes the first candidate: auto (policy and compiler), policy, compiler, or a file with a "
            "kernel.",
            rich_help_panel=SEARCH_PANEL,
        ),
    ] = "auto"
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="An operator that the compiler has no kernel for stays in torch, and own work is judged by its share.",
            rich_help_panel=SEARCH_PANEL,
        ),
    ] = False


@dataclass(frozen=True)
class BudgetOptions:
    """Options for the budgets of a trajectory."""

    turns: Annotated[
        int, typer.Option(min=1, help="Replies to ask for at most.", rich_help_panel=BUDGET_PANEL)
    ] = USUAL_TURNS
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of prompts and replies together.", rich_help_panel=BUDGET_PANEL
        ),
    ] = None
    max_usd: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Dollars; needs a policy whose price is known.",
            rich_help_panel=BUDGET_PANEL,
        ),
    ] = None
    max_gpu_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Seconds that the candidates may take of a GPU.",
            rich_help_panel=BUDGET_PANEL,
        ),
    ] = None
    max_minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Minutes of wall-clock time. With the policy that ships, agent solve gives up after "
            f"{MINUTES_UNSOLVED} without a correct kernel unless this, or more than {USUAL_TURNS} turns, is given; "
            "0 is no limit.",
            rich_help_panel=BUDGET_PANEL,
        ),
    ] = None

    def bounds_time(self) -> bool:
        """Returns whether the user has set a time: in minutes, or with more turns than the
        default.
        """
        return self.max_minutes is not None or self.turns > USUAL_TURNS

    def check_policy(self, policy: str, prices: Prices) -> None:
        """Raises InputError for a budget without an effect on this policy."""
        from kernelwright.errors import InputError
        from kernelwright.policies.server_names import server_name

        if not self.max_usd:
            return
        name = server_name(policy)
        if name is None:
            raise InputError(
                f"--max-usd bounds nothing with {policy}, which costs nothing: leave it out, or bound the run by "
                "--turns, --max-tokens or --max-minutes"
            )
        unpriced = [url for url in name.urls if prices.of(url, name.model) is None]
        if unpriced:
            raise InputError(
                f"--max-usd needs a price, and none is known for {name.model} at {unpriced[0]}: give one with --prices "
                "FILE, or bound the run by --turns or --max-tokens"
            )

    def budgets(self) -> Budgets:
        """Returns the budgets as a value. A limit of zero is no limit."""
        from kernelwright.agent.loop.stopping import Budgets

        return Budgets(
            turns=self.turns,
            tokens=self.max_tokens,
            dollars=self.max_usd or None,
            gpu_seconds=self.max_gpu_seconds or None,
            minutes=self.max_minutes or None,
        )


@dataclass(frozen=True)
class JudgingOptions:
    """Options for the device, the targets and the strictness of the judge."""

    target: Targets = None
    device: Device = "auto"
    own_work: OwnWork = "strict"
    train_mode: TrainMode = False

    def rule_of_own_work(self, partial: bool) -> str:
        """Returns the checked rule. Raises InputError."""
        from kernelwright.agent.runtime.arguments import own_work_mode

        if partial and self.own_work == "strict":
            return OWN_WORK_OF_PARTIAL_DRAFTS
        return own_work_mode(self.own_work)


SEARCH_MODES = Modes(
    {"--search serial": (), "--search best-of-n": ("width",), "--search beam": ("width",)}
)
DEVICES = Modes({"a judge on a CPU": (), "a judge on a GPU": ("max_gpu_seconds", "precision")})
POLICY_MODES = Modes(
    {
        "--policy compiler": (),
        "a model": {"turns", "max_tokens", "search", *names_of(SamplingOptions)},
    }
)
"""The policy `compiler` writes one candidate without a model: nothing is sampled or repeated."""


def refuse_unused_options(context: typer.Context, settings: Settings, policy: str) -> None:
    """Raises InputError for typed options unused by the search, the device or the policy."""
    SEARCH_MODES.refuse_unused(context, f"--search {settings.search}")
    DEVICES.refuse_unused(context, f"a judge on a {'CPU' if settings.device == 'cpu' else 'GPU'}")
    POLICY_MODES.refuse_unused(context, "--policy compiler" if policy == "compiler" else "a model")


class RemoteDevice(NamedTuple):
    """The device of a judge on another machine."""

    device: str
    """Name of the device there: `cpu`, `cuda:0` and so on."""
    target: str
    """Compilation target of the device, such as `sm_90`."""


def settings_of(
    policy: str,
    sampling: SamplingOptions,
    search: SearchOptions,
    budget: BudgetOptions,
    judging: JudgingOptions,
    drafting: DraftOptions,
    remote: RemoteDevice | None = None,
    tune: bool = False,
    precision: str = "",
) -> Settings:
    """Returns the checked settings of a run. Raises InputError for an invalid value.

    remote: device of the judges if they are on another machine.

    The policy `compiler` has only one answer, so its runs have one turn.
    """
    from kernelwright.agent.command_line.search_arguments import choose_goal, choose_search
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.agent.runtime.arguments import choose_device, choose_targets
    from kernelwright.agent.solve.drafting import draft_kind

    budget.check_policy(policy, sampling.read_prices())
    extra = sampling.extra_fields(policy)
    device = choose_device(judging.device) if remote is None else remote.device
    own_target = [remote.target] if remote is not None else []
    budgets = budget.budgets()
    return Settings(
        policy=sampling.policy_label(policy),
        targets=choose_targets(judging.target or own_target, device),
        device=device,
        own_work=judging.rule_of_own_work(drafting.partial),
        train_mode=judging.train_mode,
        search=choose_search(search.search),
        samples=search.width,
        goal=choose_goal(search.goal, device),
        draft=draft_kind(drafting.draft, policy),
        partial=drafting.partial,
        tune=tune and device != "cpu",
        precision=precision_class(precision).value if precision else "",
        budgets=budgets.with_(turns=1) if policy == "compiler" else budgets,
        temperature=sampling.temperature,
        reply_tokens=sampling.reply_tokens,
        thinking=sampling.thinking,
        thinking_tokens=sampling.thinking_tokens,
        seed=sampling.seed,
        prompts=sampling.prompts,
        reasoning_effort=extra.reasoning_effort,
        extra_body=extra.body,
    )


def precision_class(name: str) -> PrecisionClass:
    """Parses `ieee`, `split` or `any`. Raises InputError."""
    from kernelwright.agent.tuning.settings import PrecisionClass
    from kernelwright.errors import InputError

    try:
        return PrecisionClass(name)
    except ValueError:
        raise InputError(f"--precision {name!r}: choose {', '.join(PrecisionClass)}") from None


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Gives typer a function with one parameter for each field of the groups that `command`
    takes.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    # typer reads the signature: a group is replaced by a keyword parameter for each of its fields.
    hints = get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        annotation = hints[parameter.name]
        if isinstance(annotation, type) and is_dataclass(annotation):
            groups[parameter.name] = annotation
            parameters += _parameters_of(annotation)
        else:
            parameters.append(
                parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY)
            )

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        group_values = {}
        for name, group in groups.items():
            field_values = {field.name: values.pop(field.name) for field in fields(group)}
            group_values[name] = group(**field_values)
        command(**values, **group_values)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _parameters_of(group: type[DataclassInstance]) -> list[inspect.Parameter]:
    """Returns a keyword parameter for each field of a group."""
    hints = get_type_hints(group, include_extras=True)
    panel = getattr(group, "PANEL", None)
    parameters = []
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        parameter = inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=_in_panel(hints[field.name], panel),
        )
        parameters.append(parameter)
    return parameters


def _in_panel(annotation: object, panel: str | None) -> Any:
    """Returns the annotation with its option in the group's help panel, unless the option names a
    panel itself.
    """
    kind, *metadata = get_args(annotation)
    copies = [copy.copy(item) for item in metadata]
    for item in copies:
        if isinstance(item, OptionInfo):
            item.rich_help_panel = item.rich_help_panel or panel
    return Annotated[kind, *copies]
