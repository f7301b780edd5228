"""Exports a run in KernelBench's layout for its analysis scripts: `runs/{run}/`, a folder per
level.

Candidates judged only on a CPU are written as incorrect, with a note in `metadata`: correctness
in KernelBench means a GPU.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelwright.agent.export.kernels import kernel_text
from kernelwright.agent.reporting.figures import pass_at
from kernelwright.agent.reporting.samples import ReportedSample, passed_compile_rung
from kernelwright.store.database import Store
from kernelwright.tools.report import Report, Timing

KERNELBENCH_PASS_AT_K = (1, 5, 10)
NOT_TIMED_MS = -1.0
"""KernelBench's placeholder for a missing time."""


def write_layout(
    store: Store,
    samples: Sequence[ReportedSample],
    folder: Path,
    titles: Mapping[str, str] | None = None,
) -> list[Path]:
    """Writes a folder per level with kernels, eval_results.json, pass_at_k_results.json and
    baseline_time_torch.json, and returns the folders.

    Samples of other suites are omitted. `titles`: file stems by problem
    (`1_Square_matrix_multiplication_`), for the baseline.
    """
    levels: dict[int, list[tuple[int, ReportedSample]]] = defaultdict(list)
    for sample in samples:
        if match := re.fullmatch(r"kernelbench:(\d+)/(\d+)", sample.problem):
            levels[int(match[1])].append((int(match[2]), sample))
    folders = []
    for level, level_samples in sorted(levels.items()):
        # KernelBench's scripts read a single level per run folder.
        target = folder if len(levels) == 1 else folder / f"level{level}"
        target.mkdir(parents=True, exist_ok=True)
        _write_level(store, level, level_samples, target, titles or {})
        folders.append(target)
    return folders


def _write_level(
    store: Store,
    level: int,
    level_samples: Sequence[tuple[int, ReportedSample]],
    folder: Path,
    titles: Mapping[str, str],
) -> None:
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    baseline: dict[str, Any] = {}
    for number, sample in sorted(level_samples, key=lambda pair: (pair[0], pair[1].number)):
        if sample.candidate_id is None:
            continue
        turn = store.turn(sample.candidate_id)
        if turn.report is None:
            continue
        if turn.source is not None:
            name = f"level_{level}_problem_{number}_sample_{sample.number}_kernel.py"
            text = kernel_text(store, sample.candidate_id) if turn.report.correct else turn.source
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        results[str(number)].append(evaluation_entry(sample.number, turn.report))
        profile = turn.report.profile
        if profile and profile.eager and sample.problem in titles:
            baseline[f"{titles[sample.problem]}.py"] = timing_entry(profile.eager, profile.device)
    _write_json(folder / "eval_results.json", results)
    _write_json(folder / "pass_at_k_results.json", pass_at_k_results(results))
    if baseline:
        _write_json(folder / "baseline_time_torch.json", {f"level{level}": baseline})


def evaluation_entry(sample: int, report: Report) -> dict[str, Any]:
    """Returns an entry of eval_results.json."""
    profile = report.profile if report.correct else None
    timing = profile.candidate if profile else None
    metadata: dict[str, Any] = {
        "judged_on": report.judged_on,
        "correct_by_kernelbench_rule": report.correct_kb,
    }
    on_cpu = report.judged_on in ("", "cpu")
    if report.correct and on_cpu:
        metadata["note"] = "right on a CPU, interpreted, at small sizes; not run on a GPU"
    if report.failure:
        metadata |= {"error_name": report.failure.fault.value, "error": report.failure.message}
    if report.degenerate:
        metadata["degenerate"] = list(report.degenerate)
    return {
        "sample_id": sample,
        "compiled": passed_compile_rung(report),
        "correctness": report.correct and not on_cpu,
        "metadata": metadata,
        "runtime": timing.mean if timing else NOT_TIMED_MS,
        "runtime_stats": timing_entry(timing, report.judged_on) if timing else {},
    }


def timing_entry(timing: Timing, device: str) -> dict[str, Any]:
    """Returns a timing in milliseconds, with KernelBench's field names."""
    return {
        "mean": timing.mean,
        "std": timing.std,
        "min": timing.minimum,
        "max": timing.high,
        "num_trials": timing.calls,
        "hardware": device,
        "device": device,
    }


def pass_at_k_results(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Returns KernelBench's `pass_at_k_results.json` for its `eval_results.json`, by problem
    number.
    """
    problems: dict[str, dict[str, Any]] = {}
    for number, entries in results.items():
        n, c = len(entries), sum(bool(e["correctness"] and e["compiled"]) for e in entries)
        scores = {f"pass@{k}": pass_at(n, c, k) for k in KERNELBENCH_PASS_AT_K if k <= n}
        problems[number] = {"total_samples": n, "correct_samples": c, **scores}
    averages: dict[str, float] = {}
    for k in KERNELBENCH_PASS_AT_K:
        values = [problem.get(f"pass@{k}") for problem in problems.values()]
        # Problems with fewer than k samples count as 0.
        if any(value is not None for value in values):
            averages[f"avg_pass@{k}"] = sum(value or 0.0 for value in values) / len(problems)
    metadata = {
        "total_problems": len(problems),
        "total_evaluated_samples": sum(p["total_samples"] for p in problems.values()),
        "total_correct_samples": sum(p["correct_samples"] for p in problems.values()),
    }
    return {"averages": averages, "metadata": metadata, "problems": problems}


def _write_json(path: Path, content: object) -> None:
    """Writes a temporary file and renames it, so that scripts never read a partial file."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(json.dumps(content, indent=4), encoding="utf-8")
    beside.replace(path)
