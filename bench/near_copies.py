"""Every reference of a suite as its own candidate, unchanged and a little wrong: is the copy accepted, and is what is
wrong refused?

    python -m bench.near_copies --kernelbench CHECKOUT [--levels 1 2 3] [--tritonbench CHECKOUT] [--workers 2] [--out
    bench/results/near_copies.md]

A candidate is the reference's own class, its outputs passed through one Triton kernel that copies them. It is judged
under `--own-work report`, since torch does the work; what is asked here is whether numbers are compared as they should
be on problems as people write them. Beside the verdict stands KernelBench's own rule, from the same calls at the same
shrunk shapes.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import NamedTuple

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError, Report

VARIANTS = {
    "unchanged": "y",
    "0.1 % too large": "y * 1.001 if y.is_floating_point() else y + 1",
    "one element 2 % off": "torch.cat([y.view(-1)[:-1], y.view(-1)[-1:] * 1.02 + 1e-3]).view(y.shape) if "
    "y.is_floating_point() else y + 1",
    "rounded to float16": "y.half().float() if y.dtype is torch.float32 else y + 1",
}
WRAPPER = """
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def copied(x):
    if isinstance(x, (tuple, list)):
        return type(x)(copied(each) for each in x)
    if not isinstance(x, torch.Tensor):
        return x
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
    return CHANGED


class ModelNew(Model):
    def forward(self, *args, **kwargs):
        return copied(super().forward(*args, **kwargs))
"""
NOT_JUDGED = "not judged"


class Outcome(NamedTuple):
    """One candidate's verdict."""

    suite: str
    problem: str
    variant: str
    said: str
    """correct, a fault, or NOT_JUDGED."""
    correct_kb: bool | None
    message: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--kernelbench", type=Path, required=True)
    add("--levels", type=int, nargs="+", default=[1, 2, 3])
    add("--tritonbench", type=Path)
    add("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    add("--device", default="cpu")
    add("--workers", type=int, default=2)
    add("--out", type=Path)
    asked = parser.parse_args()
    outcomes = list(judged(asked))
    text = page(asked, outcomes)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")


def candidate(problem: Problem, variant: str) -> str:
    own = problem.source.replace("def get_inputs", "def _their_inputs").replace(
        "def get_init_inputs", "def _their_init"
    )
    return own + WRAPPER.replace("CHANGED", VARIANTS[variant])


def judged(asked: argparse.Namespace) -> Iterator[Outcome]:
    from kernelwright.agent.problems.finding import load_suite
    from kernelwright.tools.pipeline import Evaluator, Options

    options = Options(profile=False, torch_compile=False, own_work="report", seconds=60)
    suites = [(f"KernelBench {level}", load_suite("kernelbench", asked.kernelbench, level)) for level in asked.levels]
    if asked.tritonbench:
        suites.append(("TritonBench-T", load_suite("tritonbench-t", asked.tritonbench)))
    chosen = [
        (name, problem, variant) for name, problems in suites for problem in problems for variant in asked.variants
    ]
    with Evaluator(asked.device, workers=asked.workers) as evaluator, ThreadPoolExecutor(asked.workers) as pool:

        def one(job: tuple[str, Problem, str]) -> Outcome:
            name, problem, variant = job
            try:
                report = evaluator.evaluate(problem, candidate(problem, variant), options)
            except (InfrastructureError, ProblemError) as trouble:
                return Outcome(name, problem.name, variant, NOT_JUDGED, None, str(trouble))
            return Outcome(name, problem.name, variant, *_told(report))

        for done, outcome in enumerate(pool.map(one, chosen), 1):
            if done % 100 == 0:
                print(f"{done} of {len(chosen)}", flush=True)
            yield outcome


def _told(report: Report) -> tuple[str, bool | None, str]:
    if report.correct or report.failure:
        if report.failure is None:
            return "correct", report.correct_kb, ""
        return str(report.failure.fault), report.correct_kb, report.failure.message[:200]
    return NOT_JUDGED, None, next((w for w in report.warnings if w.startswith("not interpreted")), "")


def page(asked: argparse.Namespace, outcomes: list[Outcome]) -> str:
    lines = [
        "# References as candidates, unchanged and a little wrong", "",
        "Command: `python -m bench.near_copies --kernelbench CHECKOUT --levels "
        f"{' '.join(map(str, asked.levels))}{' --tritonbench CHECKOUT' if asked.tritonbench else ''} "
        f"--workers {asked.workers}`. Machine: {platform.machine()}, {asked.device}, "
        f"Python {platform.python_version()}. Date: {date.today()}.", "",
        "| suite | candidate | judged | correct | refused | KernelBench's rule, same calls: correct |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name in dict.fromkeys(o.suite for o in outcomes):
        for variant in asked.variants:
            these = [o for o in outcomes if (o.suite, o.variant) == (name, variant) and o.said != NOT_JUDGED]
            right = sum(o.said == "correct" for o in these)
            lines.append(
                f"| {name} | {variant} | {len(these)} | {right} | {len(these) - right} | "
                f"{sum(o.correct_kb is True for o in these)} |"
            )
    lines += [
        "",
        *(_listed("Wrong and accepted", [o for o in outcomes if o.variant != "unchanged" and o.said == "correct"])),
    ]
    lines += _listed("Unchanged and refused",
        [o for o in outcomes if o.variant == "unchanged" and o.said not in ("correct", NOT_JUDGED)])  # fmt: skip
    lines += _listed("Not judged", [o for o in outcomes if o.variant == asked.variants[0] and o.said == NOT_JUDGED])
    return "\n".join(lines).rstrip()


def _listed(title: str, outcomes: list[Outcome]) -> list[str]:
    if not outcomes:
        return []
    return [f"{title}:", "", *(f"- {o.problem}, {o.variant}{': ' * bool(o.message)}{o.message}" for o in outcomes), ""]


if __name__ == "__main__":
    main()
