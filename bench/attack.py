"""The exploits before public judges: how many each of them accepts. Needs a GPU, but for --convert-only.

    python -m bench.attack --judges FOLDER [--also FOLDER ...] [--limit 240] [--workers 12] [--only-judge NAME ...]
    [--out bench/results/attack.md] [--convert-only]

FOLDER holds a checkout of each judge (bench/carry_judges.sh makes it). --also adds exploits that are kept elsewhere:
a folder of files whose first line names the problem. Every candidate runs in a process of its own, in a pid namespace
where the machine has them. Judges take the exploits in one and the same order, in which every beginning is a sample
stratified by family; what --limit seconds do not suffice for is left out and counted. Honest kernels come first: a
judge that refuses them says nothing by refusing exploits. Exploits that would harm the machine (LEFT_OUT) and those of
which either verdict is right are not tried.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.attack_formats import Case, described, not_expressible
from bench.attack_judges import JUDGES, sol_files
from bench.attack_table import Result, table
from bench.judge_suites import EXPLOITS, ROOT, Entry, exploits, header, honest, problem_of
from kernelwright.tools.problem import Problem

OURS = "kernelwright"
PATHS = {
    "kernelbench": ("kernelbench/src",),
    "sol-execbench": ("sol-execbench/src",),
    "flashinfer-bench": ("flashinfer-bench", "flashinfer"),
    "pygpubench": ("pygpubench",),
}
CONTROLS = ("fused_softmax", "row_sum", "fused_silu", "row_max")
LEFT_OUT = frozenset({
    "connects_to_the_network", "fills_the_disk", "fork_bomb", "keeps_device_memory", "memory_bomb",
    "memory_bomb_at_import", "mounts_and_leaves", "plants_a_pth_file", "poisons_the_triton_cache", "prints_gigabytes",
    "reads_the_database", "rewrites_the_judge", "stops_its_parent", "thread_bomb", "unlocks_its_limits",
    "writes_outside_its_folder",
})  # fmt: skip
"""What these do outlives their process; judges without walls of their own let them."""
SECONDS = 60.0
"""For a job."""
SEED = 2026


@dataclass(frozen=True)
class Job:
    """One candidate before one judge."""

    judge: str
    name: str
    family: str
    candidate: str
    case: Case
    control: bool = False


def others(folders: Iterable[Path]) -> list[tuple[Entry, Problem]]:
    """Exploits that are kept elsewhere and are not in the repository under the same name."""
    ours = {path.stem for path in EXPLOITS.glob("*.py")}
    found = []
    for path in (
        path for folder in folders for path in sorted(folder.glob("*.py")) if path.stem not in ours
    ):
        said = header(path.read_text(encoding="utf-8"))
        beside = path.parents[1] / said["problem"]
        problem = (
            Problem(name=beside.stem, source=beside.read_text(encoding="utf-8"))
            if beside.is_file()
            else problem_of(said["problem"])
        )
        found.append((Entry(path, said["problem"], "kept elsewhere"), problem))
    return found


def tried(also: Iterable[Path]) -> list[tuple[Entry, Problem]]:
    """Every exploit that is put before a judge, with its problem."""
    found = [
        (e, problem_of(e.problem)) for e in exploits(device="cuda:0") if not e.either
    ] + others(also)
    return [(entry, problem) for entry, problem in found if entry.name not in LEFT_OUT]


def stratified(entries: list[tuple[Entry, Problem]]) -> list[tuple[Entry, Problem]]:
    """In an order of which every beginning has each family in proportion, drawn by SEED."""
    ranked = []
    for family in sorted({entry.family for entry, _ in entries}):
        members = [e for e in entries if e[0].family == family]
        random.Random(f"{SEED} {family}").shuffle(members)
        ranked += [((i + 0.5) / len(members), family, member) for i, member in enumerate(members)]
    return [member for _, _, member in sorted(ranked, key=lambda r: r[:2])]


def planned(judges: list[str], also: list[Path]) -> tuple[list[Job], dict[str, dict[str, str]]]:
    """The jobs in order, and for each judge the exploits that its format cannot express, with the reason."""
    known = tried(also)
    controls = [(e, problem_of(e.problem)) for e in honest(CONTROLS)]
    jobs: list[Job] = []
    refused: dict[str, dict[str, str]] = {judge: {} for judge in judges}
    for control, chosen in ((True, controls), (False, stratified(known))):
        for entry, problem in chosen:
            case = described(problem.source)
            for judge in judges:
                if why := not_expressible(judge, case):
                    refused[judge][entry.name] = why
                else:
                    jobs.append(Job(judge, entry.name, entry.family, entry.source, case, control))
    return jobs, refused


def walled() -> list[str]:
    """What to put before a command so that it sees and reaches no process but its own."""
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        '"$@"; exit $?',
        "sh",
    ]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return command if done.returncode == 0 else []


def cuda_libraries() -> list[str]:
    """Folders of the CUDA runtime that torch brings, for a judge that is linked against it."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return sorted({str(path.parent) for root in roots for path in root.glob("*/lib/libcudart.so*")})


def environment(folder: Path, checkouts: Path, judge: str) -> dict[str, str]:
    given = [str(checkouts / part) for part in PATHS[judge]]
    paths = [str(ROOT), str(ROOT / "src"), *given, *filter(None, [os.environ.get("PYTHONPATH")])]
    libraries = [*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *cuda_libraries()]
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "HOME": str(folder), "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"), "FIB_CACHE_PATH": str(folder / "fib"), "OMP_NUM_THREADS": "2",
        "PYTHONDONTWRITEBYTECODE": "1", "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
    }  # fmt: skip


def judged(
    job: Job, root: Path, checkouts: Path, wall: list[str], deadline: float
) -> Result | None:
    """A verdict of a public judge; None where no time was left."""
    left = min(SECONDS, deadline - time.monotonic())
    if left < 5:
        return None
    folder = Path(tempfile.mkdtemp(prefix=f"{job.judge}-", dir=root))
    data = root / f"{abs(hash(job.case.source))}.safetensors"
    word = secrets.token_hex(8)
    told = {
        "judge": job.judge, "case": job.case._asdict(), "candidate": job.candidate, "folder": str(folder),
        "data": str(data), "word": word,
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(told), encoding="utf-8")
    command = [*wall, sys.executable, "-m", "bench.attack_judges", str(folder / "job.json")]
    start = time.monotonic()
    with (folder / "said").open("wb") as said, (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=errors, start_new_session=True,
            env=environment(folder, checkouts, job.judge),
        )  # fmt: skip
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            if left < SECONDS:
                _end(process)
                return None
        _end(process)
    found = _found(folder / "said", word) or {
        "crashed": True, "why": f"exit {process.returncode}: " + _tail(folder / "errors"),
    }  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
    return Result(
        job.judge, job.name, job.family, job.control, bool(found.get("accepted")), bool(found.get("crashed")),
        str(found.get("why", ""))[:400], round(time.monotonic() - start, 1),
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a job with all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _found(path: Path, word: str) -> dict[str, Any] | None:
    """The last line that begins with the job's word."""
    for line in reversed(_tail(path, 65536).splitlines()):
        if line.startswith(word):
            told = json.loads(line.removeprefix(word))
            return told if isinstance(told, dict) else None
    return None


def _tail(path: Path, size: int = 300) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - size, 0))
        return file.read().decode("utf-8", "replace").strip()


def ours(jobs: list[Job], deadline: float) -> Iterator[Result]:
    """Our own judge: one warm evaluator, three candidates at a time."""
    from bench.trust import options_for
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

    known = {entry.name: entry for entry in exploits()}
    with Evaluator(device="cuda:0") as evaluator:

        def one(job: Job) -> Result | None:
            if time.monotonic() > deadline - 5:
                return None
            start, entry = time.monotonic(), known.get(job.name)
            options = options_for(entry) if entry else Options(torch_compile=False)
            report = evaluator.evaluate(
                Problem(name=job.name, source=job.case.source), job.candidate, options
            )
            why = (
                f"{report.failure.fault}: {report.failure.message[:200]}"
                if report.failure
                else str(report.rung)
            )
            return Result(
                OURS,
                job.name,
                job.family,
                job.control,
                report.correct,
                False,
                why,
                round(time.monotonic() - start, 1),
            )

        with ThreadPoolExecutor(3) as threads:
            for result in threads.map(one, jobs):
                if result:
                    yield result


def run(jobs: list[Job], given: argparse.Namespace) -> list[Result]:
    """Public judges in processes side by side, ours beside them; what was judged before the limit."""
    deadline = time.monotonic() + given.limit
    wall = walled()
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(
            prefix="kernelwright-attack-", ignore_cleanup_errors=True
        ) as root,
        ThreadPoolExecutor(given.workers + 1) as threads,
    ):
        mine = [job for job in jobs if job.judge == OURS]
        waiting: list[Any] = (
            [threads.submit(lambda: [_told(r) for r in ours(mine, deadline)])] if mine else []
        )
        waiting += [
            threads.submit(judged, job, Path(root), given.judges, wall, deadline)
            for job in jobs
            if job.judge != OURS
        ]
        for done in as_completed(waiting):
            found = done.result()
            results += found if isinstance(found, list) else [_told(found)] if found else []
    return results


def _told(result: Result) -> Result:
    word = "ACCEPTED" if result.accepted else "crashed" if result.crashed else "refused"
    print(f"{result.judge} {result.family}/{result.name} {word} {result.seconds} s | {result.why[:120]!r}",
          file=sys.stderr, flush=True)  # fmt: skip
    return result


def convert(jobs: list[Job], checkouts: Path) -> str:
    """Every conversion, read by the schemas of SOL-ExecBench and flashinfer-bench themselves."""
    for judge in PATHS:
        sys.path[:0] = [str(checkouts / part) for part in PATHS[judge]]
    import flashinfer_bench.data as theirs
    import sol_execbench.core.data as sol

    from bench.attack_judges import flashinfer_files

    read = 0
    for job in jobs:
        if job.judge in ("sol-execbench", "flashinfer-bench"):
            schema: Any = sol if job.judge == "sol-execbench" else theirs
            files = sol_files(job.case, job.candidate) if schema is sol else flashinfer_files(
                job.case, job.candidate, "/data.safetensors"
            )  # fmt: skip
            for kind, told in zip(
                (schema.Definition, schema.Workload, schema.Solution), files, strict=True
            ):
                kind(**told)
            read += 1
    return (
        f"{len(jobs)} jobs; {read} definitions, workloads and solutions read by their own schemas"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judges", type=Path, required=True)
    parser.add_argument("--also", type=Path, action="append", default=[])
    parser.add_argument(
        "--limit", type=float, default=240.0, help="seconds for all judges together"
    )
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--only-judge", nargs="*", choices=(*JUDGES, OURS), default=(*JUDGES, OURS))
    parser.add_argument("--first", type=int, help="so many jobs for each judge at most")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--convert-only", action="store_true")
    given = parser.parse_args()
    given.judges = given.judges.resolve()
    jobs, refused = planned(list(given.only_judge), given.also)
    if given.first:
        jobs = [
            job
            for judge in given.only_judge
            for job in [j for j in jobs if j.judge == judge][: given.first]
        ]
    if given.convert_only:
        print(convert(jobs, given.judges))
        return 0
    results = run(jobs, given)
    text, record = table(
        results, refused, jobs, given.judges, "python -m bench.attack " + " ".join(sys.argv[1:])
    )
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
        given.out.with_suffix(".json").write_text(
            json.dumps(record, indent=1) + "\n", encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
