"""Drafts plans of the compiler's decisions over many problems, judges every draft, and on a GPU times it.

    PYTHONPATH=src:. python -m bench.plans [--set development|kept] [--device cuda:0] [--variants 4] [--random 2]
        [--only NAME,...] [--out bench/results/plans.md]

The development set is the catalogue and half of the layers of bench.layer_suite; the kept set is the other half. On a
CPU layers have tiny sizes, and every draft is judged by the interpreter. A draft that is not correct is a bug of the
lowering: no decision may change a result. `--random` plans of one to four legal choices are drawn beside the most
promising ones.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.base import Value
from kernelwright.policies.inductor.decisions.plan import Plan
from kernelwright.policies.inductor.decisions.ranking import promising_plans
from kernelwright.policies.inductor.decisions.session import (
    LoweredPlan,
    PlanSession,
    without_plan_line,
)
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator

MAX_RANDOM_CHOICES = 4
SEED = 46


class PlanRow(Value):
    """A plan of a problem, and its verdict."""

    problem: str
    set: str
    plan: str
    chosen_by: str
    """`default`, `bytes` (the most promising) or `random`."""
    launches: int
    bytes: int
    operations: int
    open_decisions: int
    count_seconds: float | None = None
    """Median seconds of a count in the session; None in all rows but the default's."""
    lower_seconds: float
    verdict: str
    speedup: float | None = None
    """Over eager; on a GPU only."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bench. Returns 0, or 1 where a draft of a plan is not correct and the default's is."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    options = _options(arguments)
    rows: list[PlanRow] = []
    with (
        Drafter(seconds=options.draft_seconds) as drafter,
        Evaluator(device=options.device) as evaluator,
    ):
        for set_name, problem in _problems(options):
            try:
                rows += _rows_of(set_name, problem, drafter, evaluator, options)
            except Exception as error:  # the next problem is drafted all the same
                print(
                    f"{problem.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True
                )
            if options.out:
                _write(Path(options.out), rows, options)
    print(_summary(rows))
    return int(bool(_wrong(rows)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.plans", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--set", default="development", choices=["development", "kept"])
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N to time as well")
    parser.add_argument(
        "--size", default="", help="tiny, small or large; default: tiny on a CPU, large on a GPU"
    )
    parser.add_argument("--variants", type=int, default=4, help="most promising plans of a problem")
    parser.add_argument("--random", type=int, default=2, help="random legal plans of a problem")
    parser.add_argument("--only", default="", help="names of problems, separated by commas")
    parser.add_argument("--own-work", default="strict", choices=["strict", "report"])
    parser.add_argument("--draft-seconds", type=float, default=120.0)
    parser.add_argument(
        "--search-seconds", type=float, default=60.0, help="for counting and drafting a problem"
    )
    parser.add_argument("--out", default="", help="Markdown file; a JSON file is written beside it")
    return parser.parse_args(arguments)


def _problems(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    from bench.layer_suite.layer import LayerSize
    from bench.layer_suite.suite import LAYERS, Half, half_of_layers
    from kernelwright.agent.problems.finding import catalogue

    only = set(filter(None, options.only.split(",")))
    half = Half.DEVELOPMENT if options.set == "development" else Half.KEPT
    halves = half_of_layers()
    size = LayerSize(options.size or ("tiny" if options.device == "cpu" else "large"))
    if half is Half.DEVELOPMENT:
        for problem in catalogue():
            if not only or problem.name in only:
                yield "catalogue", problem
    for name, layer in LAYERS.items():
        if halves[name] is half and layer.installed and (not only or name in only):
            yield f"layers ({half})", Problem(name=name, source=layer.source(size))


def _rows_of(
    set_name: str,
    problem: Problem,
    drafter: Drafter,
    evaluator: Evaluator,
    options: argparse.Namespace,
) -> list[PlanRow]:
    on_gpu = options.device != "cpu"
    with drafter.open_plans(problem, options.own_work, tf32=on_gpu, split=on_gpu) as session:
        if session.default.refused:
            print(
                f"{problem.name}: no draft: {session.default.refused}", file=sys.stderr, flush=True
            )
            return []
        plans = promising_plans(session, options.variants, options.search_seconds)
        drawn = _random_plans(problem.name, session, plans, options.random)
        counts = session.count_seconds
    rows = []
    for number, plan in enumerate([*plans, *drawn]):
        chosen_by = "default" if not number else "bytes" if number < len(plans) else "random"
        verdict = Options(seed=1, sizes=0, own_work=options.own_work, torch_compile=False)
        report = evaluator.evaluate(problem, plan.draft.source, verdict)
        row = PlanRow(
            problem=problem.name, set=set_name, plan=str(plan.plan), chosen_by=chosen_by,
            launches=len(plan.facts.launches), bytes=plan.facts.bytes, operations=plan.facts.operations,
            open_decisions=len(session.default.choices), lower_seconds=plan.seconds, speedup=report.speedup,
            count_seconds=statistics.median(counts) if counts and not number else None,
            verdict="correct" if report.correct else " ".join(report.explanation.split())[:200],
        )  # fmt: skip
        print(f"{row.problem}: {row.plan}: {row.verdict} {row.speedup or ''}", flush=True)
        rows.append(row)
    return rows


def _random_plans(
    name: str, session: PlanSession, plans: Sequence[LoweredPlan], count: int
) -> list[LoweredPlan]:
    """Draws distinct drafts of one to four random legal choices."""
    draw = random.Random(f"{SEED} {name}")
    choices = session.default.choices
    texts = {without_plan_line(plan.draft.source) for plan in plans}
    drawn: list[LoweredPlan] = []
    for _ in range(3 * count if choices else 0):
        plan = Plan()
        for choice in draw.sample(choices, min(len(choices), draw.randint(1, MAX_RANDOM_CHOICES))):
            plan = plan.with_choice(choice)
        lowered = session.lower(plan)
        text = without_plan_line(lowered.draft.source)
        if text and text not in texts and len(drawn) < count:
            texts.add(text)
            drawn.append(lowered)
    return drawn


def _wrong(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Returns the rows whose plan is not correct where the default is."""
    right = {row.problem for row in rows if row.chosen_by == "default" and row.verdict == "correct"}
    return [row for row in rows if row.problem in right and row.verdict != "correct"]


def _by_problem(rows: Sequence[PlanRow]) -> dict[str, list[PlanRow]]:
    by_problem: dict[str, list[PlanRow]] = {}
    for row in rows:
        by_problem.setdefault(row.problem, []).append(row)
    return by_problem


def _summary(rows: Sequence[PlanRow]) -> str:
    problems = _by_problem(rows)
    if not problems:
        return "no problem has a draft"
    several = [own for own in problems.values() if len(own) > 1]
    ratios = [min(r.bytes for r in own) / max(own[0].bytes, 1) for own in problems.values()]
    fewer = [ratio for ratio in ratios if ratio < 1]
    further = [row for row in rows if row.chosen_by != "default"]
    counts = [row.count_seconds for row in rows if row.count_seconds is not None]
    lines = [
        f"{len(problems)} problems with a draft, {len(several)} with further drafts; {len(rows)} distinct drafts",
        f"open choices a problem: median {statistics.median(own[0].open_decisions for own in problems.values()):.0f}",
        f"not correct where the default is: {len(_wrong(rows))} of {len(further)}",
        f"fewer predicted bytes than the default: {len(fewer)} problems"
        + (f", geometric mean {statistics.geometric_mean(fewer):.3f}" if fewer else ""),
    ]
    traced = [own[0].lower_seconds for own in problems.values()]
    if further and counts:
        lines.append(
            f"seconds: the default with tracing {statistics.median(traced):.2f}, "
            f"a further plan's counts {statistics.median(counts):.2f}, its draft "
            f"{statistics.median(row.lower_seconds for row in further):.2f} (medians)"
        )
    gains = [_gain(own) for own in several if own[0].speedup]
    if gains:
        lines.append(
            f"best plan over the default: geometric mean {statistics.geometric_mean(gains):.3f}"
        )
    return "\n".join(lines)


def _gain(rows: Sequence[PlanRow]) -> float:
    """Returns the speed of the fastest correct plan over the default's."""
    return max(row.speedup or 0.0 for row in rows) / (rows[0].speedup or 1.0)


def _write(path: Path, rows: Sequence[PlanRow], options: argparse.Namespace) -> None:
    from bench.layer_suite.rows import machine_description

    command = f"python -m bench.plans --set {options.set} --device {options.device}"
    command += f" --own-work {options.own_work} --search-seconds {options.search_seconds:g}"
    command += f" --only {options.only}" if options.only else ""
    lines = [
        f"# Plans of the compiler's decisions, {options.set} set",
        "",
        f"`{command} --variants {options.variants} --random {options.random}`, {machine_description(options.device)}",
        "",
        *(f"- {line}" for line in _summary(rows).splitlines()),
        "",
        "| problem | plans | correct | launches of the default | fewest | bytes over the default's, least | "
        "decisions of that plan |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, own in _by_problem(rows).items():
        least = min(own, key=lambda row: row.bytes)
        correct = sum(row.verdict == "correct" for row in own)
        fewest = min(row.launches for row in own)
        ratio = least.bytes / max(own[0].bytes, 1)
        lines.append(
            f"| {name} | {len(own)} | {correct} | {own[0].launches} | {fewest} | {ratio:.3f} | {least.plan} |"
        )
    wrong = [row for row in rows if row.verdict != "correct"]
    if wrong:
        lines += ["", "Not correct:", ""]
        lines += [f"- {row.problem}, {row.plan}: {row.verdict}" for row in wrong]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps([row.model_dump() for row in rows], indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
