"""The tuner: halving against exhaustive search over the same configurations, tuned kernels against untuned ones and
eager, flash attention against torch's own.

python -m bench.tuning sweep [--device cuda:0] [--only matmul,matvec] [--configurations 64] [--seconds 270] [--out DIR]
python -m bench.tuning sweep --device cuda:0 --sizes rows=524288,columns=1024 --only fused_softmax [--configurations 8]
python -m bench.tuning attention [--device cuda:0] [--only attention_128_full_4096] [--seconds 270] [--out DIR]
python -m bench.tuning report DIR

On a CPU `sweep` compiles and ranks and stops before the clock: a rehearsal whose table holds no time. The next kernels
are compiled while one is timed. Every row is written as it is made, halving first; after `--seconds` nothing is begun,
and a search that is under way ends with what it has. The same command with the same folder goes on. `--sizes` gives
problems others of their sizes: at gigabytes instead of hundreds of megabytes the time of a launch and of its last
programs no longer counts. KernelBench with TUNE is
`agent solve kernelbench:1/1 --draft compiler --policy compiler --device cuda:0`, which tunes where there is a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

GOOD = Path(__file__).resolve().parents[1] / "tests" / "kernels" / "good"
KERNELS = (
    "matmul", "linear_gelu", "fused_softmax", "layer_norm", "vector_add", "matmul_fp16", "matvec", "row_sum",
    "attention", "fused_gelu", "matmul_bf16",
    "matmul_bias_relu", "batched_matmul", "matmul_transposed_b", "causal_attention", "row_logsumexp", "batch_norm",
    "mse_loss", "kl_div_loss", "avg_pool2d", "pointwise_conv2d", "fused_silu", "fused_bias_gelu", "scale_shift_clamp",
    "exp_sin_chain", "hardswish_chain",
)  # fmt: skip
"""One of each kind first: a sweep that runs out of time has seen all kinds."""
AHEAD = 2
"""Kernels that are compiled while another is timed."""
CALLS = 32
"""Timed calls of each configuration of the exhaustive search."""
EIGHTH = 8
"""The share of the exhaustive search's launches that halving may take."""
CALLS_BEFORE_HALVING = 16
"""Of the budget, for each configuration that halving begins with."""
ATTENTION = tuple(
    (dim, causal, length)
    for dim in (64, 128)
    for causal in (False, True)
    for length in (1024, 4096)
)
BATCH, HEADS = 4, 16


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("sweep", "attention", "report"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--only", default="", help="names of kernels, with commas between")
    parser.add_argument(
        "--seconds", type=float, default=270.0, help="after which nothing more is begun"
    )
    parser.add_argument("--configurations", type=int, default=64)
    parser.add_argument(
        "--sizes", default="", help="sizes of the problems to replace, as rows=524288,columns=1024"
    )
    parser.add_argument("--out", type=Path, default=Path("tuning"))
    asked = parser.parse_args()
    if asked.what == "report":
        print(report(asked.folder or asked.out))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.until = time.monotonic() + asked.seconds
    from kernelwright.tools.evaluation.pipeline import Evaluator

    with Evaluator(asked.device) as evaluator:
        if asked.what == "sweep":
            sweep(evaluator, asked)
        else:
            attention(evaluator, asked)
    print(report(asked.out))


# ---------------------------------------------------------------------- kernels
def sweep(evaluator: Any, asked: argparse.Namespace) -> None:
    asked_for = asked.only.split(",") if asked.only else KERNELS
    names = [
        name for name in asked_for if not (asked.out / f"{_row_name(name, asked)}.json").exists()
    ]
    evaluator.environment()
    with ThreadPoolExecutor(AHEAD, thread_name_prefix="ahead") as pool:
        waiting = [(name, pool.submit(compiled, evaluator, asked, name)) for name in names]
        for name, made in waiting:
            begun = time.monotonic()
            try:
                row = measured(evaluator, asked, made.result(timeout=max(0.0, asked.until - begun)))
            except TimeoutError:
                print(f"{name} and what follows were not reached", file=sys.stderr)
                break
            except (
                Exception
            ) as error:  # one kernel that fails ends no sweep, and is told in the table
                row = {
                    "kernel": _row_name(name, asked),
                    "failure": f"{type(error).__name__}: {error}",
                }
            row |= {
                "seconds": time.monotonic() - begun,
                "date": date.today().isoformat(),
                **machine(evaluator),
            }
            (asked.out / f"{row['kernel']}.json").write_text(
                json.dumps(row, indent=1), encoding="utf-8"
            )
            print(row, file=sys.stderr, flush=True)
        pool.shutdown(wait=False, cancel_futures=True)


def in_time(asked: argparse.Namespace) -> None:
    """Raises TimeoutError where the time is over."""
    if time.monotonic() > asked.until:
        raise TimeoutError


class Compiled(NamedTuple):
    """The first group of parameters of one kernel: the configurations that compile."""

    told: dict[str, Any]
    problem: Any
    texts: dict[str, str]
    """By the key of the configuration, best by the model first."""
    start: str
    chosen: tuple[str, ...]
    """Those of them that the tuner would measure: without equal binaries, and without many that the model takes for
    alike.
    """


def compiled(evaluator: Any, asked: argparse.Namespace, name: str) -> Compiled:
    """Raises TimeoutError where the time is over."""
    from bench.judge_suites import problem_of
    from kernelwright.agent.tuning.journal import Journal
    from kernelwright.agent.tuning.settings import TuneSettings
    from kernelwright.agent.tuning.tuned import ConfigurationOutcome
    from kernelwright.agent.tuning.tuning import Tuner
    from kernelwright.tools.tuning.kernel_text.parameters import key_of
    from kernelwright.tools.tuning.kernel_text.rewriting import rewrite

    in_time(asked)
    problem, source = (
        at_sizes(problem_of(name), asked.sizes),
        (GOOD / f"{name}.py").read_text(encoding="utf-8"),
    )
    target, begun = evaluator.target if evaluator.on_gpu else asked.target, time.monotonic()
    settings = TuneSettings(
        target=target, device=asked.device, configurations=asked.configurations,
        measured=max(2, CALLS * asked.configurations // EIGHTH // CALLS_BEFORE_HALVING),
    )  # fmt: skip
    row_name = _row_name(name, asked)
    with Journal(
        asked.out / f"{row_name}.compiled.jsonl", f"{row_name} {target} {asked.configurations}"
    ) as journal:
        tuner = Tuner(
            evaluator, problem, source, settings, journal, lambda _: in_time(asked), kernel=name
        )
        space, groups = tuner.pruned()
    rows = [row for row in groups[0].rows if row.score.passed]
    told = {
        "kernel": row_name, "parameters": list(groups[0].parameters), "light_ms": light_ms(evaluator, problem),
        "compiled": len(groups[0].rows), "target": target, "launchable": len(rows),
        "best_by_model": rows[0].relative if rows else None,
        "compile_seconds": time.monotonic() - begun,
    }  # fmt: skip
    texts = {
        key_of(row.configuration): rewrite(tuner.file.source, space, row.configuration)
        for row in rows
    }
    chosen = tuple(
        key_of(row.configuration) for row in rows if row.fate is ConfigurationOutcome.REMAINS
    )
    return Compiled(told, problem, texts, key_of(space.start()), chosen)


def _row_name(name: str, asked: argparse.Namespace) -> str:
    return f"{name}_{asked.sizes}" if asked.sizes else name


def at_sizes(problem: Any, sizes: str) -> Any:
    """The problem with these of its sizes, as `rows=524288,columns=1024`."""
    pairs = [pair.partition("=") for pair in sizes.split(",") if pair]
    return problem.with_sizes({name: int(value) for name, _, value in pairs})


def light_ms(evaluator: Any, problem: Any) -> float | None:
    """Milliseconds of the problem at the speed of light of this GPU; None without one."""
    from kernelwright.tools.hardware.machine_info import evaluating_environment
    from kernelwright.tools.timing.roofline import roofline
    from kernelwright.tools.timing.speed_of_light import work_of

    gpu = evaluating_environment(evaluator.device)[1] if evaluator.on_gpu else None
    work = work_of(problem)
    return (
        roofline(work, gpu.bytes_per_second, gpu.rates).milliseconds
        if gpu is not None and work is not None
        else None
    )


def measured(evaluator: Any, asked: argparse.Namespace, made: Compiled) -> dict[str, Any]:
    """Halving among the configurations, then every one of them: until the time is over."""
    from kernelwright.agent.tuning.halving import TuningBudget, halve
    from kernelwright.agent.tuning.journal import Journal

    if not evaluator.on_gpu:
        return dict(made.told)
    with Journal(
        asked.out / f"{made.told['kernel']}.timed.jsonl", json.dumps(made.told["target"])
    ) as journal:
        trials = Trials(evaluator, made, journal)
        budget = TuningBudget(CALLS * len(made.texts) // EIGHTH, asked.until, time.monotonic)
        by_model = list(made.chosen)[: max(2, budget.launches // CALLS_BEFORE_HALVING)]
        halved = halve(
            by_model, lambda key, number, calls: trials.times(key, f"halving {number}", calls), budget,
            always=made.start if made.start in made.texts else "",
        )  # fmt: skip
        every: dict[str, float] = {}
        for key in made.texts:
            if time.monotonic() > asked.until:
                break
            if ms := trials.times(key, "exhaustive", CALLS):
                every[key] = statistics.median(ms)
        whole = time.monotonic() <= asked.until
        found = halved.timings()
        won = next(iter(found), None)
        best = min(every, key=lambda key: every[key], default=None) if whole else None
        # both searches' winners by the same clock: the exhaustive search's own calls, where it reached them
        halving_ms = every.get(won or "") or (found[won].median if won else None)
        start_ms = every.get(made.start) or (
            found[made.start].median if made.start in found else None
        )
        return made.told | {
            "exhaustive_launches": CALLS * len(every), "halving_launches": budget.used, "whole": whole,
            "start_ms": start_ms, "best_ms": every[best] if best is not None else None, "halving_ms": halving_ms,
            "eager_ms": statistics.median(trials.eager) if trials.eager else None, "best": best, "halving": won,
            "failed": trials.failures,
        }  # fmt: skip


class Trials:
    """Timed calls of one kernel's configurations, kept in a journal."""

    def __init__(self, evaluator: Any, made: Compiled, journal: Any) -> None:
        self._evaluator, self._made, self._journal = evaluator, made, journal
        self.eager: list[float] = []
        self.failures: dict[str, str] = {}

    def times(self, key: str, label: str, calls: int) -> list[float] | None:
        """Milliseconds of each call; None where the configuration is wrong or cannot be launched."""
        found = self._journal.find("timed", f"{label} {key}")
        if found is None:
            trial = self._evaluator.trial(self._made.problem, self._made.texts[key], calls)
            median = trial.eager.median if trial.eager is not None else None
            found = {
                "ms": list(trial.milliseconds), "failure": trial.failure, "eager": median, "seconds": trial.seconds
            }  # fmt: skip
            self._journal.add("timed", f"{label} {key}", found)
        if found["eager"]:
            self.eager.append(found["eager"])
        if found["failure"]:
            self.failures[key] = str(found["failure"])
        return None if found["failure"] else list(found["ms"])


# ---------------------------------------------------------------------- attention
ATTENTION_PROBLEM = """
import torch
from torch import nn
batch, heads, length, dim = {batch}, {heads}, {length}, {dim}
class Model(nn.Module):
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
{mask}        return torch.softmax(scores, dim=-1) @ v
def get_inputs():
    return [torch.randn(batch, heads, length, dim, dtype=torch.float16) for _ in range(3)]
def get_init_inputs():
    return []
"""
MASK = """        mask = torch.triu(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device), diagonal=1)
        scores = scores.masked_fill(mask, float("-inf"))
"""


def attention(evaluator: Any, asked: argparse.Namespace) -> None:
    """Plain softmax(q k^T) v in fp16: drafted as one flash kernel, judged, tuned, and timed beside torch's own."""
    from kernelwright.agent.solve.drafting import Drafter
    from kernelwright.agent.tuning.journal import Journal
    from kernelwright.agent.tuning.settings import TuneSettings
    from kernelwright.agent.tuning.tuning import Tuner
    from kernelwright.tools.evaluation.pipeline import Options
    from kernelwright.tools.problem import Problem

    for dim, causal, length in ATTENTION:
        if time.monotonic() > asked.until:
            print("not all of them were reached", file=sys.stderr)
            return
        name = f"attention_{dim}_{'causal' if causal else 'full'}_{length}"
        path = asked.out / f"{name}.json"
        if path.exists() or (asked.only and name not in asked.only.split(",")):
            continue
        text = ATTENTION_PROBLEM.format(
            batch=BATCH, heads=HEADS, length=length, dim=dim, mask=MASK if causal else ""
        )
        problem = Problem(name=name, source=text)
        with Drafter() as drafter:
            draft = drafter.draft(problem)
        row: dict[str, Any] = {
            "kernel": name,
            "date": date.today().isoformat(),
            **machine(evaluator),
        }
        if not draft.usable:
            row["failure"] = draft.refused
        elif not evaluator.on_gpu:
            report = evaluator.evaluate(
                problem, draft.source, Options(targets=(asked.target,), profile=False)
            )
            row |= {"correct_on_cpu": report.correct, "explanation": report.explanation}
        else:
            settings = TuneSettings(
                target=evaluator.target,
                device=asked.device,
                configurations=24,
                measured=8,
                gpu_seconds=20,
            )
            with Journal(asked.out / f"{name}.jsonl", name) as journal:
                tuned, _ = Tuner(
                    evaluator, problem, draft.source, settings, journal, kernel=name
                ).run()
            after = (
                tuned.chosen[0].timing.median if tuned.chosen and tuned.chosen[0].timing else None
            )
            row |= {
                "start_ms": tuned.before.median if tuned.before else None, "halving_ms": after,
                "eager_ms": tuned.eager.median if tuned.eager else None, "flash_ms": flash(dim, causal, length),
                "correct": tuned.report.correct if tuned.report else None,
            }  # fmt: skip
        path.write_text(json.dumps(row, indent=1), encoding="utf-8")
        print(row, file=sys.stderr, flush=True)


def flash(dim: int, causal: bool, length: int) -> float:
    """Milliseconds of torch's own flash kernel as a CUDA graph, by the judge's clock."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from kernelwright.tools.report import TimingMethod
    from kernelwright.tools.timing.reference_clock import ReferenceClock

    q, k, v = (
        torch.randn(BATCH, HEADS, length, dim, device="cuda", dtype=torch.float16) for _ in range(3)
    )
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        clock = ReferenceClock(
            partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal), [[q, k, v]]
        )
        clock.warm_up()
        clock.open()
        record = clock.record
        clock.release()
    if record.method is not TimingMethod.GRAPH:
        raise RuntimeError(f"torch's flash kernel cannot be captured: {clock.why}")
    return float(record.median)


# ---------------------------------------------------------------------- the table
def machine(evaluator: Any) -> dict[str, Any]:
    environment = evaluator.environment()
    return {"gpu": environment.gpu, "torch": environment.torch, "triton": environment.triton}


def report(folder: Path) -> str:
    """What lies in a folder, as a table; geometric means over what was measured."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    columns = [
        "kernel",
        "compiled",
        "launchable",
        "untuned ms",
        "exhaustive ms",
        "halving ms",
        "launches",
        "eager ms",
    ]
    columns += ["of the speed of light", "card", "date"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        told = [row.get("compiled"), row.get("launchable"), row.get("start_ms"), row.get("best_ms")]
        told += [row.get("halving_ms"), row.get("halving_launches"), row.get("eager_ms")]
        told.append(_share_of_light(row))
        cells = [row["kernel"], *map(_cell, told), row.get("gpu") or "no GPU", row["date"]]
        lines.append(
            "| " + " | ".join(cells) + (f" | {row['failure']} |" if "failure" in row else " |")
        )
    timed = [r for r in rows if r.get("halving_ms") and r.get("start_ms") and r.get("eager_ms")]
    against = [r for r in timed if r.get("best_ms")]
    if against:
        lines += [
            "",
            f"Halving over exhaustive, time: {_mean(r['halving_ms'] / r['best_ms'] for r in against):.3f}.",
        ]
        near = sum(r["halving_ms"] <= 1.02 * r["best_ms"] for r in against)
        lines.append(f"Within 2 %: {near} of {len(against)}.")
    if timed:
        lines.append(
            f"Untuned over tuned: {_mean(r['start_ms'] / r['halving_ms'] for r in timed):.3f}."
        )
        lines.append(
            f"Eager over tuned: {_mean(r['eager_ms'] / r['halving_ms'] for r in timed):.3f}."
        )
    if flashed := [r for r in timed if r.get("flash_ms")]:
        lines.append(
            f"torch's flash over ours: {_mean(r['flash_ms'] / r['halving_ms'] for r in flashed):.3f}."
        )
    if not timed:
        lines += ["", "Nothing was measured: a rehearsal without a GPU."]
    return "\n".join(lines)


def _share_of_light(row: dict[str, Any]) -> float | None:
    """The share of the speed of light that the fastest configuration reaches; None where it is not known."""
    fastest = min((ms for ms in (row.get("best_ms"), row.get("halving_ms")) if ms), default=None)
    return round(row["light_ms"] / fastest, 3) if fastest and row.get("light_ms") else None


def _mean(ratios: Any) -> float:
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
