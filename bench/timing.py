"""The clock on a GPU: a kernel against itself, agreement with triton.testing.do_bench, both again while all cores are
busy.

python -m bench.timing [--device cuda:0] [--out bench/results/timing.md]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

from bench.judge_suites import problem_of

KERNELS = ("fused_softmax", "vector_add", "fused_gelu", "matmul", "row_variance", "cumsum", "gather_rows", "attention")
GOOD = Path(__file__).resolve().parents[1] / "tests" / "kernels" / "good"

DO_BENCH = """
import importlib.util, json, sys, torch, triton
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference
told = json.load(sys.stdin)
problem = Problem.model_validate(told["problem"])
reference = Reference(problem, "cuda:0")
inputs = reference.arguments(reference.inputs(3))
spec = importlib.util.spec_from_file_location("candidate", told["path"])
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
positional, named = reference.init_arguments()
with torch.device("cuda:0"):
    model = module.ModelNew(*positional, **named).cuda()
with torch.no_grad():
    print("MS", triton.testing.do_bench(lambda: model(*inputs), warmup=100, rep=400, return_mode="median"))
"""


def do_bench(name: str) -> float:
    """Milliseconds by Triton's own clock, in a process of its own."""
    told = json.dumps({"problem": problem_of(name).model_dump(mode="json"), "path": str(GOOD / f"{name}.py")})
    done = subprocess.run([sys.executable, "-c", DO_BENCH], input=told, capture_output=True, text=True, check=False)
    return float(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("MS")))


def ours(evaluator, name: str) -> float:
    from kernelwright.tools.pipeline import Options

    report = evaluator.evaluate(
        problem_of(name), (GOOD / f"{name}.py").read_text(), Options(torch_compile=False, sizes=0)
    )
    if not report.correct:
        raise SystemExit(f"{name}: {report.failure}")
    return report.profile.candidate.median


def load() -> list[subprocess.Popen]:
    """One busy process a core."""
    return [
        subprocess.Popen([sys.executable, "-c", "while True: sum(range(100000))"]) for _ in range(os.cpu_count() or 1)
    ]


def measure(evaluator) -> list[dict]:
    rows = []
    for name in KERNELS:
        first, second, triton_ms = ours(evaluator, name), ours(evaluator, name), do_bench(name)
        rows.append(
            {
                "kernel": name,
                "first": first,
                "second": second,
                "do_bench": triton_ms,
                "self": second / first,
                "against_do_bench": first / triton_ms,
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    from kernelwright.tools.pipeline import Evaluator

    with Evaluator(asked.device) as evaluator:
        quiet = measure(evaluator)
        burners = load()
        time.sleep(1)
        busy = measure(evaluator)
        for burner in burners:
            burner.kill()
    text = table(quiet, busy, asked.device)
    print(text)
    if asked.out:
        asked.out.write_text(text)
        asked.out.with_suffix(".json").write_text(json.dumps({"quiet": quiet, "busy": busy}, indent=1))


def table(quiet: list[dict], busy: list[dict], device: str) -> str:
    import torch

    lines = [
        "# The clock", "",
        f"`python -m bench.timing`, {torch.cuda.get_device_name(device)}, torch {torch.__version__}, "
        f"{os.cpu_count()} cores, {date.today().isoformat()}. "
        "Medians in milliseconds; under load every core runs a busy loop.", "",
        "| kernel | ms | again | again / first | do_bench | ours / do_bench | load: again / first | load: "
        "ours / do_bench | load / quiet |", "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for q, b in zip(quiet, busy, strict=True):
        lines.append(
            f"| {q['kernel']} | {q['first']:.4f} | {q['second']:.4f} | {q['self']:.3f} | "
            f"{q['do_bench']:.4f} | {q['against_do_bench']:.3f} | "
            f"{b['self']:.3f} | {b['against_do_bench']:.3f} | "
            f"{b['first'] / q['first']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
