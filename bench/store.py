"""What the store costs: `python bench/store.py [--candidates 100000] [--folder /tmp] [--keep]`.

Prints one line a figure.

Real turns are written first, one transaction a step as the agent does, which gives the cost of a turn. Then their rows
are copied by SQL (with the index of their words) until there are enough, which gives the cost of opening, listing and
searching.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "store")]

import turnmaking as make  # noqa: E402

from kernelwright.store.database import Store  # noqa: E402
from kernelwright.store.models import Action  # noqa: E402
from kernelwright.store.records import CandidateFilter, Order, TrajectoryFilter  # noqa: E402
from kernelwright.store.search import words_of  # noqa: E402

TRAJECTORIES, TURNS = 25, 8


def write_turns(store: Store) -> list[tuple[float, float]]:
    """Wall and processor seconds of each turn: three transactions, the last of them durable."""
    took = []
    for number in range(TRAJECTORIES):
        trajectory = store.begin(make.start(f"problem_{number}"))
        for turn in range(TURNS):
            request, completion = make.request(turn, number), make.completion(turn, number)
            source, report = (
                make.source(turn, number),
                make.wrong(turn, number) if turn % 2 else make.right(turn, number),
            )
            began = time.perf_counter(), time.process_time()
            row = store.draft(trajectory.id, request, action=Action.DRAFT)
            store.complete(row.id, completion, source)
            store.judge(row.id, report, rewards={"correct": 1.0}, formula="v1")
            took.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        store.finish(trajectory.id, "turns")
    return took[TURNS:]


def copy_rows(path: Path, candidates: int) -> None:
    """The same turns under new ids, until there are `candidates`."""
    own = TRAJECTORIES * TURNS
    with closing(sqlite3.connect(path)) as plain, plain:
        bodies = [
            words_of(f"{make.reply(i % TURNS, i // TURNS)} {make.source(i % TURNS, i // TURNS)}")
            for i in range(own)
        ]
        for copy in range(1, candidates // own):
            for table, shifted in (
                ("trajectory", {"id": TRAJECTORIES, "sample": 1}),
                ("candidate", {"id": own, "trajectory_id": TRAJECTORIES, "verdict_id": own}),
                ("verdict", {"id": own, "candidate_id": own}),
            ):
                columns = [row[1] for row in plain.execute(f"PRAGMA table_info({table})")]
                values = ", ".join(
                    f'"{c}" + {copy * shifted[c]}' if c in shifted else f'"{c}"' for c in columns
                )
                last = TRAJECTORIES if table == "trajectory" else own
                plain.execute(
                    f"INSERT INTO {table} SELECT {values} FROM {table} WHERE id <= {last}"
                )
            rows = [(copy * own + i + 1, " ".join([*bodies[i], f"copy{copy}"])) for i in range(own)]
            plain.executemany("INSERT INTO candidate_text(rowid, words) VALUES (?, ?)", rows)
            failed = [
                (copy * own + i + 1, f"mismatch wrong in the last block copy{copy}")
                for i in range(1, own, 2)
            ]
            plain.executemany("INSERT INTO verdict_text(rowid, words) VALUES (?, ?)", failed)


def measure(name: str, work: Callable[[], object], times: int = 5) -> float:
    """Median processor seconds, printed with the wall clock's: that one also depends on what else the machine does."""
    wall, processor = [], []
    for _ in range(times):
        began = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    median, own = statistics.median(wall) * 1e3, statistics.median(processor)
    print(
        f"{name:48} median {median:7.1f} ms, slowest {max(wall) * 1e3:7.1f} ms, processor {own * 1e3:7.1f} ms"
    )
    return own


def read(path: Path, candidates: int) -> float:
    """Processor seconds of the slowest of what a person waits for."""
    slowest = measure("open", lambda: Store.open(path).close())
    with Store.open(path) as store:
        assert store.count() == candidates // (TRAJECTORIES * TURNS) * TRAJECTORIES * TURNS
        middle = candidates // 2
        works: dict[str, Callable[[], object]] = {
            "list the newest 50 candidates": store.candidates,
            "list 50 in the middle": lambda: store.candidates(before=middle),
            "list 50 correct ones of one problem": lambda: store.candidates(
                CandidateFilter(correct=True, problem="problem_3")
            ),
            "list the fastest 50": lambda: store.candidates(order=Order.FASTEST),
            "list 50 with a fault that none has": lambda: store.candidates(
                CandidateFilter(fault="crash")
            ),
            "list 50 trajectories": lambda: store.trajectories(TrajectoryFilter(finished=True)),
            "list unfinished trajectories": lambda: store.trajectories(
                TrajectoryFilter(finished=False)
            ),
            "count the correct ones": lambda: store.count(CandidateFilter(correct=True)),
            "one turn with everything": lambda: store.turn(middle),
            "search a word that one has": lambda: store.search(
                f"copy{candidates // (TRAJECTORIES * TURNS) // 2}", limit=50
            ),
            "search a word that all have (tl.load)": lambda: store.search("tl.load"),
            "search two words, one of them rare": lambda: store.search("tl.load offsets_7_3"),
            "search the beginning of a word (offset*)": lambda: store.search("offset*"),
            "search a failure": lambda: store.search('"last block"'),
            "search a word that none has": lambda: store.search("nonexistent"),
            "search among the correct ones": lambda: store.search(
                "mask", CandidateFilter(correct=True)
            ),
        }
        slowest = max([slowest, *(measure(name, work) for name, work in works.items())])
        measure("stats", store.stats, times=1)
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-store-", dir=options.folder))
    path = folder / "runs.db"
    with Store.open(path) as store:
        took = write_turns(store)
        wall, processor = (statistics.median(part) * 1e3 for part in zip(*took, strict=True))
        print(
            f"one turn written: median {wall:.1f} ms, of which processor {processor:.1f} ms (3 "
            "transactions, the last one "
            "synced)"
        )
        stats = store.stats()
        print(
            f"a turn takes {stats.stored_bytes / len(took):.0f} bytes of blobs "
            f"({stats.blob_bytes / len(took):.0f} before "
            "compression)"
        )
    copy_rows(path, options.candidates)
    Store.open(path).close()
    print(f"{options.candidates} candidates, {path.stat().st_size / 1e6:.0f} MB")
    slowest = read(path, options.candidates)
    if not options.keep:
        shutil.rmtree(folder)
    print(f"slowest {slowest:.3f} s of processor: {'under' if slowest < 0.5 else 'OVER'} 0.5 s")
    sys.exit(slowest >= 0.5)


if __name__ == "__main__":
    main()
