"""Judges on a Ray cluster of two nodes on loopback: kills during a batch, and what Ray costs beside local processes.

    python -m bench.ray_kills [--verdicts 300] [--kills 20] [--compare 60] [--scaling] [--tasks]
        [--out bench/results/ray_kills.md]

First `--verdicts` distinct candidates are judged while `--kills` judges (Ray workers) are killed in the middle of their
work; then `--compare` distinct candidates are judged by two judges here and by two judges on Ray, warm, without kills,
in pairs of turns, all at the same priority.
Every candidate is right, compiled, and interpreted at its own size, and for the comparison once more at the eight sizes
of a verdict that says nothing of sizes. `--verdicts 0` and `--compare 0` leave a part out.
With --scaling 1, 2 and 4 judges that are actors as ever, but whose verdicts wait as for a GPU: the host code of the
candidate sleeps for eight seconds, which takes no processor time, and is refused then. What is left is what actors and
the pool cost.
With --tasks two judges on two nodes, one of which has six more cores (pretended ones: they do not matter to host code
that sleeps): verdicts whose host code sleeps for four seconds, traced by the judges' own processes and by tasks of the
cluster; then a few right kernels one after the other, each way, for what a task costs. Exit code 1 where a verdict is
missing, or an attempt that was lost is not on record.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from kernelwright.agent.judging import local_judge
from kernelwright.agent.judging.evaluating import PoolEvaluator
from kernelwright.agent.judging.local_pool import LocalPool
from kernelwright.agent.judging.pool import DeviceKind, JudgePool
from kernelwright.agent.judging.ray_pool import RayPool
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.options import Options
from kernelwright.tools.report import Report

GOOD = Path(__file__).parents[1] / "tests" / "kernels" / "good" / "fused_silu.py"
NODE = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
WAIT_SECONDS = 8.0
"""Of a simulated verdict: what a large problem takes on a GPU."""
TRACED_SECONDS = 4.0
"""That the host code of a simulated verdict sleeps with --tasks."""
PAIRS = 10
"""Of turns, here and on Ray, that are compared."""
WAITS = f"\nimport time\ntime.sleep({WAIT_SECONDS})\nraise ValueError('waited')\n"


def candidates(count: int, series: str, more: str = "") -> list[str]:
    """Right kernels that differ."""
    return [f"{GOOD.read_text()}\nNUMBER = {series!r}, {k}\n{more}" for k in range(count)]


def two_nodes(cpus: int = 1) -> Any:
    """On 127.0.0.2 and 127.0.0.3, each with so many CPU slots."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"node_ip_address": "127.0.0.2", "num_cpus": cpus, **NODE},
    )
    cluster.add_node(node_ip_address="127.0.0.3", num_cpus=cpus, **NODE)
    return cluster


def warm(pool: JudgePool) -> None:
    """Every judge has made a verdict."""
    count = len(pool.judges())
    seen: set[str] = set()
    while len(seen) < count:
        judge_all(pool, candidates(count, f"warm {time.monotonic()}"), count, seen)


def judge_all(
    pool: JudgePool,
    texts: Sequence[str],
    at_once: int,
    seen: set[str] | None = None,
    sizes: int = 0,
) -> list[Report]:
    """Every text through an evaluator of the pool."""
    problem, options = find_by_name("fused_silu"), Options(sizes=sizes, seed=1)
    if seen is not None:
        asked = [pool.submit(problem, text, options, began=seen.add) for text in texts]
        return [future.result() for future in asked]
    evaluator = PoolEvaluator(pool)
    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(lambda text: evaluator.evaluate(problem, text, options), texts))


class Killer:
    """Kills judges that are at work, evenly over a batch."""

    def __init__(self, pool: RayPool, kills: int, done: list[int], total: int) -> None:
        self.pool, self.kills, self._done, self._total = pool, kills, done, total
        self.killed = self.at_work = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while self.killed < self.kills and self._done[0] < self._total:
            time.sleep(0.02)
            if self._done[0] < self._total * self.killed / (self.kills + 1):
                continue
            busy = [judge.name for judge in self.pool.judges() if judge.at_work]
            processes = [process for name, process in self.pool.process_ids.items() if name in busy]
            if processes:
                os.kill(random.choice(processes), signal.SIGKILL)
                self.killed += 1


def with_kills(pool: RayPool, verdicts: int, kills: int) -> dict[str, Any]:
    """A batch during which judges are killed."""
    problem, options, done, lock = (
        find_by_name("fused_silu"),
        Options(sizes=0, seed=1),
        [0],
        threading.Lock(),
    )
    evaluator = PoolEvaluator(pool)

    def one(text: str) -> Report:
        report = evaluator.evaluate(problem, text, options)
        with lock:
            done[0] += 1
        return report

    killer, began = Killer(pool, kills, done, verdicts), time.monotonic()
    with ThreadPoolExecutor(pool.capacity(DeviceKind.CPU)) as threads:
        futures = [threads.submit(one, text) for text in candidates(verdicts, "kills")]
    reports = [future.result() for future in futures if future.exception() is None]
    lost = sum(warning.startswith("attempt ") for report in reports for warning in report.warnings)
    gave_up = sum(3 for future in futures if future.exception() is not None)
    return {
        "verdicts asked": verdicts, "verdicts made": len(reports), "correct": sum(r.correct for r in reports),
        "judges killed at work": killer.killed, "attempts lost, on record": lost + gave_up,
        "given up after three attempts": gave_up // 3, "seconds": f"{time.monotonic() - began:.1f}",
    }  # fmt: skip


def timed(pool: JudgePool, texts: Sequence[str], sizes: int = 0) -> float:
    """Seconds."""
    began = time.monotonic()
    judge_all(pool, texts, pool.capacity(DeviceKind.CPU), sizes=sizes)
    return time.monotonic() - began


def compared(pool: RayPool, count: int, sizes: int) -> dict[str, Any]:
    """In turns, so that whatever else this machine does meets both; who begins a pair of turns changes."""
    began = local_judge.WorkerProcess
    with mock.patch.object(
        local_judge, "WorkerProcess", lambda module, *words: began("bench.plain_judge", *words)
    ):
        local = LocalPool(["cpu"], pool.capacity(DeviceKind.CPU))
    each = max(1, count // PAIRS)
    seconds: dict[str, list[float]] = {"here": [], "there": []}
    ran: dict[str, list[float]] = {"here": [], "there": []}
    try:
        warm(local)
        warm(pool)
        for pair in range(PAIRS):
            places = [("here", local), ("there", pool)]
            for name, place in places if pair % 2 else reversed(places):
                before = ran_seconds(local, here=name == "here")
                seconds[name].append(
                    timed(place, candidates(each, f"{name} {sizes} {pair}"), sizes)
                )
                ran[name].append(ran_seconds(local, here=name == "here") - before)
    finally:
        local.close()
    here, there = (statistics.median(seconds[name]) / each for name in ("here", "there"))
    own, rays = (statistics.median(ran[name]) / each for name in ("here", "there"))
    ratios = sorted(
        one / other for other, one in zip(seconds["here"], seconds["there"], strict=True)
    )
    return {
        f"verdicts each, {sizes} sizes, in {PAIRS} pairs of turns": PAIRS * each,
        f"two local judges, {sizes} sizes, median turn (s a verdict)": f"{here:.4f}",
        f"two judges on Ray, {sizes} sizes, median turn (s a verdict)": f"{there:.4f}",
        f"Ray over local, {sizes} sizes, of the medians": f"{100 * (there / here - 1):+.1f} %",
        f"Ray over local, {sizes} sizes, median of the pairs, quartiles": ", ".join(
            f"{100 * (ratios[round(part * (PAIRS - 1))] - 1):+.1f} %" for part in (0.5, 0.25, 0.75)
        ),
        f"processor time a verdict, {sizes} sizes, local and Ray (ms)": f"{1000 * own:.1f}, {1000 * rays:.1f}",
        f"Ray over local, {sizes} sizes, processor time": f"{100 * (rays / own - 1):+.1f} %",
    }  # fmt: skip


def ran_seconds(local: LocalPool, here: bool) -> float:
    """Returns the processor seconds used by this process and the local judges with all that they began, or by it and
    everything else.
    """
    judges = {child.pid for pid in _pids(local) for child in _tree(pid)}
    every = {child.pid for child in _tree(os.getpid())}
    wanted = judges | {os.getpid()} if here else every - judges
    return sum(map(_ticks, wanted)) / os.sysconf("SC_CLK_TCK")


def _pids(local: LocalPool) -> list[int]:
    return [
        judge.process_id for judge in local._judges if isinstance(judge, local_judge.LocalJudge)
    ]


def _tree(root: int) -> list[psutil.Process]:
    top = psutil.Process(root)
    return [top, *top.children(recursive=True)]


def _ticks(process: int) -> int:
    """Its own, and those of its children that have ended (proc(5), fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended, and its parent has its ticks
        return 0
    return sum(map(int, fields[11:15]))


def scaling(counts: Sequence[int] = (1, 2, 4), each: int = 5) -> dict[str, Any]:
    """Verdicts a second of judges that wait, and that as a part of what so many such judges could make."""
    rows: dict[str, Any] = {}
    for count in counts:
        cluster = two_nodes(1) if count == 2 else _one_node(count)
        pool = RayPool(cluster.address)
        try:
            warm(pool)
            texts = candidates(each * count, f"scaling {count}", WAITS)
            rate = len(texts) / timed(pool, texts)
            rows[f"{count} judges, {WAIT_SECONDS:g} s a verdict (verdicts/s)"] = f"{rate:.3f}"
            rows[f"{count} judges, of linear"] = f"{100 * rate * WAIT_SECONDS / count:.1f} %"
        finally:
            pool.close()
            cluster.shutdown()
    return rows


def with_tasks(free: int = 6, rounds: int = 3, alone: int = 20) -> dict[str, Any]:
    """Verdicts a second while the judges' own processes trace, and while tasks on free cores do."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(
        initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", "num_cpus": 1, **NODE}
    )
    cluster.add_node(node_ip_address="127.0.0.3", num_cpus=1 + free, **NODE)
    rates, means, sleeps = (
        [],
        [],
        f"\nimport time\ntime.sleep({TRACED_SECONDS})\nraise ValueError('waited')\n",
    )
    try:
        for tasks in (False, True):
            pool = RayPool(cluster.address, workers=1, tasks=tasks)
            try:
                warm(pool)
                timed(
                    pool, candidates(free, f"workers of tasks {tasks}", sleeps)
                )  # each begins what traces
                texts = candidates(rounds * (free if tasks else 2), f"tasks {tasks}", sleeps)
                rates.append(len(texts) / timed(pool, texts))
                began = time.monotonic()
                judge_all(pool, candidates(alone, f"alone {tasks}"), at_once=1)
                means.append((time.monotonic() - began) / alone)
            finally:
                pool.close()
    finally:
        cluster.shutdown()
    return {
        f"two judges' own processes trace for {TRACED_SECONDS:g} s (verdicts/s)": f"{rates[0]:.3f}",
        f"tasks on {free} free cores trace (verdicts/s)": f"{rates[1]:.3f}",
        "ratio, and what so many cores could give at most": f"{rates[1] / rates[0]:.2f}, {free / 2:g}",
        "one right kernel after the other, traced and compiled by the judge (s)": f"{means[0]:.3f}",
        "the same by tasks (s)": f"{means[1]:.3f}",
    }


def _one_node(cpus: int) -> Any:
    from ray.cluster_utils import Cluster

    return Cluster(
        initialize_head=True,
        head_node_args={"node_ip_address": "127.0.0.2", "num_cpus": cpus, **NODE},
    )


def write(rows: dict[str, Any], out: Path | None) -> None:
    """What is known so far."""
    command = "python -m bench.ray_kills " + " ".join(sys.argv[1:])
    load = f"load average {os.getloadavg()[0]:.0f}"
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, no GPU, {load}, {date.today().isoformat()}"
    )
    lines = [
        "# Judges on Ray",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows.items()),
    ]
    print(text := "\n".join([*lines, "", f"`{command}`, {machine}", ""]), flush=True)
    if out:
        out.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verdicts", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--compare", type=int, default=60)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--tasks", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: dict[str, Any] = {}
    if given.verdicts or given.compare:
        on_two_nodes(given, rows)
    if given.scaling:
        rows |= scaling()
        write(rows, given.out)
    if given.tasks:
        rows |= with_tasks()
        write(rows, given.out)
    if not given.verdicts:
        return 0
    whole = (
        rows.get("verdicts made", 0) + rows.get("given up after three attempts", 0)
        == given.verdicts
    )
    return (
        0
        if whole and rows.get("attempts lost, on record") == rows.get("judges killed at work")
        else 1
    )


def on_two_nodes(given: argparse.Namespace, rows: dict[str, Any]) -> None:
    """The batch with kills, and the comparison; what is known goes to `rows` as it is."""
    cluster = two_nodes()
    pool = RayPool(cluster.address)
    try:
        warm(pool)
        if given.verdicts:
            rows |= with_kills(pool, given.verdicts, given.kills)
            write(rows, given.out)
        if given.compare:
            for sizes in (8, 0):
                rows |= compared(pool, given.compare, sizes)
                write(rows, given.out)
    finally:
        pool.close()
        cluster.shutdown()


if __name__ == "__main__":
    raise SystemExit(main())
