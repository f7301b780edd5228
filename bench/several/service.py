"""The judge service on every GPU with many clients: shares of the judges, and one judge killed in the middle.

`agent serve` runs as a user would start it. Every client submits a candidate of its own, waits for its verdict, and
submits the next, until the time is up; what waits then is cancelled. The server's record says what became of it all.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import psutil

from bench.several.batch import options_for
from bench.several.candidates import Candidate, endless, read
from bench.several.results import PhaseRequest, Results, asked

CLIENTS = 200
KILL_SHARE = 0.25
"""Of the time, before a judge is killed."""
SAMPLE_SECONDS = 0.2
READY_SECONDS = 60.0
TOKEN = "token-of-client-{:08d}"


class Server:
    """`agent serve` in a folder of its own."""

    def __init__(self, folder: Path, given: PhaseRequest, clients: int) -> None:
        tokens = "".join(f"client{k} {TOKEN.format(k)}\n" for k in range(clients))
        (folder / "tokens.txt").write_text(tokens)
        on_cpu = given.devices[0] == "cpu"
        command = [
            sys.executable,
            "-m",
            "kernelwright.agent",
            "serve",
            "--port",
            "0",
            "--token-file",
            "tokens.txt",
        ]
        command += ["--device", "cpu" if on_cpu else ",".join(given.devices)]
        command += ["--workers", str(len(given.devices) if on_cpu else given.workers)]
        self.folder = folder
        self._log = (folder / "serve.log").open("w+")
        self.process = subprocess.Popen(command, cwd=folder, stderr=self._log)
        self.address = f"http://127.0.0.1:{self._port()}"

    def _port(self) -> int:
        ends = time.monotonic() + 120
        while time.monotonic() < ends and self.process.poll() is None:
            said = (self.folder / "serve.log").read_text()
            if "http://" in said and "\n" in said:
                return int(said[said.index("http://") :].split()[0].rpartition(":")[2])
            time.sleep(0.1)
        raise SystemExit(
            f"agent serve did not begin: {(self.folder / 'serve.log').read_text()[-500:]}"
        )

    def judges(self) -> dict[str, int]:
        """Processes of the judges by their number in the order of their begin, with their device."""
        found: dict[str, int] = {}
        for child in psutil.Process(self.process.pid).children():
            words = child.cmdline()
            if "kernelwright.agent.judging.judge_process" in words:
                found[f"{words[-3]}#{len(found)}"] = child.pid
        return found

    def wait_until_ready(self, count: int) -> None:
        """Waits until so many judges take verdicts: what they import, and the GPU's context, are there."""
        ends = time.monotonic() + READY_SECONDS
        while (
            httpx2.get(f"{self.address}/v1/health", verify=False, timeout=30).json()["judges_ready"]
            < count
        ):
            if time.monotonic() > ends:
                raise SystemExit(f"not all of {count} judges began within {READY_SECONDS:g} s")
            time.sleep(SAMPLE_SECONDS)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._log.close()


class Load:
    """What the clients and an onlooker saw."""

    def __init__(
        self, server: Server, candidates: list[Candidate], options: dict[str, Any], ends: float
    ) -> None:
        self.server, self._options, self.ends = server, options, ends
        self._texts = endless(candidates, "service")
        self.states: Counter[str] = Counter()
        self.answered: list[tuple[float, str]] = []
        """When, and by which judge."""
        self.killed, self.killed_at = "", 0.0
        self.fewest, self.back_after = 0, None

    async def client(self, number: int) -> None:
        headers = {"Authorization": f"Bearer {TOKEN.format(number)}"}
        async with httpx2.AsyncClient(
            base_url=self.server.address, headers=headers, verify=False, timeout=90
        ) as http:
            while time.monotonic() < self.ends:
                await self._one(http)

    async def _one(self, http: httpx2.AsyncClient) -> None:
        candidate = next(self._texts)
        body = {
            "problem": {"source": candidate.problem.source, "name": re.sub(r"\W+", "_", candidate.problem.name)},
            "candidate": candidate.source, "options": {**self._options, "own_work": candidate.own_work},
        }  # fmt: skip
        answer = await http.post("/v1/verdicts", json=body)
        if answer.status_code == 429:
            self.states["asked again"] += 1
            await asyncio.sleep(float(answer.headers.get("retry-after", "1")))
            return
        status = answer.raise_for_status().json()
        path = f"/v1/verdicts/{status['verdict_id']}"
        while status["state"] in ("queued", "running"):
            left = self.ends - time.monotonic()
            if left <= 0 and status["state"] == "queued":
                status = (await http.delete(path)).raise_for_status().json()
                continue
            wait = max(1, min(10, round(left)))
            status = (await http.get(path, params={"wait": wait})).raise_for_status().json()
        self.states[status["state"]] += 1
        if status["state"] == "finished":
            self.answered.append((time.monotonic(), status["attempts"][-1]["judge"]))

    async def onlooker(self, count: int, kill_at: float) -> None:
        """Kills the last judge, and watches how many the server counts."""
        self.fewest = count
        async with httpx2.AsyncClient(
            base_url=self.server.address, verify=False, timeout=30
        ) as http:
            while time.monotonic() < self.ends:
                await asyncio.sleep(SAMPLE_SECONDS)
                if (
                    not self.killed_at
                    and time.monotonic() >= kill_at
                    and len(self.answered) >= count
                ):
                    self.killed, process = list(self.server.judges().items())[-1]
                    os.kill(process, signal.SIGKILL)
                    self.killed_at = time.monotonic()
                elif self.killed_at and self.back_after is None:
                    alive = (await http.get("/v1/health")).json()["judges_ready"]
                    self.fewest = min(self.fewest, alive)
                    if self.fewest < count and alive == count:
                        self.back_after = time.monotonic() - self.killed_at


async def loaded(load: Load, clients: int, count: int, kill_at: float) -> None:
    await asyncio.gather(*(load.client(k) for k in range(clients)), load.onlooker(count, kill_at))


def record_of(folder: Path) -> dict[str, Any]:
    """Reads the server's own record: states, outcomes, how often a content was judged, and each judge's attempts."""
    with sqlite3.connect(folder / ".kernelwright" / "service.db") as database:
        states = Counter(state for (state,) in database.execute("SELECT state FROM verdict"))
        rows = database.execute(
            "SELECT verdict_id, judge, outcome, ended - started FROM attempt"
        ).fetchall()
        asked_for = (
            "SELECT verdict.started - verdict.submitted, attempt.judge FROM verdict JOIN attempt "
        )
        asked_for += "ON attempt.verdict_id = verdict.id WHERE attempt.number = 1 AND verdict.state = 'finished'"
        waited = database.execute(asked_for).fetchall()
    outcomes, made = (
        Counter(row[2] for row in rows),
        Counter(row[0] for row in rows if row[2] == "finished"),
    )
    by_judge: dict[str, list[float]] = defaultdict(list)
    waits: dict[str, list[float]] = defaultdict(list)
    for _, judge, outcome, seconds in rows:
        if outcome == "finished":
            by_judge[judge].append(seconds)
    for seconds, judge in waited:
        waits[judge].append(seconds)
    return {
        "states": dict(states), "outcomes": dict(outcomes), "twice": sum(n > 1 for n in made.values()),
        "by_judge": by_judge, "waits": waits,
    }  # fmt: skip


def shares(load: Load, record: dict[str, Any], results: Results) -> None:
    """What each judge did, and how evenly before one was killed."""
    before = Counter(
        judge for when, judge in load.answered if not load.killed_at or when < load.killed_at
    )
    for judge, seconds in sorted(record["by_judge"].items()):
        results.add(
            "Judges of the service", judge=judge, verdicts=len(seconds), before_the_kill=before[judge],
            seconds_a_verdict_mean=statistics.fmean(seconds),
            seconds_in_the_queue_median=statistics.median(record["waits"][judge] or [0.0]),
        )  # fmt: skip
    if len(before) > 1:
        results.say(
            fewest_over_most_verdicts_before_the_kill=min(before.values()) / max(before.values())
        )


def main() -> int:
    given: argparse.Namespace = asked(__doc__)
    results, count = Results(given.out), len(given.devices)
    options = options_for(given.devices).model_dump(
        include={"sizes", "seed", "torch_compile"}, exclude_none=True
    )
    with TemporaryDirectory() as name:
        server = Server(Path(name), given, CLIENTS)
        try:
            server.wait_until_ready(count)
            began = time.monotonic()
            work = max(10.0, given.seconds - (began - results.began) - 15)
            load = Load(
                server, list(itertools.chain(read(given.candidates))), options, began + work
            )
            asyncio.run(loaded(load, CLIENTS, count, began + KILL_SHARE * work))
            seconds = time.monotonic() - began
        finally:
            server.stop()
        record = record_of(Path(name))
    lost = sum(load.states[s] for s in ("finished", "cancelled", "failed")) - sum(
        record["states"].values()
    )
    results.say(
        clients=CLIENTS, seconds=seconds, verdicts_a_second=len(load.answered) / seconds, states=record["states"],
        attempts=record["outcomes"], contents_judged_twice=record["twice"], judge_killed=load.killed,
        fewest_judges_that_the_server_counted=load.fewest,
        seconds_until_the_killed_judge_was_back=load.back_after,
    )  # fmt: skip
    shares(load, record, results)
    results.must(
        lost == 0 and not record["states"].get("running"),
        "every submission has ended as its client was told",
    )
    results.must(record["twice"] == 0, "no content was judged twice")
    results.must(
        record["outcomes"].get("lost", 0) > 0, "the killed judge's attempts are on record as lost"
    )
    results.must(
        load.fewest == count - 1 and load.back_after is not None,
        "the killed judge is taken out and comes back",
    )
    results.must(not record["states"].get("failed"), "no verdict failed")
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
