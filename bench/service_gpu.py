"""The judge service beside a local batch: verdicts a second of the same candidates, on one GPU, in one run.

    python -m bench.service_gpu [--device cuda:0] [--workers N] [--problems 32] [--clients 64] [--candidates FILE]
        [--out bench/results/service_gpu.md]

The candidates are the repository's own kernels, a problem each (or those of FILE, which bench.several.candidates made).
The local batch judges them as `agent batch` does: one evaluator in this process, its lanes, so many threads. The
service is `agent serve` as a user starts it, and `JudgeClient.score_many_async` submits and waits, so many at once. The
order is batch, service, service, batch; the server stays for both of its turns. Before a turn is timed each problem has
been judged once where it is to be judged; of the candidates nothing is known: every text and every kernel differs from
all before it. What is known so far is written after each turn. Exit code 1 where the service makes less than 90 % of
the batch's verdicts a second, or the two do not agree. With `--device cpu` it is rehearsed without a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.several.batch import options_for
from bench.several.candidates import Candidate, ours, read
from bench.verdicts import Busy
from kernelwright.tools.report import Report

GOAL = 0.9
READY_SECONDS = 120.0
"""That a server may take until its judge takes verdicts."""
PARTS = ("batch", "service", "service", "batch")
Judged = Callable[[Sequence[Candidate]], list[Report]]


class Turn(NamedTuple):
    """One part of the run."""

    where: str
    verdicts: int
    correct: tuple[bool, ...]
    seconds: float
    busy: float | None
    """Percent of the time that the GPU was busy, as nvidia-smi has it."""
    warm_seconds: float | None
    """Until each problem had been judged once; None where that was so."""

    @property
    def a_second(self) -> float:
        return self.verdicts / self.seconds


@contextmanager
def local_batch(given: argparse.Namespace) -> Iterator[Judged]:
    """As `agent batch` judges."""
    from kernelwright.agent.batch.lanes import JudgingLane, Lanes
    from kernelwright.tools.pipeline import Evaluator

    on_gpu, options = given.device != "cpu", options_for([given.device])
    lanes = Lanes(1, given.workers, gpu=on_gpu)
    threads = JudgingLane.threads(given.workers, gpu=on_gpu)
    with Evaluator(device=given.device, workers=threads, lane=lanes) as evaluator:

        def judged(candidates: Sequence[Candidate]) -> list[Report]:
            asked: list[Future[Report]] = [evaluator.submit(one.problem, one.source, options) for one in candidates]
            return [future.result() for future in asked]

        yield judged


@contextmanager
def service(given: argparse.Namespace) -> Iterator[Judged]:
    """`agent serve`, and the product's own client."""
    from kernelwright.agent.serving.client import JudgeClient
    from kernelwright.agent.serving.evaluating import asked_of

    options = asked_of(options_for([given.device]))
    options.pop("targets", None)  # the server's own, as the batch's
    with TemporaryDirectory(prefix="service-gpu-") as name:
        process, address = _served(Path(name), given)
        try:
            with JudgeClient(address) as client:
                _wait_until_ready(client)

                def judged(candidates: Sequence[Candidate]) -> list[Report]:
                    texts = [(one.problem, one.source) for one in candidates]
                    verdicts = asyncio.run(client.score_many_async(texts, at_once=given.clients, **options))
                    return [verdict.report for verdict in verdicts]

                yield judged
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        print(f"the server's own record of its attempts: {_outcomes(Path(name))}", flush=True)


def _served(folder: Path, given: argparse.Namespace) -> tuple[subprocess.Popen[Any], str]:
    command = [sys.executable, "-m", "kernelwright.agent", "serve", "--port", "0", "--device", given.device]
    log = folder / "serve.log"
    with log.open("w") as said:
        process = subprocess.Popen([*command, "--workers", str(given.workers)], cwd=folder, stderr=said)
    ends = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        told = log.read_text()
        if "http://" in told and told.endswith("\n"):
            return process, told[told.index("http://") :].split()[0]
        time.sleep(0.1)
    process.kill()
    raise SystemExit(f"agent serve did not begin: {log.read_text()[-500:]}")


def _wait_until_ready(client: Any) -> None:
    ends = time.monotonic() + READY_SECONDS
    while (health := client.health()).judges_ready < len(health.devices):
        if time.monotonic() > ends:
            raise SystemExit("the server's judges did not begin")
        time.sleep(0.2)


def _outcomes(folder: Path) -> dict[str, int]:
    with sqlite3.connect(folder / ".kernelwright" / "service.db") as database:
        return dict(database.execute("SELECT outcome, count(*) FROM attempt GROUP BY outcome"))


def turns(given: argparse.Namespace, candidates: Sequence[Candidate]) -> Iterator[Turn]:
    """In the order of PARTS; neighbours of the same kind share what they have begun."""
    places = {"batch": local_batch, "service": service}
    number = 0
    while number < len(PARTS):
        where = PARTS[number]
        with places[where](given) as judged:
            began = time.monotonic()
            judged([one.fresh(f"warm {number}") for one in candidates])
            warm_seconds: float | None = time.monotonic() - began
            while number < len(PARTS) and PARTS[number] == where:
                yield _timed(where, judged, [one.fresh(f"turn {number}") for one in candidates], warm_seconds, given)
                warm_seconds, number = None, number + 1


def _timed(
    where: str, judged: Judged, candidates: Sequence[Candidate], warm_seconds: float | None, given: argparse.Namespace
) -> Turn:
    busy = Busy(given.device) if given.device != "cpu" else None
    began = time.monotonic()
    reports = judged(candidates)
    seconds = time.monotonic() - began
    correct = tuple(report.correct for report in reports)
    return Turn(where, len(reports), correct, seconds, busy.stop() if busy else None, warm_seconds)


def chosen(given: argparse.Namespace) -> list[Candidate]:
    """So many of them, spread over all."""
    found = read(given.candidates) if given.candidates else ours(on_gpu=given.device != "cpu")
    found = [one for one in found if one.own_work == "strict"]
    step = max(1.0, len(found) / given.problems)
    return [found[int(place * step)] for place in range(min(given.problems, len(found)))]


def ratio(done: Sequence[Turn]) -> float | None:
    """Of the service's verdicts a second to the batch's: geometric means over the turns."""
    rates = {where: [math.log(one.a_second) for one in done if one.where == where] for where in ("batch", "service")}
    if not all(rates.values()):
        return None
    return math.exp(sum(rates["service"]) / len(rates["service"]) - sum(rates["batch"]) / len(rates["batch"]))


def table(done: Sequence[Turn], given: argparse.Namespace) -> str:
    import torch
    import triton

    card = torch.cuda.get_device_name(given.device) if given.device != "cpu" else "no GPU (a rehearsal)"
    found, alike = ratio(done), len({one.correct for one in done}) == 1
    lines = [
        "# The judge service beside a local batch", "",
        f"`python -m bench.service_gpu {' '.join(sys.argv[1:])}`, {card}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, Triton {triton.__version__}, Python {platform.python_version()}, "
        f"{date.today().isoformat()}. {given.workers} places at the CPU rungs, {given.clients} candidates of one "
        f"client's at once.", "",
        f"The service makes **{f'{100 * found:.1f} %' if found else '(not known yet)'}** of the batch's verdicts a "
        f"second (goal: {100 * GOAL:.0f} %); the turns {'agree on every verdict' if alike else 'DO NOT AGREE'}.", "",
        "| turn | where | verdicts | correct | seconds | verdicts a second | GPU busy (%) | warmed before in (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for number, one in enumerate(done, 1):
        busy = "" if one.busy is None else f"{one.busy:.0f}"
        warm = "" if one.warm_seconds is None else f"{one.warm_seconds:.1f}"
        lines.append(
            f"| {number} | {one.where} | {one.verdicts} | {sum(one.correct)} | {one.seconds:.2f} | {one.a_second:.3f} "
            f"| {busy} | {warm} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="places at the CPU rungs")
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--clients", type=int, default=64, help="candidates that the client has under way at once")
    parser.add_argument("--candidates", type=Path, help="made by bench.several.candidates")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    candidates, done = chosen(given), list[Turn]()
    print(f"{len(candidates)} candidates", flush=True)
    for turn in turns(given, candidates):
        done.append(turn)
        print(f"{turn.where}: {turn.verdicts} in {turn.seconds:.1f} s, {sum(turn.correct)} correct", flush=True)
        if given.out:
            given.out.write_text(table(done, given), encoding="utf-8")
    print(table(done, given))
    return 0 if (ratio(done) or 0.0) >= GOAL and len({one.correct for one in done}) == 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
