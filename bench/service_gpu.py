"""The judge service beside a local batch: verdicts a second of the same candidates, on one GPU, in one run.

    python -m bench.service_gpu [--device cuda:0] [--workers N] [--problems 16] [--each 2] [--turns 4] [--seconds S]
        [--clients 64] [--candidates FILE] [--assertion] [--out bench/results/service_gpu.md]

The candidates are the repository's own kernels, a problem each (or those of FILE, which bench.several.candidates made).
The local batch judges them as `agent batch` does: one evaluator in this process, its lanes, so many threads. The
service is `agent serve` as a user starts it, and `JudgeClient.score_many_async` submits and waits, so many at once.
Both are begun and warmed side by side, which is not timed: each problem is judged once by each. Then they take turns
(batch, service, service, batch), and whoever waits for its turn is idle. Of the candidates nothing is known: every text
and every kernel differs from all before it. `--each`: kernels of a problem in one turn. `--seconds`: a turn that would
not end within so many seconds of the beginning is left out.

What is known is written after each turn, and printed at the end, also after Ctrl-C or SIGTERM (a turn that was cut off
does not count). Exit code 1 where the service makes less than 95 % of the batch's verdicts a second, or the two do not
agree; 130 where it was cut off. With `--device cpu` it is rehearsed without a GPU: a server has several judges there,
of which one knows a problem that was judged once, so that the ratio says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.service_assertion import AssertionResult, judge_beside_an_assertion, wait_until_ready
from bench.several.batch import options_for
from bench.several.candidates import Candidate, ours, read
from bench.verdicts import GpuUsage
from kernelwright.agent.serving.client import JudgeClient
from kernelwright.tools.report import Environment, Report

GOAL = 0.95
READY_SECONDS = 120.0
"""That a server may take until its judge takes verdicts."""
ENDING_SECONDS = 20.0
"""That the two are given to end."""
BEGAN = time.monotonic()
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
    environment: Environment

    @property
    def a_second(self) -> float:
        return self.verdicts / self.seconds


@contextmanager
def local_batch(given: argparse.Namespace) -> Iterator[Judged]:
    """Judges as `agent batch` does."""
    from kernelwright.agent.judging.lanes import JudgingLane, Lanes
    from kernelwright.tools.evaluation.pipeline import Evaluator

    on_gpu, options = given.device != "cpu", options_for([given.device])
    lanes = Lanes(1, given.workers, gpu=on_gpu)
    threads = JudgingLane.threads(given.workers, gpu=on_gpu)
    with Evaluator(device=given.device, workers=threads, lane=lanes) as evaluator:

        def judged(candidates: Sequence[Candidate]) -> list[Report]:
            asked: list[Future[Report]] = [
                evaluator.submit(one.problem, one.source, options) for one in candidates
            ]
            return [future.result() for future in asked]

        yield judged


@contextmanager
def service(given: argparse.Namespace, clients: list[JudgeClient]) -> Iterator[Judged]:
    """`agent serve`, and the product's own client, which waits for it at the first call.

    clients: takes the client once there is one.
    """
    from kernelwright.agent.serving.evaluating import service_options

    options = service_options(options_for([given.device]))
    options.pop("targets", None)  # the server's own, as the batch's
    with TemporaryDirectory(prefix="service-gpu-", ignore_cleanup_errors=True) as name:
        command = [
            sys.executable,
            "-m",
            "kernelwright.agent",
            "serve",
            "--no-token",
            "--port",
            "0",
            "--device",
            given.device,
        ]
        log = Path(name) / "serve.log"
        with log.open("w") as said:
            process = subprocess.Popen(
                [*command, "--workers", str(given.workers)], cwd=name, stderr=said
            )

        def judged(candidates: Sequence[Candidate]) -> list[Report]:
            if not clients:
                clients.append(JudgeClient(_address(process, log)))
                wait_until_ready(clients[0], READY_SECONDS)
            texts = [(one.problem, one.source) for one in candidates]
            verdicts = asyncio.run(
                clients[0].score_many_async(texts, at_once=given.clients, **options)
            )
            return [verdict.report for verdict in verdicts]

        try:
            yield judged
        finally:
            _ended(process)
            for client in clients:
                client.close()
        print(f"the server's own record of its attempts: {_outcomes(Path(name))}", flush=True)


def _address(process: subprocess.Popen[Any], log: Path) -> str:
    ends = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        told = log.read_text()
        if "http://" in told and told.endswith("\n"):
            return told[told.index("http://") :].split()[0]
        time.sleep(0.1)
    raise RuntimeError(f"agent serve did not begin: {log.read_text()[-500:]}")


def _ended(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDING_SECONDS / 2)
    except subprocess.TimeoutExpired:
        process.kill()


def _outcomes(folder: Path) -> dict[str, int]:
    with sqlite3.connect(folder / ".kernelwright" / "service.db") as database:
        return dict(database.execute("SELECT outcome, count(*) FROM attempt GROUP BY outcome"))


def begun(
    given: argparse.Namespace,
    candidates: Sequence[Candidate],
    held: ExitStack,
    clients: list[JudgeClient],
) -> dict[str, Judged]:
    """Begins both, with each problem judged once; they end with `held`."""
    judged = {
        "service": held.enter_context(service(given, clients)),
        "batch": held.enter_context(local_batch(given)),
    }
    ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def warm(where: str) -> None:
        try:
            judged[where]([one.fresh(f"warm {where}") for one in candidates])
            print(f"{where} is warm after {time.monotonic() - BEGAN:.1f} s", flush=True)
            ends.put(None)
        except BaseException as error:
            ends.put(error)

    for where in judged:
        threading.Thread(target=warm, args=(where,), daemon=True).start()
    for _ in judged:
        if (error := ends.get()) is not None:
            raise error
    return judged


def turns(
    given: argparse.Namespace, judged: dict[str, Judged], candidates: Sequence[Candidate]
) -> Iterator[Turn]:
    """In the order of PARTS, again and again, as long as there is time."""
    longest = 0.0
    for number, where in zip(range(given.turns), itertools.cycle(PARTS), strict=False):
        if given.seconds and time.monotonic() - BEGAN + longest > given.seconds:
            print(f"no time is left for turn {number + 1}", flush=True)
            return
        fresh = [one.fresh(f"turn {number}", k) for k in range(given.each) for one in candidates]
        turn = _timed(where, judged[where], fresh, given)
        longest = max(longest, turn.seconds)
        yield turn


def _timed(
    where: str, judged: Judged, candidates: Sequence[Candidate], given: argparse.Namespace
) -> Turn:
    busy = GpuUsage(given.device) if given.device != "cpu" else None
    began = time.monotonic()
    reports = judged(candidates)
    seconds = time.monotonic() - began
    correct = tuple(report.correct for report in reports)
    environment = reports[0].environment
    return Turn(where, len(reports), correct, seconds, busy.stop() if busy else None, environment)


def chosen(given: argparse.Namespace) -> list[Candidate]:
    """Chooses so many of them, spread over all."""
    found = read(given.candidates) if given.candidates else ours(on_gpu=given.device != "cpu")
    found = [one for one in found if one.own_work == "strict"]
    step = max(1.0, len(found) / given.problems)
    return [found[int(place * step)] for place in range(min(given.problems, len(found)))]


def ratio(done: Sequence[Turn]) -> float | None:
    """Returns the ratio of the service's verdicts a second to the batch's: geometric means over the turns."""
    rates = {
        where: [math.log(one.a_second) for one in done if one.where == where]
        for where in ("batch", "service")
    }
    if not all(rates.values()):
        return None
    return math.exp(
        sum(rates["service"]) / len(rates["service"]) - sum(rates["batch"]) / len(rates["batch"])
    )


def table(
    done: Sequence[Turn], given: argparse.Namespace, assertion: AssertionResult | None = None
) -> str:
    there = done[0].environment
    card = there.gpu or "no GPU (a rehearsal)"
    found, alike = ratio(done), len({one.correct for one in done}) == 1
    lines = [
        "# The judge service beside a local batch", "",
        f"`python -m bench.service_gpu {' '.join(sys.argv[1:])}`, {card}, {os.cpu_count()} cores, torch "
        f"{there.torch}, Triton {there.triton}, Python {there.python}, {date.today().isoformat()}. "
        f"{given.workers} places at the CPU rungs, {given.clients} candidates of one "
        f"client's at once.", "",
        f"The service makes **{f'{100 * found:.1f} %' if found else '(not known yet)'}** of the batch's verdicts a "
        f"second (goal: {100 * GOAL:.0f} %); the turns {'agree on every verdict' if alike else 'DO NOT AGREE'}.", "",
        "| turn | where | verdicts | correct | seconds | verdicts a second | GPU busy (%) |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for number, one in enumerate(done, 1):
        busy = "" if one.busy is None else f"{one.busy:.0f}"
        lines.append(
            f"| {number} | {one.where} | {one.verdicts} | {sum(one.correct)} | {one.seconds:.2f} | {one.a_second:.3f} "
            f"| {busy} |"
        )
    if assertion is not None:
        lines += ["", *assertion.lines()]
    return "\n".join(lines) + "\n"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 2, help="places at the CPU rungs"
    )
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--each", type=int, default=2, help="kernels of a problem in one turn")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--seconds", type=float, help="all that there are")
    parser.add_argument(
        "--clients", type=int, default=64, help="candidates that the client has under way at once"
    )
    parser.add_argument("--candidates", type=Path, help="made by bench.several.candidates")
    parser.add_argument(
        "--assertion", action="store_true", help="end with a reference that fails on the device"
    )
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def _write(given: argparse.Namespace, text: str) -> None:
    if given.out:
        given.out.write_text(text, encoding="utf-8")


def main() -> None:
    given = options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    candidates, done, cut, held = chosen(given), list[Turn](), False, ExitStack()
    clients: list[JudgeClient] = []
    assertion: AssertionResult | None = None
    print(f"{len(candidates)} candidates", flush=True)
    try:
        for turn in turns(given, begun(given, candidates, held, clients), candidates):
            done.append(turn)
            print(
                f"{turn.where}: {turn.verdicts} in {turn.seconds:.1f} s, {sum(turn.correct)} right",
                flush=True,
            )
            _write(given, table(done, given))
        if given.assertion:
            assertion = judge_beside_an_assertion(clients[0])
            print("\n".join(assertion.lines()), flush=True)
            _write(given, table(done, given, assertion))
    except KeyboardInterrupt:
        cut = True
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # `timeout` sends two
    with suppress(BrokenPipeError):  # whoever read has left: the process must end all the same
        print(f"{'CUT OFF ' if cut else ''}after {time.monotonic() - BEGAN:.1f} s", flush=True)
        print(table(done, given, assertion) if done else "no turn was finished", flush=True)
    ending = threading.Thread(target=held.close, daemon=True)
    ending.start()
    ending.join(ENDING_SECONDS)
    right = (ratio(done) or 0.0) >= GOAL and len({one.correct for one in done}) == 1
    right = right and (not given.assertion or (assertion is not None and assertion.passed))
    sys.stdout.flush()
    os._exit(130 if cut else 0 if right else 1)  # threads that a cut left are not waited for


if __name__ == "__main__":
    main()
