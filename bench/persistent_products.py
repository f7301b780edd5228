"""Large products of half precision: the persistent kernel beside the compiler's draft and torch, with whole verdicts.

    python -m bench.persistent_products --device cuda:0 [--out bench/results/persistent_products.md]

Prints a Markdown table: the median of a call in milliseconds, of the persistent kernel, of the compiler's draft and of
eager (cuBLAS), all of one process. Needs a GPU.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import NamedTuple

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.agent.solve.template_drafts import TemplateDrafter
from kernelwright.policies.inductor.draft import Mode, draft
from kernelwright.tools.judging.options import Options
from kernelwright.tools.pipeline import Evaluator
from kernelwright.tools.problem import Problem

PROBLEM = """
import torch
from torch import nn

rows = {size}
columns = {size}
depth = {size}


class Model(nn.Module):
    def forward(self, a, b):
        return {body}


def get_inputs():
    return [torch.randn(rows, depth, dtype=torch.{dtype}), torch.randn({right}, dtype=torch.{dtype})]


def get_init_inputs():
    return []
"""
LAYER = ("torch.relu(a @ b.t())", "columns, depth")
PLAIN = ("a @ b", "depth, columns")


class Row(NamedTuple):
    """One problem. Times are in milliseconds, None where the draft was not made or is not right."""

    name: str
    persistent: float | None
    compilers: float | None
    eager: float | None
    reasons: tuple[str, ...]


def problems() -> Iterator[Problem]:
    """Square products, and those of a layer with a ReLU, whose weight lies as (outputs, inputs)."""
    for dtype in ("float16", "bfloat16"):
        for size in (4000, 4096, 8192):
            for (body, right), told in ((PLAIN, ""), (LAYER, ", layer and ReLU")):
                text = PROBLEM.format(size=size, body=body, right=right, dtype=dtype)
                yield Problem(name=f"{dtype} {size}{told}", source=text)


def measured(problem: Problem, templates: TemplateDrafter, drafter: Drafter, evaluator: Evaluator) -> Row:
    """Judges both drafts of a problem."""
    persistent = templates.draft(problem)
    texts = (
        persistent.source if persistent else "",
        draft(problem.source, drafter.run, mode=Mode.STRICT, tf32=True, split=True).source,
    )
    times: list[float | None] = []
    eager, reasons = None, []
    for text in texts:
        report = evaluator.evaluate(problem, text, Options(torch_compile=False)) if text else None
        profile = report.profile if report is not None and report.correct else None
        times.append(profile.candidate.median if profile and profile.candidate else None)
        eager = profile.eager.median if profile and profile.eager else eager
        reasons.append("" if profile else "no draft" if report is None else report.explanation)
    return Row(problem.name, times[0], times[1], eager, tuple(r for r in reasons if r))


def table(rows: list[Row]) -> list[str]:
    """Markdown."""
    lines = [
        "| product | persistent ms | compiler's draft ms | eager ms | eager over persistent | draft over persistent |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = [f"{v:.4f}" if v else "" for v in (row.persistent, row.compilers, row.eager)]
        ratios = [f"{v / row.persistent:.2f}" if v and row.persistent else "" for v in (row.eager, row.compilers)]
        lines.append(f"| {row.name} | {' | '.join([*numbers, *ratios])} |")
    return lines + [f"- {row.name}: {reason}" for row in rows for reason in row.reasons]


def main() -> None:
    """Runs the command."""
    import torch
    import triton

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    with (
        Evaluator(arguments.device, workers=2) as evaluator,
        Drafter() as drafter,
        closing(TemplateDrafter()) as templates,
    ):
        for problem in problems():
            rows.append(measured(problem, templates, drafter, evaluator))
            print(table(rows[-1:])[-1], flush=True)
    told = f"{torch.cuda.get_device_name(arguments.device)}, Python {platform.python_version()}, torch "
    told += f"{torch.__version__}, Triton {triton.__version__}, {date.today()}"
    command = f"`python -m bench.persistent_products --device {arguments.device}`, {told}"
    text = (
        "\n".join(["# Large products of half precision by persistent programs", "", command, "", *table(rows)]) + "\n"
    )
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
