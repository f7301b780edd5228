"""Everything that wants several GPUs, in one command: batch, service, neighbours, training.

    python -m bench.several_gpus [--devices cuda:0,cuda:1] [--seconds 410] [--kernelbench .kb] [--phases batch,service]
        [--workers N] [--candidates FILE] --out FOLDER

Each phase (bench/several/) is a program of its own with its share of the time, and writes its results as it goes;
FOLDER/several_gpus.md and .json hold what is known so far, after every phase and whenever one is ended. With
`--devices cpu,cpu` the same is rehearsed without a GPU: a judge a pretended device, interpreted. Exit code 1 where
something that has to hold does not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from bench.several.results import markdown

SHARES = {"batch": 0.36, "neighbours": 0.22, "service": 0.16, "online": 0.26}
"""Of the time after the candidates are made, in the order in which they run."""
TITLES = {
    "batch": "A batch on more and more GPUs", "service": "The judge service on all GPUs",
    "neighbours": "Timings beside neighbours at work", "online": "`rl train --online`",
}  # fmt: skip
CANDIDATE_SHARE = 0.12
"""Of the time at most, for the compiler's drafts."""


def machine(devices: list[str]) -> str:
    """What it runs on, in words."""
    import torch
    import triton

    software = f"torch {torch.__version__}, Triton {triton.__version__}, Python {platform.python_version()}"
    if devices[0] == "cpu":
        return f"rehearsal on {len(devices)} pretended devices: {os.cpu_count()} cores, no GPU, {software}"
    names = ", ".join(dict.fromkeys(torch.cuda.get_device_name(int(one.partition(":")[2])) for one in devices))
    return f"{len(devices)} x {names}, {os.cpu_count()} cores, {software}"


def all_devices() -> list[str]:
    import torch

    return [f"cuda:{k}" for k in range(torch.cuda.device_count())] or ["cpu", "cpu"]


def ended(command: list[str], seconds: float, log: Path) -> int | None:
    """The exit status; None where the time was up. Nothing of it is left."""
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def write(folder: Path, head: str, statuses: dict[str, int | None]) -> None:
    """The table and the JSON of what is known."""
    found: dict[str, Any] = {}
    for phase in statuses:
        file = folder / f"{phase}.json"
        found[phase] = json.loads(file.read_text()) if file.is_file() else None
    lines = ["# Several GPUs", "", head, ""]
    for phase, told in found.items():
        if told is not None:
            lines += markdown(TITLES[phase], told)
        if told is None or (statuses[phase] not in (0, None) and not told["failures"]):
            log = (folder / f"{phase}.log").read_text(errors="replace").strip().splitlines()
            lines += [
                f"## {TITLES[phase]}",
                "",
                f"ended with status {statuses[phase]}: `{' '.join(log[-1:])[:300]}`",
                "",
            ]
    (folder / "several_gpus.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "several_gpus.json").write_text(json.dumps({"head": head, "phases": found}, indent=1), encoding="utf-8")


def prepared(given: argparse.Namespace, folder: Path) -> Path:
    """The candidates' file, made where none is given."""
    if given.candidates is not None:
        return given.candidates
    file, seconds = folder / "candidates.json", CANDIDATE_SHARE * given.seconds
    command = [sys.executable, "-m", "bench.several.candidates", "--out", str(file), "--seconds", f"{seconds - 15:.0f}"]
    command += ["--kernelbench", str(given.kernelbench)] if given.kernelbench else []
    command += ["--cpu"] if given.devices[0] == "cpu" else []
    if ended(command, seconds + 30, folder / "candidates.log") != 0:
        raise SystemExit(f"no candidates: {(folder / 'candidates.log').read_text()[-500:]}")
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=410.0)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--phases", type=lambda text: text.split(","), default=list(SHARES))
    parser.add_argument("--workers", type=int, help="places at the CPU rungs of each GPU; the cores over the GPUs")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    began = time.monotonic()
    given.devices = given.devices or all_devices()
    given.out.mkdir(parents=True, exist_ok=True)
    workers = given.workers or max(1, (os.cpu_count() or 2) // len(given.devices) - 1)
    command = f"`python -m bench.several_gpus {' '.join(sys.argv[1:])}`"
    head = (
        f"{command}, {machine(given.devices)}, {workers} places at the CPU rungs of each, {date.today().isoformat()}."
    )
    candidates = prepared(given, given.out)
    statuses: dict[str, int | None] = {}
    for place, phase in enumerate(given.phases):
        left = given.seconds - (time.monotonic() - began)
        seconds = left * SHARES[phase] / sum(SHARES[one] for one in given.phases[place:])
        arguments = ["--devices", ",".join(given.devices), "--workers", str(workers), "--seconds", f"{seconds:.0f}"]
        arguments += ["--candidates", str(candidates), "--out", str(given.out / f"{phase}.json")]
        limit = min(1.3 * seconds + 5, left - 1)
        status = ended([sys.executable, "-m", f"bench.several.{phase}", *arguments], limit, given.out / f"{phase}.log")
        statuses[phase] = status
        write(given.out, head, statuses)
        print(f"{phase}: {'its time was up' if status is None else f'status {status}'}", flush=True)
    print((given.out / "several_gpus.md").read_text())
    return 1 if any(statuses.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
