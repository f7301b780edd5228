"""The judge service under load: many clients, many submissions, some equal; with --kill the server is killed half-way.

    python -m bench.service_load [--clients 200] [--submissions 2000] [--distinct 400] [--judged 20] [--ramp 20]
    [--think 4] [--kill] [--out bench/results/service_load.md]

Starts `agent serve --device cpu` on loopback. Each client submits one candidate, waits for its verdict, thinks for
`--think` seconds on average (exponential, as a policy that writes the next candidate), and submits the next.
`--distinct` contents are drawn for all submissions; of them `--judged` go through every CPU rung (compiled and
interpreted at its own size), and the others are refused by reading their text. Clients arrive over `--ramp` seconds.
The seconds that the server's and the clients' main threads ran, and waited for a processor, are printed: on a machine
that does other work the second is most of what a call takes. Exit code 1 where a submission was lost or a content was
judged more than once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import psutil

GOOD = Path(__file__).parents[1] / "tests" / "kernels" / "good" / "fused_silu.py"
CLIENT_SIDE = "p99 of the enqueue call, seen by the client (ms)"


class Served:
    """`agent serve`, which may be killed and begun again."""

    def __init__(self, folder: Path, workers: int, clients: int) -> None:
        self.folder, self.workers = folder, workers
        tokens = "".join(f"client{k} token-of-client-{k:08d}\n" for k in range(clients))
        (folder / "tokens.txt").write_text(tokens)
        self.port = 0
        self.begin()

    def begin(self) -> None:
        command = [
            sys.executable,
            "-m",
            "kernelwright.agent",
            "serve",
            "--device",
            "cpu",
            "--workers",
            str(self.workers),
        ]
        command += ["--port", str(self.port), "--token-file", "tokens.txt"]
        self.process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = next(line for line in self.process.stderr if "http://" in line)
        self.port = int(line.rstrip().rpartition(":")[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def memory(self) -> float:
        """Resident MiB of the server itself, its judges not counted."""
        return psutil.Process(self.process.pid).memory_info().rss / 2**20

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def contents(distinct: int, judged: int) -> list[dict[str, Any]]:
    """Submissions that differ; the first `judged` of them are right kernels."""
    right = GOOD.read_text()
    texts = [f"{right}\nNUMBER = {k}\n" for k in range(judged)]
    texts += [
        f"import triton\nimport triton.language as tl\nNUMBER = {k}\n"
        for k in range(distinct - judged)
    ]
    return [
        {"problem": {"name": "fused_silu"}, "candidate": text, "options": {"sizes": 0}}
        for text in texts
    ]


class Load:
    """What the clients saw."""

    def __init__(self, served: Served, bodies: list[dict[str, Any]], think: float) -> None:
        self.served, self.bodies, self.think = served, bodies, think
        self.enqueued: list[float] = []
        self.verdicts: dict[str, str] = {}
        self.answers = self.known = 0
        self.again: Counter[str] = Counter()

    async def client(self, number: int, asked: list[int], delay: float) -> None:
        await asyncio.sleep(delay)
        thinking = random.Random(number)
        headers = {"Authorization": f"Bearer token-of-client-{number:08d}"}
        address = f"http://127.0.0.1:{self.served.port}"
        async with httpx2.AsyncClient(
            base_url=address, headers=headers, verify=False, timeout=90
        ) as http:
            for turn, place in enumerate(asked):
                if turn and self.think:
                    await asyncio.sleep(thinking.expovariate(1.0 / self.think))
                status = await self.ask(http, "POST", "/v1/verdicts", json=self.bodies[place])
                self.known += status["known"]
                while status["state"] in ("queued", "running"):
                    status = await self.ask(
                        http, "GET", f"/v1/verdicts/{status['verdict_id']}", params={"wait": 30}
                    )
                self.verdicts[status["verdict_id"]] = status["state"]
                self.answers += status["state"] == "finished"

    async def ask(
        self, http: httpx2.AsyncClient, method: str, path: str, **what: Any
    ) -> dict[str, Any]:
        """Repeated while the server is away or busy. Only calls that were answered at once are timed."""
        while True:
            began = time.perf_counter()
            try:
                answer = await http.request(method, path, **what)
            except httpx2.TransportError as error:
                self.again[type(error).__name__] += 1
                await asyncio.sleep(random.uniform(0.2, 0.6))
                continue
            if answer.status_code in (200, 202):
                if method == "POST":
                    self.enqueued.append(time.perf_counter() - began)
                return answer.json()
            self.again[str(answer.status_code)] += 1
            assert answer.status_code in (429, 503), answer.text
            await asyncio.sleep(float(answer.headers.get("retry-after", "1")))

    async def run(self, clients: int, submissions: int, ramp: float, kill: bool) -> list[float]:
        """Memory of the server at each tenth of the submissions."""
        chooser = random.Random(1)
        order = list(range(len(self.bodies)))
        order += [chooser.choice(order) for _ in range(submissions - len(order))]
        chooser.shuffle(order)
        tasks = [
            asyncio.create_task(self.client(k, order[k::clients], ramp * k / clients))
            for k in range(clients)
        ]
        memory: list[float] = []
        killed = not kill
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.2)
            if not killed and self.answers >= submissions // 2:
                killed = True
                await asyncio.to_thread(self.served.kill)
                await asyncio.to_thread(self.served.begin)
            if self.answers >= submissions * (len(memory) + 1) / 10:
                memory.append(self.served.memory())
        await asyncio.gather(*tasks)
        return memory


def record_of(folder: Path) -> dict[str, Any]:
    """What the server's own record says."""
    with sqlite3.connect(folder / ".kernelwright" / "service.db") as database:
        states = Counter(state for (state,) in database.execute("SELECT state FROM verdict"))
        outcomes = Counter(
            outcome for (outcome,) in database.execute("SELECT outcome FROM attempt")
        )
        made = "SELECT count(*) FROM attempt WHERE outcome = 'finished' GROUP BY verdict_id"
        twice = sum(count > 1 for (count,) in database.execute(made))
        [submissions] = database.execute("SELECT count(*) FROM submission").fetchone()
    return {"states": states, "outcomes": outcomes, "twice": twice, "submissions": submissions}


def ran_and_waited(process: int) -> str:
    """Reads the times of a process's main thread from /proc/PID/schedstat (nanoseconds on a processor, and in its
    queue).
    """
    ran, waited, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    return f"{int(ran) / 1e9:.1f}, {int(waited) / 1e9:.1f}"


def server_side(text: str) -> str:
    """The share of enqueue calls under 0.1 s in the server's own histogram."""
    found = {
        le: float(n) for le, n in re.findall(r'enqueue_seconds_bucket{le="([^"]+)"} (\S+)', text)
    }
    return f"{100 * found['0.1'] / found['+Inf']:.2f} %" if found.get("+Inf") else "none"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--submissions", type=int, default=2000)
    parser.add_argument("--distinct", type=int, default=400)
    parser.add_argument("--judged", type=int, default=20)
    parser.add_argument("--ramp", type=float, default=20.0)
    parser.add_argument("--think", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    load_before = os.getloadavg()[0]
    with TemporaryDirectory() as folder:
        served = Served(Path(folder), given.workers, given.clients)
        load = Load(served, contents(given.distinct, given.judged), given.think)
        began, memory_before = time.monotonic(), served.memory()
        memory = asyncio.run(load.run(given.clients, given.submissions, given.ramp, given.kill))
        seconds = time.monotonic() - began
        ran = {"server": ran_and_waited(served.process.pid), "clients": ran_and_waited(os.getpid())}
        token = {"Authorization": "Bearer token-of-client-00000000"}
        metrics = httpx2.get(f"http://127.0.0.1:{served.port}/metrics", headers=token).text
        served.stop()
        record = record_of(Path(folder))
    lost = given.submissions - load.answers
    distinct = len(load.verdicts)
    milliseconds = sorted(1000 * one for one in load.enqueued)
    rows = {
        "load average of the machine before": f"{load_before:.1f}", "clients": given.clients,
        "submissions": given.submissions,
        "distinct contents": f"{distinct} ({given.judged} judged at every CPU rung)",
        "lost": lost, "contents judged twice": record["twice"], "attempts": dict(record["outcomes"]),
        "known when submitted": load.known, "p50 of the enqueue call (ms)": f"{statistics.median(milliseconds):.1f}",
        CLIENT_SIDE: f"{milliseconds[int(0.99 * len(milliseconds))]:.1f}",
        "enqueue under 100 ms, by the server's own clock": server_side(metrics),
        "slowest (ms)": f"{milliseconds[-1]:.1f}", "seconds": f"{seconds:.1f}",
        "submissions answered a second": f"{given.submissions / seconds:.1f}", "asked again": dict(load.again),
        **{f"main thread of the {name}: ran, waited for a processor (s)": told for name, told in ran.items()},
        "memory of the server (MiB)": ", ".join(f"{one:.0f}" for one in (memory_before, *memory)),
    }  # fmt: skip
    command = "python -m bench.service_load " + " ".join(sys.argv[1:])
    lines = ["# The judge service under load", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    lines += [
        "",
        f"`{command}`, {platform.machine()}, {psutil.cpu_count()} cores, no GPU, {date.today().isoformat()}",
        "",
    ]
    print(text := "\n".join(lines))
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    return 1 if lost or record["twice"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
