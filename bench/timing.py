"""The clock on a GPU: a kernel against itself, against triton.testing.do_bench, and the replayed trace against the
candidate's own Python path in a CUDA graph, both timed in the same way: replay must make nobody faster or slower.

    python -m bench.timing [--device cuda:0] [--out bench/results/timing.md]

A kernel against itself is two verdicts of one evaluator. The candidate's own path and do_bench run in another process,
without a judge. do_bench counts what Python takes for a launch, so that it is compared from 50 microseconds on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

from bench.judge_suites import problem_of

GOOD = Path(__file__).resolve().parents[1] / "tests" / "kernels" / "good"
OWN_SIZE = (
    "add_layer_norm", "attention", "avg_pool2d", "batched_matmul", "binary_chain", "cumsum", "depthwise_conv2d",
    "dequantize_int8", "embedding", "fake_quantize", "fused_bias_gelu", "fused_gelu", "fused_softmax", "fused_swiglu",
    "gather_rows", "layer_norm", "leaky_relu_bias", "log_softmax", "matmul", "matmul_fp16", "max_pool1d", "mish",
    "rms_norm", "row_argmax", "row_sum", "row_variance", "vector_add",
)  # fmt: skip
SMALL = (
    ("vector_add", {"size": 1 << 19}), ("fused_softmax", {"rows": 512, "columns": 1024}),
    ("fused_gelu", {"rows": 512, "columns": 2048}), ("row_sum", {"rows": 1024, "columns": 1024}),
    ("rms_norm", {"rows": 512, "columns": 2048}),
)  # fmt: skip
"""Kernels of 5 to 50 microseconds."""
MIN_DO_BENCH_MS = 0.05
"""Milliseconds from which on do_bench is compared."""
CALLS = 60

OWN_PATH = """
import importlib.util, json, statistics, sys, torch, triton
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.gpu.stopwatch import timed_block
for told in json.load(sys.stdin):
    try:
        reference = Reference(Problem.model_validate(told["problem"]), "cuda:0")
        inputs = reference.arguments(reference.inputs(3))
        spec = importlib.util.spec_from_file_location("candidate", told["path"])
        module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
        arguments = reference.init_arguments()
        with torch.device("cuda:0"):
            model = module.ModelNew(*arguments).cuda()
        with torch.no_grad():
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                model(*inputs)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                model(*inputs)
            timed_block([graph.replay] * 4, [lambda: None] * 4)
            times, _ = timed_block([graph.replay] * told["calls"], [lambda: None] * told["calls"])
            bench = triton.testing.do_bench(lambda: model(*inputs), warmup=50, rep=200, return_mode="median")
        print("ROW", json.dumps({"graph": statistics.median(times), "do_bench": bench}), flush=True)
    except Exception as error:
        print("ROW", json.dumps({"error": f"{type(error).__name__}: {error}"[:200]}), flush=True)
"""


def cases() -> list[tuple[str, dict[str, int]]]:
    """Kernel and the sizes that differ from the problem's own."""
    return [*((name, {}) for name in OWN_SIZE), *SMALL]


def own_paths(chosen: list[tuple[str, dict[str, int]]]) -> list[dict]:
    """Milliseconds of each kernel's own Python path in a CUDA graph, and by do_bench, in a process of its own."""
    told = [
        {
            "problem": problem_of(name).with_sizes(sizes).model_dump(mode="json"),
            "path": str(GOOD / f"{name}.py"),
            "calls": CALLS,
        }
        for name, sizes in chosen
    ]
    done = subprocess.run(
        [sys.executable, "-c", OWN_PATH],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if len(rows) != len(chosen):
        raise SystemExit(f"the candidates' own process ended early: {done.stderr.strip()[-300:]}")
    return rows


def ours(evaluator, name: str, sizes: dict[str, int]) -> float:
    """Milliseconds that a verdict says."""
    from kernelwright.tools.evaluation.pipeline import Options

    report = evaluator.evaluate(
        problem_of(name).with_sizes(sizes),
        (GOOD / f"{name}.py").read_text(),
        Options(torch_compile=False, sizes=0, own_work="report"),
    )
    if report.profile is None or report.profile.candidate is None:
        raise SystemExit(f"{name}: {report.failure}")
    return report.profile.candidate.median


def measure(device: str) -> list[dict]:
    from kernelwright.tools.evaluation.pipeline import Evaluator

    chosen, rows = cases(), []
    with Evaluator(device) as evaluator:
        for name, sizes in chosen:
            rows.append({"kernel": name, "sizes": sizes, "first": ours(evaluator, name, sizes)})
            rows[-1]["second"] = ours(evaluator, name, sizes)
            print(rows[-1], file=sys.stderr, flush=True)
    for row, own in zip(rows, own_paths(chosen), strict=True):
        row |= own
        print(row, file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = measure(asked.device)
    text = table(rows, asked.device)
    print(text)
    if asked.out:
        asked.out.write_text(text)
        asked.out.with_suffix(".json").write_text(json.dumps(rows, indent=1))


def spread(ratios: list[float]) -> str:
    """Median, least and largest."""
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} kernels)"


def table(rows: list[dict], device: str) -> str:
    import torch

    large, small = (
        [r for r in rows if (r["first"] >= MIN_DO_BENCH_MS) == above] for above in (True, False)
    )
    known = [r for r in rows if "graph" in r]
    lines = [
        "# The clock", "",
        f"`python -m bench.timing`, {torch.cuda.get_device_name(device)}, torch {torch.__version__}, "
        f"{os.cpu_count()} cores, {date.today().isoformat()}. Medians in milliseconds.", "",
        f"- A kernel against itself, from 50 microseconds on: {spread([r['second'] / r['first'] for r in large])}.",
        f"- Below 50 microseconds: {spread([r['second'] / r['first'] for r in small])}.",
        f"- Ours over do_bench, from 50 microseconds on: "
        f"{spread([r['first'] / r['do_bench'] for r in large if 'do_bench' in r])}.",
        "- The replayed trace over the candidate's own Python path in a CUDA graph: "
        f"{spread([r['first'] / r['graph'] for r in known])}.", "",
        "| kernel | ms | again / first | do_bench | ours / do_bench | own path in a graph | replay / own path |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in rows:
        name = f"{r['kernel']} {' '.join(f'{k}={v}' for k, v in r['sizes'].items())}".strip()
        said = f"| {name} | {r['first']:.4f} | {r['second'] / r['first']:.3f} "
        if "graph" in r:
            said += f"| {r['do_bench']:.4f} | {r['first'] / r['do_bench']:.3f} | {r['graph']:.4f} "
            lines.append(f"{said}| {r['first'] / r['graph']:.3f} |")
        else:
            lines.append(f"{said}| | | {r['error']} | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
