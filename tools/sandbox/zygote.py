"""The trusted side of a zygote: a warm process to fork candidates' processes from, with a spare one ready."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.results import InfrastructureError
from tools.sandbox.channel import ChannelClosed, ChannelTimeout, Message, pair
from tools.sandbox.isolation import Kind, Limits
from tools.sandbox.process import Process

WARM_SECONDS = 120.0
REMOVING_SECONDS = 1.0
KEPT = (
    "PATH", "LD_LIBRARY_PATH", "LANG", "CUDA_HOME", "CUDA_PATH", "CUDA_DEVICE_ORDER", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH",
)  # fmt: skip
"""Of this process's environment, what a sandbox sees."""


def visible(gpu: int | None) -> str:
    """What CUDA_VISIBLE_DEVICES has to be where only cuda:`gpu` of this process is to be seen."""
    if gpu is None:
        return ""
    shown = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return shown[gpu] if gpu < len(shown) else str(gpu)


def _remove(folder: Path) -> None:
    """With what a process that is just dying there may still write."""
    deadline = time.monotonic() + REMOVING_SECONDS
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
        shutil.rmtree(folder, ignore_errors=True)


def _end(owner: int, begun: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """By `close`, or where that did not come to its end. A fork of the zygote's owner leaves it alone."""
    if os.getpid() != owner:
        return
    for process in begun:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()
    _remove(folder)


class Zygote:
    """A warm process of one kind, with a spare candidate process ready. Thread-safe. A context manager."""

    def __init__(
        self,
        kind: Kind,
        *,
        gpu: int | None = None,
        limits: Limits | None = None,
        spare: bool = True,
        pid_namespace: bool = True,
    ) -> None:
        self.kind, self.gpu, self.limits = kind, gpu, limits or Limits()
        self.folder = Path(tempfile.mkdtemp(prefix=f"kernelwright-{kind}-"))
        self._keep_spare, self._pid_namespace = spare, pid_namespace
        self._spare: Process | None = None
        self._last: Process | None = None
        self._dying: Process | None = None
        self._lock = threading.Lock()
        self._warm = False
        begun: list[subprocess.Popen[bytes]] = []
        self._unclosed = weakref.finalize(self, _end, os.getpid(), begun, self.folder)  # Ctrl-C may come anywhere
        self._channel, theirs = pair()
        try:
            begun.append(self._begun(theirs))
        except BaseException:  # what was begun and is not told of dies as nobody holds its channel
            self._channel.close()
            self._unclosed()
            raise
        finally:
            theirs.close()
        self._process = begun[0]

    def _begun(self, channel: socket.socket) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tools.untrusted.zygote", str(self.kind), str(channel.fileno())]
        return subprocess.Popen(
            command, pass_fds=[channel.fileno()], env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True, cwd=self.folder,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's but what Python, Triton and CUDA need."""
        kept = {k: v for k, v in os.environ.items() if k in KEPT}
        root = str(Path(__file__).resolve().parents[2])
        ours = {
            "PYTHONPATH": os.pathsep.join([root, *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            "TRITON_DEFAULT_FP_FUSION": "1", "TOKENIZERS_PARALLELISM": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "HOME": str(self.folder), "TMPDIR": str(self.folder),
        }  # fmt: skip
        if self.kind is Kind.INTERPRET:
            ours["TRITON_INTERPRET"] = "1"
        if self.kind is not Kind.CUDA:
            ours["CUDA_VISIBLE_DEVICES"] = ""
        return kept | ours

    def wait_warm(self, seconds: float = WARM_SECONDS) -> None:
        """Returns once torch and triton are imported. Raises InfrastructureError."""
        if self._warm:
            return
        try:
            self._channel.receive(time.monotonic() + seconds)
        except (ChannelClosed, ChannelTimeout) as error:
            raise InfrastructureError(
                f"the sandbox did not start: {self._last_words() or error}; run `agent doctor`"
            ) from error
        self._warm = True

    def _last_words(self) -> str:
        self._process.kill()
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def request(self, scratch: Path, fds: Sequence[int]) -> None:
        """Asks for one forked process. Only `Process` calls this."""
        self.wait_warm()
        environment = {
            "HOME": str(scratch),
            "USER": "candidate",
            "TMPDIR": str(scratch),
            "TRITON_CACHE_DIR": str(scratch / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
            "CUDA_CACHE_PATH": str(scratch / "cuda"),
            "TRITON_HOME": str(scratch),
        }
        message: dict[str, Any] = {
            "scratch": str(scratch),
            "environment": environment,
            "limits": asdict(self.limits),
            "gpu": visible(self.gpu),
            "pid_namespace": self._pid_namespace,
        }
        try:
            self._channel.send(message, fds)
        except ChannelClosed as error:
            raise InfrastructureError(
                f"the sandbox is gone: {self._last_words() or error}; run the command again"
            ) from error

    def process(self) -> Process:
        """A process that waits for its job: the spare where there is one; the next spare is begun."""
        with self._lock:
            spare = self._spare
            taken, self._spare = spare or Process(self), None
            if self._keep_spare:
                self._spare = Process(self)
            before, self._last = self._last, taken
            self._dying = before
        try:
            taken.wait_ready()
        except InfrastructureError:
            if spare is None:
                raise
            taken = self._in_its_place(taken)
        return taken

    def _in_its_place(self, spare: Process) -> Process:
        """A spare is begun while somebody else may have all of the GPU's memory; whose turn it is now gets another."""
        spare.kill()
        with self._lock:
            taken = self._last = Process(self)
        taken.wait_ready()
        return taken

    def start(self, entry: str, payload: Message, fds: Sequence[int] = ()) -> Process:
        """Runs `package.module:function(channel, payload)` in a process of its own."""
        process = self.process()
        process.start(entry, payload, fds)
        return process

    def settle(self) -> None:
        """Waits until the spare is ready and the one before is gone, so that nothing of them disturbs a measurement."""
        with self._lock:
            if self._spare:
                self._spare.wait_ready()
            if self._dying:
                self._dying.gone()

    def close(self) -> None:
        if not self._warm:
            self._process.kill()  # who waits for it holds the lock
        with self._lock:
            if self._spare:
                self._spare.kill()
                self._spare.gone()
                self._spare = None
        self._channel.close()
        _end(os.getpid(), [self._process], self.folder)
        self._unclosed.detach()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
