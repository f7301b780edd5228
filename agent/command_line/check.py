"""Defines `agent check`, which judges a kernel against a problem."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.judges import Server, judge_at_server
from kernelwright.agent.command_line.modes import Modes
from kernelwright.agent.command_line.options import Quiet, Targets
from kernelwright.agent.command_line.problems import Init, Inputs, find_named

if TYPE_CHECKING:
    from kernelwright.agent.reporting.verdicts.trace import CandidateTrace
    from kernelwright.tools.options import Options
    from kernelwright.tools.problem import Problem
    from kernelwright.tools.report import Failure, Report
    from kernelwright.tools.timing.card_estimates import CardEstimate

Kernel = Annotated[
    Path,
    typer.Argument(
        help="The candidate: a Python file with `class ModelNew`, or FILE:NAME for a function that launches kernels.",
        show_default=False,
    ),
]
_PROBLEM = typer.Option(
    "--problem",
    "-p",
    help='"fused softmax", model.py[:Class], notebook.ipynb, torch.nn:GELU or kernelbench:1/23.',
    show_default=False,
)
Named = Annotated[str, _PROBLEM]
NamedHere = Annotated[str | None, _PROBLEM]
"""The problem's option; if it is missing, the error lists the possible values."""
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.")]
OwnWork = Annotated[
    str, typer.Option(help="What its own kernels must do: strict, share:P or report.")
]
TrainMode = Annotated[
    bool,
    typer.Option(
        "--train-mode",
        help="Judge a module that draws random numbers in training mode (dropout) as it is built, and refuse it; "
        "otherwise it is judged in eval mode.",
    ),
]
ContiguousInputs = Annotated[
    bool,
    typer.Option(
        "--contiguous-inputs/--other-layouts",
        help="Accept a kernel that is right on contiguous inputs alone, and say so; --other-layouts refuses one that "
        "answers wrongly on transposed, sliced or expanded inputs.",
    ),
]
KernelBench = Annotated[Path | None, typer.Option(help="A KernelBench checkout or parquet file.")]
TritonBench = Annotated[
    Path | None, typer.Option(help="A TritonBench checkout, for tritonbench-t:NAME.")
]
Profile = Annotated[
    bool, typer.Option("--profile/--no-profile", help="Measure its speed (needs a GPU).")
]
Ncu = Annotated[
    bool, typer.Option("--ncu", help="Read hardware counters with NVIDIA Nsight Compute.")
]
Sanitizer = Annotated[
    bool, typer.Option("--sanitizer", help="Run under NVIDIA compute-sanitizer too.")
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="A folder to keep verdicts in, and to take them from."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="Repeats the verdict that told this seed, exactly.", show_default="drawn anew"
    ),
]
Sizes = Annotated[
    int, typer.Option(min=0, max=64, help="Other sizes than its own at which it must be right.")
]
AllowImport = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-import", metavar="NAME[,NAME]", help="Installed packages whose kernels it may use."
    ),
]
ShowTrace = Annotated[
    bool, typer.Option("--show-trace", help="Print what its host code asks for too, step by step.")
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain", help="Print the draws, sizes and comparisons that the verdict was made of too."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="The report as one JSON object and nothing else.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]

CHECK_MODES = Modes({"--server": ("server",), "a judge on this machine": ("show_trace", "cache")})
"""A judge service shows no trace, and keeps every verdict itself."""
OUTPUT_OPTIONS = ("seed", "show_trace", "explain", "quiet", "as_json", "debug")
"""Options left out of the repeated command: the seed, and options with an effect on the output
only.
"""


def check(
    context: typer.Context, kernel: Kernel, problem: NamedHere = None, target: Targets = None, device: Device = "auto",
    init: Init = None, inputs: Inputs = None, own_work: OwnWork = "strict", train_mode: TrainMode = False,
    contiguous_inputs: ContiguousInputs = True,
    seed: Seed = None, sizes: Sizes = 8, allow_import: AllowImport = None, kernelbench: KernelBench = None,
    tritonbench: TritonBench = None, profile: Profile = True, ncu: Ncu = False, sanitizer: Sanitizer = False,
    show_trace: ShowTrace = False, explain: Explain = False, cache: Cache = None, server: Server = None,
    quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Judge one kernel: compilation, correctness, own work, speed.

    Exits with 0 only for a correct kernel that does its own work, 1 if it is not, 2 for unusable
    input, 3 for a failure of this machine; with nothing wrong so far, 4 if only a GPU can check the
    answers, 5 if they were unchecked.
    """
    from kernelwright.agent.candidates.bare_functions import as_candidate, split_name
    from kernelwright.agent.candidates.candidate_files import read_candidate
    from kernelwright.agent.runtime.arguments import (
        choose_device,
        choose_targets,
        own_work_mode,
    )
    from kernelwright.agent.runtime.output_files import refuse_unwritable_folder
    from kernelwright.tools.options import Options

    if cache is not None:
        refuse_unwritable_folder(cache, "--cache")
    file, function = split_name(kernel)
    text = read_candidate(file)
    name = named_problem(problem, kernel, kernelbench, tritonbench)
    chosen_problem = find_named(
        name, kernelbench=kernelbench, tritonbench=tritonbench, init=init or (), inputs=inputs or ()
    )
    source = as_candidate(text, file, function, chosen_problem)
    own_work_rule = own_work_mode(own_work)
    trace: CandidateTrace | None = None
    estimates: tuple[CardEstimate, ...] = ()
    if server is not None:
        CHECK_MODES.refuse_unused(context, "--server")
        request = {
            "own_work": own_work_rule, "profile": profile, "torch_compile": True, "ncu": ncu, "sanitizer": sanitizer,
            "seed": seed, "sizes": sizes, "targets": target, "allow_import": allow_import or (),
            "train_mode": train_mode, "contiguous_inputs": contiguous_inputs,
        }  # fmt: skip
        report = judge_at_server(server, chosen_problem, source, device, request, quiet)
    else:
        packages = allowed_packages(allow_import or [])
        chosen_device = choose_device(device)
        refuse_gpu_tools_on_cpu(chosen_device, ncu, sanitizer)
        options = Options(
            targets=choose_targets(target or [], chosen_device), own_work=own_work_rule, profile=profile, ncu=ncu,
            sanitizer=sanitizer, seed=seed, sizes=sizes, allow_import=packages, train_mode=train_mode,
            contiguous_inputs=contiguous_inputs,
        )  # fmt: skip
        report, trace = _judge_here(
            chosen_problem, source, chosen_device, options, cache, show_trace, quiet
        )
        if chosen_device == "cpu" and (report.correct or target):
            estimates = _estimates(chosen_problem, target or options.targets, quiet)
    command = command_without_output_options(context)
    _show(report, trace, source, command, as_json, estimates, chosen_problem.taken_for, explain)
    raise typer.Exit(exit_status(report))


def exit_status(report: Report) -> int:
    """Returns the exit status of `agent check` for a report."""
    from kernelwright.agent.runtime.errors import exit_of_outcome

    return int(exit_of_outcome(report.outcome))


def named_problem(
    problem: str | None,
    kernel: Path,
    kernelbench: Path | None = None,
    tritonbench: Path | None = None,
) -> str:
    """Returns the problem of `--problem`. Raises InputError if the option is missing, and
    ProblemError for the checkout of another suite.
    """
    from kernelwright.agent.problems.finding import refuse_unused_checkouts
    from kernelwright.errors import InputError

    if problem is None:
        raise InputError(
            f"nothing says what {kernel} should compute: add --problem with a file such as model.py, or with a name "
            "that `agent problems` lists"
        )
    refuse_unused_checkouts(problem, kernelbench=kernelbench, tritonbench=tritonbench)
    return problem


def refuse_gpu_tools_on_cpu(device: str, ncu: bool, sanitizer: bool) -> None:
    """Raises InputError for a set option that needs a GPU, if the device is the CPU."""
    from kernelwright.errors import InputError

    gpu_options = [name for name, chosen in (("--ncu", ncu), ("--sanitizer", sanitizer)) if chosen]
    if device == "cpu" and gpu_options:
        raise InputError(
            f"{' and '.join(gpu_options)} {'needs' if len(gpu_options) == 1 else 'need'} a GPU: "
            "use --device cuda:0 on a machine with one, or leave it out"
        )


def command_without_output_options(context: typer.Context) -> str:
    """Returns the typed command without its seed and without output options, ready for an appended
    `--seed N`.
    """
    words = ["agent", "check"]
    for parameter in context.command.params:
        name = parameter.name or ""
        origin = context.get_parameter_source(name)
        if name in OUTPUT_OPTIONS or origin is None or origin.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if isinstance(value, bool):
            # A switch that is off is repeated by its negative name, such as --no-profile.
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
            continue
        option = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [*option, str(item)]
    return shlex.join(words)


def allowed_packages(arguments: Sequence[str]) -> tuple[str, ...]:
    """Returns the packages of `--allow-import`, each once: comma-separated or repeated.

    Raises InputError for a package that is not installed.
    """
    from importlib.util import find_spec

    from kernelwright.errors import InputError

    names = [name.strip() for part in arguments for name in part.split(",") if name.strip()]
    for name in names:
        if "." in name:
            raise InputError(
                f"--allow-import {name}: give the whole package, {name.partition('.')[0]}"
            )
        if not name.isidentifier() or find_spec(name) is None:
            raise InputError(
                f"--allow-import {name}: no package of that name is installed here: pip install it (-e for "
                "your own), or put its folder on "
                "PYTHONPATH"
            )
    return tuple(dict.fromkeys(names))


def _runs(failure: Failure | None) -> bool:
    """Returns whether Python can parse the text; its other faults are ignored."""
    from kernelwright.tools.report import Fault

    return failure is None or failure.fault not in (Fault.SYNTAX, Fault.NO_CODE)


def _unreadable(problem: Problem, source: str, failure: Failure) -> Report:
    """Returns the report of a text that cannot be a candidate; no process is started."""
    from kernelwright.tools.report import Report
    from kernelwright.tools.source import advice, candidate_hash

    return Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=candidate_hash(source),
        failure=failure,
        advice=advice(source),
    )


def _judge_here(
    problem: Problem, source: str, device: str, options: Options, cache: Path | None, show_trace: bool, quiet: bool
) -> tuple[Report, CandidateTrace | None]:  # fmt: skip
    """Returns the report, and the trace if `show_trace` is set.

    No judge is started for a text that cannot be a candidate.
    """
    from kernelwright.tools.source import read_source

    failure = read_source(source, options.allow_import)
    if failure is None:
        return _judge(problem, source, device, options, cache, show_trace, quiet=quiet)
    trace = None
    if show_trace and _runs(failure):
        target, packages = options.targets[0], options.allow_import
        trace = _trace(problem, source, target, device, packages, quiet=quiet)
    return _unreadable(problem, source, failure), trace


def _judge(
    problem: Problem, source: str, device: str, options: Options, cache: Path | None, show_trace: bool, quiet: bool
) -> tuple[Report, CandidateTrace | None]:  # fmt: skip
    """Returns the report, and the trace if `show_trace` is set: the same warm processes make
    both.
    """
    from kernelwright.agent.runtime.interrupts import defer_interrupts
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.tools.evaluation.pipeline import Evaluator
    from kernelwright.tools.reference_trials.trials import reference_trials

    reference_trials().begin()
    with progress(quiet) as say, Evaluator(device=device, cache_dir=cache) as evaluator:
        say("starting the tools")
        with defer_interrupts():
            # Imported while the evaluator's processes warm up.
            import torch  # noqa: F401
        trace = None
        if show_trace:
            from kernelwright.agent.reporting.verdicts.host_trace import trace_host_code

            say("running the reference")
            reference_trials().require_working(
                problem, train_mode=options.train_mode, may_be_random=True
            )
            say("tracing the host code")
            warm = evaluator.front().zygote
            trace = trace_host_code(
                problem, source, options.targets[0], device, options.allow_import, warm
            )
        return evaluator.evaluate(problem, source, options, progress=say), trace


def _trace(
    problem: Problem, source: str, target: str, device: str, packages: tuple[str, ...], quiet: bool
) -> CandidateTrace:  # fmt: skip
    from kernelwright.agent.reporting.verdicts.host_trace import trace_host_code
    from kernelwright.agent.runtime.interrupts import defer_interrupts
    from kernelwright.agent.viewing.show.progress import progress

    with progress(quiet) as say:
        say("tracing the host code")
        with defer_interrupts():
            # Ctrl-C in the middle of this import would abort the process.
            import torch  # noqa: F401
        return trace_host_code(problem, source, target, device, packages)


def _estimates(problem: Problem, cards: Sequence[str], quiet: bool) -> tuple[CardEstimate, ...]:
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.tools.timing.card_estimates import estimate_cards

    with progress(quiet) as say:
        say("counting bytes and operations")
        return estimate_cards(problem, cards)


def _show(
    report: Report, trace: CandidateTrace | None, source: str, command: str, as_json: bool,
    estimates: Sequence[CardEstimate] = (), taken_for: str = "", explain: bool = False,
) -> None:  # fmt: skip
    """Prints the trace, the report and the estimates.

    The JSON object is the report with the keys `trace`, if there is one, `estimates`, if nothing
    was timed, and `taken_for`, if the problem's name only resembles the typed name.
    """
    if as_json:
        shown = json.loads(report.model_dump_json())
        if trace is not None:
            shown["trace"] = json.loads(trace.model_dump_json())
        if taken_for:
            shown["taken_for"] = taken_for
        if estimates:
            shown["estimates"] = [json.loads(estimate.model_dump_json()) for estimate in estimates]
        typer.echo(json.dumps(shown, indent=2))
        return
    from kernelwright.agent.reporting.verdicts.verdict import report_view
    from kernelwright.agent.runtime.errors import command_seconds
    from kernelwright.agent.viewing.show.progress import console

    if trace is not None:
        from kernelwright.agent.reporting.verdicts.trace import trace_view
        from kernelwright.tools.judging.own_work import kind_of

        console().print(trace_view(trace, source, kind_of), "")
    console().print(report_view(report, command, command_seconds()))
    if explain:
        from kernelwright.agent.reporting.verdicts.explanation import explanation_view

        console().print("", explanation_view(report))
    if estimates:
        from kernelwright.agent.reporting.verdicts.measurements import estimates_view

        console().print(estimates_view(estimates))
