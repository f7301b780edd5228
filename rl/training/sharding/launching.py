"""Starts a training as one process for each GPU, with weights sharded by FSDP2 (`--gpus N`).

The processes are started and watched by torch's elastic launcher. The first process prints to the
terminal; the others print to files, of which the last line is shown if its process fails first.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.errors import InputError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.api import PContext, RunProcsResult

FSDP_CONFIG = Path(__file__).parents[2] / "configs" / "fsdp.yaml"
"""accelerate's configuration for FSDP2; `accelerate launch --config_file` takes the same file."""
LAUNCHED_BY_TORCH = "WORLD_SIZE"
"""Environment variable set by every launcher of distributed processes."""
SAVING_SECONDS = 600
"""Seconds for a process to save and end after a signal."""
TROUBLE_EXIT_CODE = 3
"""Exit code for a process ended by a signal: the same command continues."""


INTERRUPTED_EXIT_CODE = 130


def is_launched() -> bool:
    """Returns whether a launcher started this process as a process of several."""
    return int(os.environ.get(LAUNCHED_BY_TORCH, "1")) > 1


def processes_of(gpus: int | None) -> int:
    """Returns the number of processes of a training with `--gpus GPUS`, or of its launcher."""
    return gpus or int(os.environ.get(LAUNCHED_BY_TORCH, "1"))


def run_on_gpus(gpus: int | None, device: str, arguments: Sequence[str]) -> None:
    """Runs `rl ARGUMENTS` in `gpus` processes and exits with their exit code; returns at once in
    such a process, and for one GPU.

    device: "cpu" starts as many processes on the CPU, to rehearse a training. Raises InputError.
    """
    if is_launched():
        world = int(os.environ[LAUNCHED_BY_TORCH])
        if gpus not in (None, world):
            raise InputError(f"--gpus {gpus}, and the launcher started {world} processes")
        return
    if gpus in (None, 1):
        return
    assert gpus is not None
    _refuse_absent_gpus(gpus, device)
    logs = Path(tempfile.mkdtemp(prefix="kernelwright-ranks-"))
    processes = _start(gpus, arguments, logs)
    # Ctrl-C reaches every process of the terminal: each saves and ends by itself.
    signal.signal(signal.SIGINT, lambda *_: None)
    result = _wait(processes)
    if result is None or not result.is_failed():
        shutil.rmtree(logs, ignore_errors=True)
        raise SystemExit(0)
    raise SystemExit(_exit_code(result))


def _wait(processes: PContext) -> RunProcsResult | None:
    """Waits for all processes. A failing process ends the others; SIGTERM is handed on to all, and
    they save and end. Raises SystemExit after SIGTERM.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException

    death_signal = signal.SIGTERM
    try:
        return processes.wait()
    except SignalException as stop:
        death_signal = stop.sigval
        raise SystemExit(INTERRUPTED_EXIT_CODE) from stop
    finally:
        processes.close(death_signal, SAVING_SECONDS)


def _refuse_absent_gpus(gpus: int, device: str) -> None:
    import torch

    visible = torch.cuda.device_count()
    if device != "cpu" and gpus > visible:
        raise InputError(
            f"--gpus {gpus}: this machine shows {visible} (--device cpu rehearses on its cores)"
        )


def _start(gpus: int, arguments: Sequence[str], logs: Path) -> PContext:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

    # It logs every end of a process; `_exit_code` reports the decisive failure.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        LAUNCHED_BY_TORCH: str(gpus),
        "LOCAL_WORLD_SIZE": str(gpus),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        **fsdp_environment(),
    }
    ranks = range(gpus)
    to_files = {rank: Std.ALL if rank else Std.NONE for rank in ranks}
    return start_processes(
        name="training",
        entrypoint=sys.executable,
        args=dict.fromkeys(ranks, ("-m", "kernelwright.rl", *arguments)),
        envs={rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks},
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=to_files),
    )


def fsdp_environment() -> dict[str, str]:
    """Returns the environment variables made of `FSDP_CONFIG` by accelerate's launcher."""
    import yaml

    settings = yaml.safe_load(FSDP_CONFIG.read_text(encoding="utf-8"))["fsdp_config"]
    names = {name: f"FSDP_{name.removeprefix('fsdp_').upper()}" for name in settings}
    return {"ACCELERATE_USE_FSDP": "true"} | {
        names[name]: str(value) for name, value in settings.items()
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _exit_code(result: RunProcsResult) -> int:
    """Returns the exit code of the first failing process, after a line about a failure unreported
    by the first process.
    """
    rank, failure = min(result.failures.items(), key=lambda entry: entry[1].timestamp)
    if failure.exitcode < 0:
        print(
            f"process {rank} of this training was ended by signal {-failure.exitcode}: the same "
            "command goes on from the last checkpoint",
            file=sys.stderr,
        )
        return TROUBLE_EXIT_CODE
    if rank != 0 and 0 not in result.failures:
        log = Path(result.stderrs[rank])
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        print(lines[-1] if lines else f"process {rank} failed: see {log}", file=sys.stderr)
    return int(failure.exitcode)
