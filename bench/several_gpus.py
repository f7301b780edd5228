"""Everything that wants several GPUs, in one command: batch, service, neighbours, training.

    python -m bench.several_gpus [--devices cuda:0,cuda:1] [--seconds 410] [--kernelbench .kb] [--phases batch,service]
        [--workers N] [--candidates FILE] --out FOLDER

Each phase (bench/several/) is a program of its own with its share of the time, and writes its results as it goes;
FOLDER/several_gpus.md, .json and .log hold what is known so far, whenever this command is ended. With
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
from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.several.results import markdown

SHARES = {"batch": 0.34, "neighbours": 0.16, "service": 0.17, "online": 0.33}
"""Of the time after the candidates are made, in the order in which they run."""
TITLES = {
    "batch": "A batch on more and more GPUs", "service": "The judge service on all GPUs",
    "neighbours": "Timings beside neighbours at work", "online": "`rl train --online`",
}  # fmt: skip
LOOK_SECONDS = 5.0
"""Between two looks at what a phase has written."""
LOG_LINES = 60
CANDIDATE_SHARE = 0.12
"""Of the time at most, for the compiler's drafts."""


def machine(devices: list[str]) -> str:
    """What it runs on, in words."""
    import torch
    import triton

    software = f"torch {torch.__version__}, Triton {triton.__version__}, Python {platform.python_version()}"
    if devices[0] == "cpu":
        return f"rehearsal on {len(devices)} pretended devices: {os.cpu_count()} cores, no GPU, {software}"
    names = ", ".join(
        dict.fromkeys(torch.cuda.get_device_name(int(one.partition(":")[2])) for one in devices)
    )
    return f"{len(devices)} x {names}, {os.cpu_count()} cores, {software}"


def all_devices() -> list[str]:
    import torch

    return [f"cuda:{k}" for k in range(torch.cuda.device_count())] or ["cpu", "cpu"]


class Run:
    """The phases so far, in a folder of their own; what is known of them goes to `out`."""

    def __init__(self, work: Path, out: Path, head: str) -> None:
        self.work, self._out, self._head = work, out, head
        self.statuses: dict[str, int | None] = {}
        self._now = ""

    def phase(self, name: str, arguments: list[str], seconds: float) -> int | None:
        """The exit status; None where the time was up."""
        self._now = name
        command = [
            sys.executable,
            "-m",
            f"bench.several.{name}",
            *arguments,
            "--out",
            str(self.work / f"{name}.json"),
        ]
        status = ended(command, seconds, self.work / f"{name}.log", self.write)
        self.statuses[name], self._now = status, ""
        self.write()
        return status

    def write(self) -> None:
        """The table, the JSON and the logs."""
        found, lines, logs = dict[str, Any](), ["# Several GPUs", "", self._head, ""], list[str]()
        for phase in (*self.statuses, *([self._now] if self._now else [])):
            file, log = self.work / f"{phase}.json", self.work / f"{phase}.log"
            found[phase] = json.loads(file.read_text()) if file.is_file() else None
            if found[phase] is not None:
                lines += markdown(TITLES[phase], found[phase])
            said = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
            status = self.statuses.get(phase)
            if status not in (0, None) and not (found[phase] or {}).get("failures"):
                lines += [
                    f"{TITLES[phase]} ended with status {status}: `{' '.join(said[-1:])[:300]}`",
                    "",
                ]
            logs += [f"== {phase} ==", *said[-LOG_LINES:]]
        whole = {"head": self._head, "phases": found}
        (self._out / "several_gpus.md").write_text("\n".join(lines), encoding="utf-8")
        (self._out / "several_gpus.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
        (self._out / "several_gpus.log").write_text("\n".join(logs), encoding="utf-8")


def ended(
    command: list[str], seconds: float, log: Path, meanwhile: Callable[[], None] = lambda: None
) -> int | None:
    """The exit status; None where the time was up. Nothing of it is left. `meanwhile` is called every few seconds."""
    ends = time.monotonic() + seconds
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while (left := ends - time.monotonic()) > 0:
                try:
                    return process.wait(min(left, LOOK_SECONDS))
                except subprocess.TimeoutExpired:
                    meanwhile()
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def prepared(given: argparse.Namespace, folder: Path) -> Path:
    """The candidates' file, made where none is given."""
    if given.candidates is not None:
        return given.candidates.resolve()
    file, seconds = folder / "candidates.json", CANDIDATE_SHARE * given.seconds
    command = [
        sys.executable,
        "-m",
        "bench.several.candidates",
        "--out",
        str(file),
        "--seconds",
        f"{seconds - 15:.0f}",
    ]
    command += ["--kernelbench", str(given.kernelbench)] if given.kernelbench else []
    command += ["--cpu"] if given.devices[0] == "cpu" else []
    if ended(command, seconds + 30, folder / "candidates.log") != 0 and not file.is_file():
        raise SystemExit(f"no candidates: {(folder / 'candidates.log').read_text()[-500:]}")
    print((folder / "candidates.log").read_text().strip()[-300:], flush=True)
    return file


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=410.0)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--phases", type=lambda text: text.split(","), default=list(SHARES))
    parser.add_argument(
        "--workers", type=int, help="places at the CPU rungs of each GPU; the cores over the GPUs"
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.devices = given.devices or all_devices()
    given.workers = given.workers or max(1, (os.cpu_count() or 2) // len(given.devices) - 1)
    return given


def main() -> int:
    began, given = time.monotonic(), arguments_of()
    given.out.mkdir(parents=True, exist_ok=True)
    places = f"{given.workers} places at the CPU rungs of each"
    command = f"`python -m bench.several_gpus {' '.join(sys.argv[1:])}`"
    with TemporaryDirectory(prefix="several-") as work:
        run = Run(
            Path(work),
            given.out,
            f"{command}, {machine(given.devices)}, {places}, {date.today().isoformat()}.",
        )
        common = ["--devices", ",".join(given.devices), "--workers", str(given.workers)]
        common += ["--candidates", str(prepared(given, run.work))]
        for place, phase in enumerate(given.phases):
            left = given.seconds - (time.monotonic() - began)
            seconds = left * SHARES[phase] / sum(SHARES[one] for one in given.phases[place:])
            status = run.phase(
                phase, [*common, "--seconds", f"{seconds:.0f}"], min(1.3 * seconds + 5, left - 1)
            )
            print(
                f"{phase}: {'its time was up' if status is None else f'status {status}'}",
                flush=True,
            )
    print((given.out / "several_gpus.md").read_text())
    return 1 if any(run.statuses.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
