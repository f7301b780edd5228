"""Ours against KernelBench's own harness: the same candidates, the same GPU, the same run.

    python -m bench.verdicts --kernelbench DIR [--device cuda:0] [--judges 2] [--out bench/results/verdicts.md]
    [--only-ours]

DIR is a checkout of KernelBench; its harness runs from there, a fresh process a candidate as its own scripts do, with 5
correctness and 100 timing trials. Ours is one warm Evaluator with every check of docs/explanation/trust.md and eight
sizes, for candidates one after the other, no text twice, so that every kernel is compiled from nothing; then the same
once more, to see what a verdict costs beside compilation; then a batch, half of it honest, by as many judge processes
as --judges says, where every kernel is compiled from nothing again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from datetime import date
from pathlib import Path

from bench.verdict_candidates import Entry, entries, mixed, variants

HARNESS = """
import json, sys
sys.path.insert(0, sys.argv[1] + "/src")
import importlib.util, types
for name in ("dotenv", "litellm", "openai", "requests", "tqdm"):
    if importlib.util.find_spec(name) is None:
        # Clients of language models and such: imported with it, and no part of an evaluation.
        sys.modules[name] = types.ModuleType(name)
        for wanted in ("load_dotenv", "completion", "OpenAI", "tqdm"):
            setattr(sys.modules[name], wanted, lambda *given, **named: None)
import torch
from kernelbench.eval import eval_kernel_against_ref
told = json.load(sys.stdin)
try:
    found = eval_kernel_against_ref(
        told["reference"], told["candidate"], num_correct_trials=5, num_perf_trials=100, measure_performance=True,
        backend="triton", device=torch.device("cuda:0"), precision=torch.float32,
    )
    out = {"error": "None"}
    if found:
        out = {
            "compiled": bool(found.compiled), "correct": bool(found.correctness), "runtime": float(found.runtime),
        }
except Exception as error:
    out = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
print("\\nVERDICT " + json.dumps(out))
"""


def reference_of(checkout: Path, problem: str) -> str:
    level, _, number = problem.partition("/")
    return next((checkout / "KernelBench" / f"level{level}").glob(f"{number}_*.py")).read_text()


def theirs(checkout: Path, entry: Entry) -> tuple[float, dict]:
    """Wall seconds, and what their harness says."""
    told = json.dumps(
        {"reference": reference_of(checkout, entry.problem), "candidate": entry.source}
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HARNESS, str(checkout)],
        input=told,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - start
    lines = [line for line in done.stdout.splitlines() if line.startswith("VERDICT ")]
    return seconds, json.loads(lines[-1][8:]) if lines else {
        "error": done.stderr.strip().splitlines()[-1][:200] if done.stderr else "no word"
    }


class GpuUsage:
    """Samples how busy a GPU is, through nvidia-smi."""

    def __init__(self, device: str) -> None:
        from kernelwright.tools.hardware.machine_info import evaluating_environment

        _, gpu = evaluating_environment(device)
        assert gpu is not None, f"{device} is not there"
        self._process = subprocess.Popen(
            [
                "nvidia-smi",
                f"--id={gpu.uuid}",
                "--query-gpu=utilization.gpu",
                "--format=csv,noheader,nounits",
                "-lms",
                "100",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.samples: list[int] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.strip().isdigit():
                self.samples.append(int(line))

    def stop(self) -> float:
        """Mean percent."""
        self._process.terminate()
        return sum(self.samples) / max(len(self.samples), 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument(
        "--only-batch", action="store_true", help="the batch alone, its figures on standard output"
    )
    parser.add_argument("--workers", type=int, default=12, help="places at the CPU rungs")
    parser.add_argument(
        "--judges", type=int, default=2, help="judge processes of the batch, all on this GPU"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=520.0,
        help="seconds for their harness; what does not fit is left out and said",
    )
    asked = parser.parse_args()
    if asked.only_batch:
        print(
            json.dumps(
                batch(asked, problems_of(asked, [*entries(), *variants(0)]), options_of_all()),
                indent=1,
            )
        )
        return
    rows, summary = ours(asked)
    tell(rows, summary, asked)
    if not asked.only_ours:
        theirs_beside(rows, summary, asked)
        tell(rows, summary, asked)


def tell(rows: list[dict], summary: dict, asked: argparse.Namespace) -> None:
    """Prints the table, and writes it where that was asked for: also before their harness has begun, for it is slow."""
    text = table(rows, summary, asked)
    print(text, flush=True)
    if asked.out:
        asked.out.write_text(text)
        asked.out.with_suffix(".json").write_text(
            json.dumps({"rows": rows, "summary": summary}, indent=1)
        )


def ours(asked: argparse.Namespace) -> tuple[list[dict], dict]:
    """Our verdicts one after the other, once more, and in a batch."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    options, rows = options_of_all(), []
    chosen = [*entries(), *variants(1)]
    problems = problems_of(asked, chosen)
    start = time.monotonic()
    with Evaluator(asked.device, workers=asked.workers) as evaluator:
        cold = 0.0
        for problem in problems:
            one = next(e for e in variants(0) if e.problem == problem)
            evaluator.evaluate(problems[problem], one.source + "\n# warm", options)
            cold = cold or time.monotonic() - start
        for entry in chosen:
            begin = time.monotonic()
            report = evaluator.evaluate(problems[entry.problem], entry.source, options)
            rows.append(ours_row(entry, report, time.monotonic() - begin))
            print(rows[-1], file=sys.stderr, flush=True)
        again = [seconds_of(evaluator, problems[entry.problem], entry, options) for entry in chosen]
    together = batch(asked, problems, options)
    print(together, file=sys.stderr, flush=True)
    summary = {
        "cold": cold,
        **together,
        **spread(rows),
        "again_p50": middle(again, 0.5),
        "again_p95": middle(again, 0.95),
    }
    return rows, {**summary, "ratio": None, "judged_by_both": 0, "agree": 0}


def theirs_beside(rows: list[dict], summary: dict, asked: argparse.Namespace) -> None:
    """Their harness over the first candidates, for as long as it may take; what it says goes into rows and summary."""
    begin = time.monotonic()
    for row, entry in zip(rows, entries(), strict=False):
        if time.monotonic() - begin < asked.limit:
            row["kb_seconds"], row["kb"] = theirs(asked.kernelbench, entry)
            print(
                entry.problem, entry.kind, row["kb_seconds"], row["kb"], file=sys.stderr, flush=True
            )
    pairs = [row for row in rows if "kb_seconds" in row]
    if pairs:
        ratios = [r["kb_seconds"] / r["seconds"] for r in pairs]
        summary["ratio"] = math.exp(statistics.fmean(map(math.log, ratios)))
        summary["theirs_a_minute"] = 60 * len(pairs) / sum(r["kb_seconds"] for r in pairs)
    summary["agree"] = sum(r["kb"].get("correct", False) == r["correct"] for r in pairs)
    summary["judged_by_both"] = len(pairs)


def options_of_all():
    """Every check; torch.compile is not timed."""
    from kernelwright.tools.evaluation.pipeline import Options

    return Options(torch_compile=False)


def problems_of(asked: argparse.Namespace, chosen: list[Entry]) -> dict:
    """KernelBench's problems by their names in the entries."""
    from kernelwright.tools.problem import Problem

    return {
        p: Problem(
            name=f"kernelbench:{p}", source=reference_of(asked.kernelbench, p), suite="kernelbench"
        )
        for p in {e.problem for e in chosen}
    }


def ours_row(entry: Entry, report, seconds: float) -> dict:
    profile = report.profile
    return {
        "problem": entry.problem, "kind": entry.kind, "seconds": seconds, "correct": report.correct,
        "correct_kb": report.correct_kb, "rung": str(report.rung),
        "fault": str(report.failure.fault) if report.failure else "",
        "ms": profile.candidate.median if profile and profile.candidate else None, "speedup": report.speedup,
        "checks": len(report.correctness.checks) if report.correctness else 0,
        "message": report.failure.message[:120] if report.failure else "",
    }  # fmt: skip


def seconds_of(evaluator, problem, entry: Entry, options) -> float:
    """Seconds of a verdict whose text was judged before: from another seed, with every check, the kernels compiled."""
    begin = time.monotonic()
    evaluator.evaluate(problem, entry.source, options)
    return time.monotonic() - begin


def middle(seconds: list[float], share: float) -> float:
    """The quantile of that share."""
    return sorted(seconds)[int(share * len(seconds))]


def spread(rows: list[dict]) -> dict:
    """Median and 95th percentile of warm verdicts one after the other, and of those that do not compile."""
    seconds = [r["seconds"] for r in rows]
    broken = [r["seconds"] for r in rows if r["kind"] == "broken"]
    return {
        "verdicts": len(seconds), "p50": middle(seconds, 0.5), "p95": middle(seconds, 0.95),
        "broken_p50": middle(broken, 0.5) if broken else None,
    }  # fmt: skip


def batch(asked: argparse.Namespace, problems: dict, options) -> dict:
    """All at once, by several judge processes on one GPU, each warmed by one candidate a problem."""
    from kernelwright.agent.judging.local_pool import LocalPool

    pool = LocalPool([asked.device], asked.workers, asked.judges)
    try:
        warm = [
            warming(e, number) for number in range(asked.judges) for e in first_of_each(variants(0))
        ]
        for waiting in [pool.submit(problems[e.problem], e.source, options) for e in warm]:
            waiting.exception()
        todo = sorted(mixed(variants(0)), key=lambda e: e.problem)
        busy, start = GpuUsage(asked.device), time.monotonic()
        submitted = [pool.submit(problems[e.problem], e.source, options) for e in todo]
        missed = [str(error) for one in submitted if (error := one.exception()) is not None]
        seconds = time.monotonic() - start
    finally:
        pool.close()
    done = [
        (one.result(), e) for one, e in zip(submitted, todo, strict=True) if one.exception() is None
    ]
    return {
        "batch": len(done),
        "judges": asked.judges,
        "missed": missed,
        "batch_seconds": seconds,
        "a_minute": 60 * len(done) / seconds,
        "gpu_busy_percent": busy.stop(),
        "right": sum(r.correct for r, _ in done),
        "as_expected": sum(r.correct == (e.kind == "correct") for r, e in done),
        "unexpected": [
            f"{e.problem} {e.kind}: {r.failure.fault}, {r.failure.message[:120]}"
            if r.failure
            else f"{e.problem} {e.kind}"
            for r, e in done
            if r.correct != (e.kind == "correct")
        ],
    }


def first_of_each(found: list[Entry]) -> list[Entry]:
    """One entry a problem."""
    return list({e.problem: e for e in reversed(found)}.values())


def warming(entry: Entry, number: int) -> Entry:
    """A text of its own that does the same, whose kernels are none of the batch's."""
    source = entry.source.replace("tl.zeros((", f"{number} * tl.zeros((", 1)
    return entry._replace(
        source=source.replace("tl.maximum(value, 0.0", f"tl.maximum(value, {number} * 0.0", 1)
    )


def table(rows: list[dict], summary: dict, asked: argparse.Namespace) -> str:
    import torch

    gpu = torch.cuda.get_device_name(asked.device)
    ratio = f"{summary['ratio']:.1f}" if summary["ratio"] else "not measured"
    lines = [
        "# Verdicts: ours beside KernelBench's harness", "",
        f"`python -m bench.verdicts --kernelbench DIR`, {gpu}, torch {torch.__version__}, Python "
        f"{platform.python_version()}, {os.cpu_count()} cores, {date.today().isoformat()}.", "",
        f"- Faster by a geometric mean of **{ratio}** over {summary['judged_by_both']} candidates judged "
        f"by both; verdicts agree on {summary['agree']} of them. It makes {summary.get('theirs_a_minute', 0):.1f} a "
        "minute, one after the other.",
        f"- In a batch of {summary['batch']}, {summary['right']} of them right, by {summary['judges']} judge "
        f"processes: **{summary['a_minute']:.0f} candidates a minute** on one "
        f"GPU, GPU busy {summary['gpu_busy_percent']:.0f} % of the wall clock (nvidia-smi, sampled every 100 "
        f"ms); {summary['as_expected']} verdicts as expected, {len(summary['missed'])} not made.",
        f"- One after the other, {summary['verdicts']} candidates: median **{summary['p50']:.2f} s**, 95th "
        f"percentile {summary['p95']:.2f} s; one that does not compile {summary['broken_p50']:.2f} s.",
        f"- The same {summary['verdicts']} once more, from other seeds, their kernels compiled already: median "
        f"**{summary['again_p50']:.2f} s**, 95th percentile {summary['again_p95']:.2f} s.",
        "- The first verdict of a fresh Evaluator, imports and CUDA context included: "
        f"{summary['cold']:.1f} s; the rows below come after it.", "",
        "| problem | kind | ours s | verdict | rung | ms | speedup | KernelBench s | its verdict | its ms | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in rows:
        kb = r.get("kb", {})
        verdict = "correct" if r["correct"] else r["fault"]
        their = (
            ""
            if not kb
            else "correct"
            if kb.get("correct")
            else kb.get("error", "wrong" if kb.get("compiled") else "not compiled")[:40]
        )
        number = lambda value, form: "" if value is None else format(value, form)  # noqa: E731
        lines.append(
            f"| {r['problem']} | {r['kind']} | {r['seconds']:.2f} | {verdict} | {r['rung']} | "
            f"{number(r['ms'], '.4g')} | {number(r['speedup'], '.2f')} "
            f"| {number(r.get('kb_seconds'), '.1f')} | {their} | {number(kb.get('runtime'), '.4g')} | "
            f"{number(r['kb_seconds'] / r['seconds'] if 'kb_seconds' in r else None, '.0f')} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
