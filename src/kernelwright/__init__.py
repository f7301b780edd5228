"""Kernelwright writes Triton GPU kernels and judges them.

The public interface is what this module names. Everything else may change between releases.

    import kernelwright

    report = kernelwright.check("softmax_triton.py", "fused softmax")
    solved = kernelwright.solve("fused softmax", output="softmax_triton.py")
    solved = kernelwright.solve(MyBlock(64), [torch.randn(4, 64)], output="block_triton.py")

    with kernelwright.Judge(device="cuda:0") as judge:             # warm: many candidates of one problem
        futures = [judge.submit(problem, source) for source in sources]
        report = judge.evaluate(problem, source)

    async with kernelwright.Judge(device="cuda:0") as judge:       # the same in asyncio
        report = await judge.evaluate_async(problem, source)

    code = kernelwright.extract_code(completion)                   # a model's reply: fences, prose, thinking
    earned = kernelwright.reward(judge.evaluate(problem, code))

    faster, result = kernelwright.optimize(model.eval(), [tokens], output="model_optimized")
    kernelwright.load_optimized(model, "model_optimized")          # in place; restore(model) undoes it

    with kernelwright.JudgeClient("http://judge:8700") as client:  # `agent serve` on another machine
        verdict = client.score("fused softmax", source)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernelwright.agent.optimizing.result import OptimizationResult
    from kernelwright.agent.serving.client import JudgeClient
    from kernelwright.agent.serving.requests import Verdict
    from kernelwright.agent.solve.solving import Solved
    from kernelwright.store.database import Store
    from kernelwright.tools.evaluation.pipeline import Evaluator as Judge
    from kernelwright.tools.evaluation.pipeline import Options
    from kernelwright.tools.problem import Problem
    from kernelwright.tools.report import Report

__all__ = [
    "Judge", "JudgeClient", "Options", "Problem", "Report", "Solved", "Store", "Verdict", "__version__", "check",
    "extract_code", "find_problem", "load_optimized", "optimize", "restore", "reward", "solve",
]  # fmt: skip

IMPORT_TIME = time.monotonic()
"""The time at which this process began to import the package: of a command, all but the start of Python itself."""
_PLACES = {
    "Judge": "kernelwright.tools.evaluation.pipeline:Evaluator",
    "JudgeClient": "kernelwright.agent.serving.client:JudgeClient",
    "Options": "kernelwright.tools.evaluation.pipeline:Options",
    "Problem": "kernelwright.tools.problem:Problem",
    "Report": "kernelwright.tools.report:Report",
    "Solved": "kernelwright.agent.solve.solving:Solved",
    "Store": "kernelwright.store.database:Store",
    "Verdict": "kernelwright.agent.serving.requests:Verdict",
}


def find_problem(
    problem: str | Path | Problem | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    init: Sequence[Any] | Mapping[str, Any] | None = None,
    kernelbench: str | Path | None = None,
) -> Problem:
    """Finds a problem by what a user would type, or makes one of a module, a class of modules or a function.

    Args:
        problem: A sentence that names a problem of the catalogue ("fused softmax"), the path of a Python file or a
            notebook (`model.py`, `model.py:Block`), a dotted name (`torch.nn:GELU`), `kernelbench:LEVEL/NUMBER`, a
            `Problem`, or an object: a module, a class of modules, a function.
        inputs: Example inputs of an object, as a list or by name: tensors of their shapes, dtypes and ranges are drawn.
            For a name, what `--input` takes: `["x=2x128x512:bf16"]`.
        init: Arguments of the constructor, as a list or by name. None reads them from the attributes of a module. For a
            name, what `--init` takes. Weights are drawn as the constructor draws them.
        kernelbench: A checkout or a parquet file of KernelBench, which `kernelbench:` problems need.

    Raises:
        ProblemError: Nothing of that name exists, or it is not a problem. The message says what to do.
    """
    from kernelwright.agent.problems.finding import find_by_name, problem_of_value
    from kernelwright.tools.problem import Problem

    if isinstance(problem, Problem):
        return problem
    if not isinstance(problem, str | Path):
        return problem_of_value(problem, inputs, init)
    return find_by_name(
        str(problem), kernelbench=kernelbench, init=_options(init), inputs=_options(inputs)
    )


def _options(arguments: Sequence[Any] | Mapping[str, Any] | None) -> list[str]:
    """Returns arguments of a problem that is named, as the command line takes them."""
    if isinstance(arguments, Mapping):
        return [f"{name}={value}" for name, value in arguments.items()]
    return [str(value) for value in arguments or ()]


def check(
    candidate: str | Path,
    problem: str | Path | Problem | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    init: Sequence[Any] | Mapping[str, Any] | None = None,
    device: str = "auto",
    seed: int | None = None,
    sizes: int | None = None,
    own_work: str = "strict",
    options: Options | None = None,
) -> Report:
    """Judges one candidate kernel against a problem, as the command `agent check` does.

    The candidate's host code is traced in a sandbox on tensors without values; what it launches is compiled from its
    text and replayed by trusted code, at several sizes and on several distributions of inputs.

    Args:
        candidate: The path of a Python file that defines `ModelNew`, or that file's text.
        problem: What `find_problem` takes: a name, a file, a `Problem`, a module, a class of modules, a function.
        inputs: Example inputs of a module or a function.
        init: Arguments of the constructor.
        device: `auto` (the first GPU where there is one), `cpu` (Triton's interpreter at small sizes, nothing is
            timed) or `cuda:N`.
        seed: Repeats the verdict that reported this seed. None draws a new one.
        sizes: The number of other sizes that the candidate is checked at. None takes the default of `Options`.
        own_work: What the candidate's own kernels must do: `strict` (everything), `share:P` (at least the share P of
            the work, from 0 to 1) or `report` (nothing, the share is only reported).
        options: All other settings of a verdict; the arguments above replace theirs. None takes the defaults.

    Returns:
        The report. A broken candidate is a value, never an exception: `report.correct` and `report.failure` say what
        was found, and times are in milliseconds.

    Raises:
        ProblemError: The reference itself cannot be used.
        InfrastructureError: This machine could not make a verdict (no such GPU, no sandbox, a full disk).
        OSError: The candidate's file cannot be read.
    """
    from kernelwright.agent.runtime.arguments import choose_device, own_work_mode
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

    settings = (options or Options()).with_(own_work=own_work_mode(own_work))
    if seed is not None:
        settings = settings.with_(seed=seed)
    if sizes is not None:
        settings = settings.with_(sizes=sizes)
    chosen = find_problem(problem, inputs, init=init)
    is_text = isinstance(candidate, str) and "\n" in candidate
    text = str(candidate) if is_text else Path(candidate).read_text(encoding="utf-8")
    with Evaluator(device=choose_device(device), workers=1) as judge:
        return judge.evaluate(chosen, text, settings)


def extract_code(completion: str) -> str:
    """Returns the Python program in a model's reply.

    Args:
        completion: The reply: a file as it is, or text with fenced blocks; a part that the model thought before it
            answered is skipped.

    Returns:
        The program's text; empty where the reply holds none. The judge calls an empty text `no_code`.
    """
    from kernelwright.tools.markdown.fenced_code import extract_code as extract

    return extract(completion)


def reward(report: Report, formula: str = "execution", *, is_cut_off: bool = False) -> float | None:
    """Returns what a verdict earns. The same report and formula always earn the same.

    Args:
        report: The judge's report on one candidate.
        formula: `execution` (1 for a correct kernel, a little for what leads there, less than 0 for a cheat), `default`
            (with the speed that a GPU measured), another preset of `rl rewards --presets`, or the path of a .json file
            with the weights of a formula.
        is_cut_off: The reply ended at the limit of its tokens.

    Returns:
        The reward, or None where the sample is to be left out: the problem is passed by zeros or a constant, or the
        formula rejects the sample. Speed counts only where a GPU judged.

    Raises:
        InputError: There is no such formula.
    """
    from kernelwright.agent.rewards.formula import find_formula
    from kernelwright.agent.rewards.scoring import ReplyForm, score
    from kernelwright.policies.base import FinishReason

    reply = ReplyForm(finish=FinishReason.LENGTH if is_cut_off else FinishReason.STOP)
    scored = score(find_formula(formula), report, reply)
    return scored.total if scored.kept and not report.degenerate else None


def solve(
    problem: str | Path | Problem | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    init: Sequence[Any] | Mapping[str, Any] | None = None,
    output: str | Path,
    policy: str = "embedded",
    device: str = "auto",
    turns: int = 10,
    database: str | None = None,
) -> Solved:
    """Writes a kernel for one problem, as the command `agent solve` does: draft, judge, repair, refine.

    Args:
        problem: What `find_problem` takes: a name, a file, a `Problem`, a module, a class of modules, a function.
        inputs: Example inputs of a module or a function.
        init: Arguments of the constructor.
        output: The file that the best kernel is written to.
        policy: Who writes: `embedded` (the policy that ships; no key, no download), `compiler` (torch's compiler, no
            model), `openai:MODEL@URL`, `anthropic:MODEL` (keys are read from the environment, as the command does),
            `vllm:PATH`, `transformers:PATH` or `scripted:FILE`. torch's compiler drafts beside all but a script.
        device: `auto`, `cpu` or `cuda:N`.
        turns: The most replies that the policy is asked for.
        database: Where the trajectory is kept; None keeps it in `.kernelwright/runs.db`.

    Returns:
        How the run ended: whether a correct kernel was found, its speedup over eager, and the report.

    Raises:
        ProblemError: The reference cannot be used.
        PolicyError: The policy cannot be opened.
        StoreError: The database cannot be used.
        InfrastructureError: This machine could not run the tools.
    """
    from kernelwright.agent.command_line.options import (
        BudgetOptions,
        JudgingOptions,
        SamplingOptions,
    )
    from kernelwright.agent.command_line.solve import solve_settings
    from kernelwright.agent.solve.solving import solve_problem

    chosen = find_problem(problem, inputs, init=init)
    sampling = SamplingOptions()
    settings = solve_settings(
        policy, sampling, BudgetOptions(turns=turns), JudgingOptions(device=device)
    )
    opened = sampling.open_policy(policy)
    try:
        return solve_problem(
            chosen,
            opened,
            settings,
            db=database,
            output=Path(output),
            watch=lambda *_: None,
            say=lambda _: None,
        )
    finally:
        opened.close()


def optimize(
    model: torch.nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    *,
    output: str | Path,
    budget: float = 30.0,
    gradients: bool = False,
    database: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[torch.nn.Module, OptimizationResult]:
    """Replaces modules of a model by kernels that are judged right and, on a GPU, are faster.

    Args:
        model: A module in eval mode, on the device that it will run on. It stays as it is.
        example_inputs: The arguments of a call, as a list or by name.
        output: A new folder for the package of the kernels.
        budget: Minutes for all regions together.
        gradients: Compare gradients of the whole model, too. A module runs as it was wherever gradients are recorded.
        database: Where the regions' trajectories are kept; None keeps them in `.kernelwright/runs.db`.
        progress: Called with each step.

    Returns:
        A copy of the model that runs the kernels, with the same state_dict, and what became of each region.

    Raises:
        InputError: The model is in training mode, or the folder exists.
        InfrastructureError: This machine could not run the tools, or the whole model differs with its kernels.
    """
    from kernelwright.agent.command_line.optimize import region_solver
    from kernelwright.agent.optimizing.optimize import optimize_model

    device = next((str(weight.device) for weight in model.parameters()), "cpu")
    inputs = dict(example_inputs) if isinstance(example_inputs, Mapping) else list(example_inputs)
    return optimize_model(
        model,
        inputs,
        region_solver(device, database, progress),
        name=type(model).__name__.lower(),
        folder=Path(output),
        database=database,
        seconds=budget * 60,
        gradients=gradients,
        say=progress,
    )


def load_optimized(model: torch.nn.Module, folder: str | Path) -> torch.nn.Module:
    """Replaces modules of a model by the kernels that `optimize` wrote, in place.

    Args:
        model: A model of the same classes and sizes.
        folder: The package's folder.

    Returns:
        The model itself.

    Raises:
        InputError: The folder holds no such package, or the model has other modules.
    """
    from kernelwright.agent.optimizing.model_package import load_optimized as load

    return load(model, folder)


def restore(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes `load_optimized`: every module runs its own forward again.

    Args:
        model: The model.

    Returns:
        The model itself.
    """
    from kernelwright.agent.optimizing.model_package import restore as undo

    return undo(model)


def __getattr__(name: str) -> Any:
    """The classes, imported when they are first asked for: `import kernelwright` costs nothing."""
    if name == "__version__":
        return metadata.version("kernelwright")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
