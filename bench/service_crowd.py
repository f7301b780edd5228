"""The judge service beside a crowd: open pages over a full record, and one greedy client.

    python -m bench.service_crowd [--verdicts 100000] [--pages 4] [--calls 200] [--greedy 3000]
        [--out bench/results/service_crowd.md]

Pages: a record of so many verdicts, each submitted four times, is written before the server starts. Then enqueue calls
are timed in turns, without and with so many open pages, in one run on one server: each page asks for what the real one
asks for, every three seconds, from a process of its own, as browsers do. The goal is a 99th percentile within 1.5 times
of that without pages.

Greedy: one client has submitted so many candidates when another one submits a single one, five times. Counted from the
server's own record are the greedy client's verdicts that were made between the single one's arrival and its end. The
goal is at most two. Exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx2

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.serving.record import (
    RememberedVerdict,
    VerdictDatabase,
    VerdictTexts,
    finished_columns,
)
from kernelwright.agent.serving.scoring import score_of
from kernelwright.agent.serving.wire import State
from kernelwright.tools.report import CompileResult, Failure, Fault, Report, Rung

PAGE_SECONDS = 3.0
"""Seconds between two rounds of requests of an open page (page/main.js)."""
PAGE_PATHS = (
    "/v1/health", "/v1/queue", "/v1/history?seconds=3600", "/v1/judges", "/v1/verdicts?limit=25",
    "/v1/rewards?preset=default", "/v1/trajectories?limit=50",
)  # fmt: skip
"""What a page asks for in a round (page/overview.js)."""
PAGE_CACHE_CONTROL = "max-age=2"
"""The header of its requests (page/shared.js)."""
ROUNDS = 3
"""Turns without pages, each followed by one with them."""
SUBMISSIONS_OF_A_VERDICT = 4
CALLS_A_SECOND = 8.0
MAX_RATIO = 1.5
SINGLES = 5
MAX_DELAYING_VERDICTS = 2
TOKENS = {client: f"token-of-{client}-0123456789" for client in ("page", "greedy", "single")}


class PagesResult(NamedTuple):
    """Milliseconds of enqueue calls."""

    without: tuple[float, ...]
    beside: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The 99th percentile beside pages over that without."""
        return percentile(self.beside, 99) / percentile(self.without, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def fill(file: Path, verdicts: int) -> None:
    """Writes a record of finished verdicts: one by the service's own code, then copies of its row."""
    failure = Failure(
        fault=Fault.MISMATCH, message="own: 3 of 8192 elements differ, the worst by 0.5"
    )
    report = Report(
        problem="fused_silu", problem_hash="h", candidate_hash="c", rung=Rung.INTERPRETED, failure=failure,
        compiles=(CompileResult(target="sm_90"),),
    )  # fmt: skip
    record = VerdictDatabase(file)
    remembered = RememberedVerdict(
        id="0" * 32, sequence=1, state=State.QUEUED, problem="fused_silu", problem_hash="h", candidate_hash="c",
        device=DeviceKind.CPU, submitted=time.time(),
    )  # fmt: skip
    record.queue(
        remembered, VerdictTexts(problem="{}", candidate="x = 1", options="{}"), "page", "g"
    )
    record.begin(remembered.id, "cpu:0", time.time())
    columns = finished_columns(report, score_of(report))
    with record.write() as connection:
        names = ", ".join(f"{name} = :{name}" for name in columns)
        connection.exec_driver_sql(f"UPDATE verdict SET {names}", columns)
    record.close()
    _copy_rows(file, verdicts)


def _copy_rows(file: Path, verdicts: int) -> None:
    now = time.time()
    with sqlite3.connect(file) as database:
        database.row_factory = sqlite3.Row
        row = dict(database.execute("SELECT * FROM verdict").fetchone())
        names = list(row)
        marks = ", ".join("?" for _ in names)

        def rows() -> Iterator[list[object]]:
            for number in range(2, verdicts + 1):
                ended = now - 10.0 * (verdicts - number)
                changed = {"id": uuid.uuid4().hex, "sequence": number, "submitted": ended - 2.0, "started": ended - 1.0,
                           "ended": ended}  # fmt: skip
                yield [{**row, **changed}[name] for name in names]

        database.executemany(f"INSERT INTO verdict ({', '.join(names)}) VALUES ({marks})", rows())
        database.execute(
            "INSERT INTO attempt SELECT id, 1, 'cpu:0', started, ended, 'finished', '' FROM verdict WHERE sequence > 1"
        )
        for turn in range(SUBMISSIONS_OF_A_VERDICT):
            database.execute(
                'INSERT INTO submission (verdict_id, client, "group", at, withdrawn) '
                "SELECT id, 'page', 'group-' || (sequence / 8), submitted + ?, 0 FROM verdict WHERE sequence > 1",
                (turn * 0.1,),
            )
    database.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server in a folder, with one CPU judge."""
    (folder / "tokens.txt").write_text(
        "".join(f"{name} {token}\n" for name, token in TOKENS.items())
    )
    words = [
        "serve",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--port",
        "0",
        "--token-file",
        "tokens.txt",
    ]
    words += ["--client-pending", "4096", "--queue", "8192", "--store", "record/service.db"]
    server = subprocess.Popen(
        [sys.executable, "-m", "kernelwright.agent", *words],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if "http://" in line:
                yield line.split()[-1]
                break
        else:
            raise RuntimeError("agent serve did not start: try it by hand")
    finally:
        server.terminate()
        server.wait(60)


def client_of(url: str, name: str) -> httpx2.AsyncClient:
    """An HTTP client with a client's token."""
    headers = {"Authorization": f"Bearer {TOKENS[name]}"}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=120, verify=False)


def body_of(text: str) -> dict[str, object]:
    """A submission that reading its text alone refuses."""
    candidate = f"import triton\nimport triton.language as tl\nTEXT = {text!r}\n"
    return {"problem": {"name": "fused_silu"}, "candidate": candidate}


async def open_page(url: str, delay: float) -> None:
    """Asks as one open page does, for ever. delay: seconds after which it is opened."""
    async with client_of(url, "page") as http:
        http.headers["Cache-Control"] = PAGE_CACHE_CONTROL
        await asyncio.sleep(delay)
        while True:
            answers = await asyncio.gather(*(http.get(path) for path in PAGE_PATHS))
            for answer in answers:
                answer.raise_for_status()
            await asyncio.sleep(PAGE_SECONDS)


async def open_pages(url: str, pages: int) -> None:
    """Keeps so many pages open, which were opened one after the other."""
    delays = [PAGE_SECONDS * number / pages for number in range(pages)]
    await asyncio.gather(*(open_page(url, delay) for delay in delays))


@contextmanager
def pages_in_a_process(url: str, pages: int) -> Iterator[None]:
    """Keeps pages open while the block runs, in another process: their work must not delay the calls that are timed."""
    words = ["-m", "bench.service_crowd", "--pages", str(pages), "--open", url]
    process = subprocess.Popen([sys.executable, *words])
    try:
        time.sleep(2 * PAGE_SECONDS)
        yield
        assert process.poll() is None, "the pages ended early"
    finally:
        process.terminate()
        process.wait(60)


async def enqueue(url: str, name: str, calls: int) -> list[float]:
    """Submits texts one after the other; returns the milliseconds of each call."""
    milliseconds = []
    async with client_of(url, "single") as http:
        for number in range(calls):
            began = time.perf_counter()
            answer = await http.post("/v1/verdicts", json=body_of(f"{name} {number}"))
            milliseconds.append(1000 * (time.perf_counter() - began))
            answer.raise_for_status()
            await asyncio.sleep(1.0 / CALLS_A_SECOND)
    return milliseconds


async def beside_pages(url: str, pages: int, calls: int) -> PagesResult:
    """Times enqueue calls in turns without and with open pages."""
    await enqueue(url, "warm", 20)
    without: list[float] = []
    beside: list[float] = []
    for turn in range(ROUNDS):
        without += await enqueue(url, f"without {turn}", calls)
        with pages_in_a_process(url, pages):
            beside += await enqueue(url, f"beside {turn}", calls)
    return PagesResult(tuple(without), tuple(beside))


async def beside_a_greedy_client(url: str, candidates: int, record: Path) -> list[int]:
    """Returns how many verdicts of a greedy client were made while each single one waited."""
    async with client_of(url, "greedy") as greedy, client_of(url, "single") as single:
        for numbers in _batches(candidates):
            submissions = [body_of(f"greedy {number}") for number in numbers]
            answer = await greedy.post("/v1/batches", json={"submissions": submissions})
            errors = [
                entry["error"]
                for entry in answer.raise_for_status().json()["verdicts"]
                if entry["error"]
            ]
            assert not errors, errors[0]
        ids = []
        for number in range(SINGLES):
            status = (await single.post("/v1/verdicts", json=body_of(f"single {number}"))).json()
            while status["state"] in ("queued", "running"):
                path = f"/v1/verdicts/{status['verdict_id']}?wait=30"
                status = (await single.get(path)).json()
            ids.append(status["verdict_id"])
    return [_made_meanwhile(record, verdict_id) for verdict_id in ids]


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, 250):
        yield range(start, min(start + 250, count))


def _made_meanwhile(record: Path, verdict_id: str) -> int:
    """Returns how many other verdicts ended between the arrival and the end of one."""
    with sqlite3.connect(record) as database:
        [submitted, ended] = database.execute(
            "SELECT submitted, ended FROM verdict WHERE id = ?", (verdict_id,)
        ).fetchone()
        [count] = database.execute(
            "SELECT count(*) FROM verdict WHERE ended > ? AND ended < ?", (submitted, ended)
        ).fetchone()
    return int(count)


def main() -> int:
    """Runs both, and prints the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verdicts", type=int, default=100_000)
    parser.add_argument("--pages", type=int, default=4)
    parser.add_argument("--calls", type=int, default=200, help="enqueue calls of one turn")
    parser.add_argument("--greedy", type=int, default=3000)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--open", metavar="URL", help="open the pages of this server, and do nothing else"
    )
    options = parser.parse_args()
    if options.open:
        asyncio.run(open_pages(options.open, options.pages))
    load_before = os.getloadavg()[0]
    with TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "record" / "service.db", options.verdicts)
        with served(folder) as url:
            pages = asyncio.run(beside_pages(url, options.pages, options.calls))
    with TemporaryDirectory() as name:
        folder = Path(name)
        with served(folder) as url:
            record = folder / "record" / "service.db"
            delaying = asyncio.run(beside_a_greedy_client(url, options.greedy, record))
    passed = pages.ratio <= MAX_RATIO and max(delaying) <= MAX_DELAYING_VERDICTS
    rows = {
        "stored verdicts, submissions": f"{options.verdicts}, {options.verdicts * SUBMISSIONS_OF_A_VERDICT}",
        "enqueue calls without, beside pages": f"{len(pages.without)}, {len(pages.beside)}",
        "p50 without, beside (ms)": f"{statistics.median(pages.without):.1f}, {statistics.median(pages.beside):.1f}",
        "p95 without, beside (ms)": f"{percentile(pages.without, 95):.1f}, {percentile(pages.beside, 95):.1f}",
        "p99 without, beside (ms)": f"{percentile(pages.without, 99):.1f}, {percentile(pages.beside, 99):.1f}",
        "p99 beside over p99 without (goal: at most 1.5)": f"{pages.ratio:.2f}",
        "greedy candidates waiting at the first single one": options.greedy,
        "verdicts made while each single one waited (goal: at most 2)": ", ".join(
            map(str, delaying)
        ),
        "load average before, after": f"{load_before:.1f}, {os.getloadavg()[0]:.1f}",
    }
    command = f"`python -m bench.service_crowd {' '.join(sys.argv[1:])}`".replace(" `", "`")
    lines = [
        "# The judge service beside a crowd", "", "| | |", "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows.items()), "",
        f"{command}, {os.cpu_count()} cores, no GPU, {date.today().isoformat()}; goals "
        f"{'reached' if passed else 'MISSED'}. Turns without and with {options.pages} pages alternate, {ROUNDS} each, "
        "on one server.", "",
    ]  # fmt: skip
    print(text := "\n".join(lines))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
