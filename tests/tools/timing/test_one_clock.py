"""One clock and one way to divide its times: nothing else of ours times a call on a GPU, or divides two times."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("agent", "bench", "policies", "rl", "store", "tools")
FIGURES_OF_A_TIMING = {"median", "low", "high", "mean", "minimum"}
DIVIDES = {"tools/profile_results.py"}
"""Speedup.between, which refuses times by different methods, and the estimate that is named as one."""
CLOCKS = {"do_bench", "do_bench_cudagraph", "elapsed_time"}
TIMES = {
    "bench/layer_suite/gpu_process.py": "eager, torch.compile and a draft replayed in turns, as graphs",
    "tools/gpu/stopwatch.py": "how one call is timed",
    "tools/timing/clock.py": "what a write over the cache costs",
    "tools/tracing/deferred.py": "the answers of a pretended GPU",
    "tools/evaluation/warming.py": "the answers of a pretended GPU",
}


def sources():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def is_figure(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in FIGURES_OF_A_TIMING


def test_times_are_divided_where_their_methods_are_compared_and_nowhere_else():
    found = [
        f"{name}:{node.lineno}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if name not in DIVIDES and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        and is_figure(node.left) and is_figure(node.right)
    ]  # fmt: skip
    assert not found, f"use Speedup.between: {found}"


def test_nothing_but_the_clock_times_a_call_on_a_gpu():
    found = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    }
    assert found == set(TIMES), (
        f"time a callable by tools/timing/reference_clock.py: {sorted(found ^ set(TIMES))}"
    )
