"""Trusted side of a zygote: a warm process which forks candidates' processes, with a spare
process ready.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import kernelwright
from kernelwright.closing_context import ClosingContext
from kernelwright.tools.report import InfrastructureError
from kernelwright.tools.sandbox import folders
from kernelwright.tools.sandbox.channel import ChannelClosed, ChannelTimeout, Message, channel_pair
from kernelwright.tools.sandbox.isolation.cgroup import Group, Groups, find_groups
from kernelwright.tools.sandbox.limits import Limits, ProcessKind
from kernelwright.tools.sandbox.process import Process
from kernelwright.tools.sandbox.request import ProcessSettings

WARM_SECONDS = 120.0
CLOSE_SECONDS = 10.0
KEPT_VARIABLES = (
    "PATH", "LD_LIBRARY_PATH", "LANG", "CUDA_HOME", "CUDA_PATH", "CUDA_DEVICE_ORDER", "TRITON_LIBCUDA_PATH",
    "TRITON_PTXAS_PATH",
)  # fmt: skip
"""Environment variables of this process passed to a sandbox."""


def visible(gpu: int | None) -> str:
    """Returns the value of CUDA_VISIBLE_DEVICES under which only cuda:`gpu` of this process is visible."""
    if gpu is None:
        return ""
    shown = [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip()
    ]
    return shown[gpu] if gpu < len(shown) else str(gpu)


def _end(owner: int, begun: list[subprocess.Popen[bytes]], folder: Path, lock: int) -> None:
    """Ends the zygote, from `close` or at exit. Does nothing in a fork of its owner."""
    if os.getpid() != owner:
        return
    for process in begun:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()
    folders.remove(folder)
    os.close(lock)


class Zygote(ClosingContext):
    """Warm process of a kind, with a spare candidate process ready. Thread-safe. A context
    manager.

    warm: "package.module:function", called once in the warm process after its imports and before
    any fork; must leave no thread running. private_scratch: a candidate's folder is a file system
    in memory, bounded in bytes and files, which ends with the candidate and is invisible from
    outside. Results must come over the channel, except the beginnings of the files named by
    `handed_out`, which appear in `Process.scratch` after the process has ended by itself.
    memfd_create is closed too (except with CUDA, whose driver may need it).
    """

    def __init__(
        self,
        kind: ProcessKind,
        *,
        gpu: int | None = None,
        limits: Limits | None = None,
        spare: bool = True,
        pid_namespace: bool = True,
        private_scratch: bool = False,
        handed_out: Sequence[str] = (),
        warm: str = "",
    ) -> None:
        self.kind, self.gpu, self.limits = kind, gpu, limits or Limits()
        folders.sweep(str(kind))
        self.folder, lock = folders.make_folder(str(kind))
        self._keep_spare = spare
        self._pid_namespace = pid_namespace
        self._private_scratch, self._handed_out, self._hook = (
            private_scratch,
            tuple(handed_out),
            warm,
        )
        self._groups: Groups | None = None
        self._spare: Process | None = None
        self._last: Process | None = None
        self._dying: Process | None = None
        self._processes: list[Process] = []
        """Processes which may still have living descendants."""
        self._lock = threading.Lock()
        self._warm = False
        begun: list[subprocess.Popen[bytes]] = []
        self._unclosed = weakref.finalize(
            self, _end, os.getpid(), begun, self.folder, lock
        )  # Ctrl-C may come anywhere
        self._channel, theirs = channel_pair()
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
        command = [
            sys.executable,
            "-m",
            "kernelwright.tools.sandbox.inside.zygote_process",
            str(self.kind),
            str(channel.fileno()),
            self._hook,
        ]
        return subprocess.Popen(
            command, pass_fds=[channel.fileno()], env=self._environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True, cwd=self.folder,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """Returns the environment of the warm process: only the user's variables which Python,
        Triton and CUDA need.
        """
        environment = {k: v for k, v in os.environ.items() if k in KEPT_VARIABLES}
        root = str(Path(kernelwright.__file__).parents[1])
        ours = {
            "PYTHONPATH": os.pathsep.join([root, *(p for p in os.environ.get("PYTHONPATH",
            "").split(os.pathsep) if p)]),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TRITON_DEFAULT_FP_FUSION": "1", "TOKENIZERS_PARALLELISM": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "HOME": str(self.folder), "TMPDIR": str(self.folder),
        }  # fmt: skip
        if self.kind is ProcessKind.INTERPRET:
            ours["TRITON_INTERPRET"] = "1"
        if self.kind is not ProcessKind.CUDA:
            ours["CUDA_VISIBLE_DEVICES"] = ""
        return environment | ours

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

    def group(self) -> Group | None:
        """Makes control groups for a process, if this host allows memory bounds by them.

        Called and removed by `Process` only.
        """
        if self._groups is None:
            self._groups = find_groups()
            self._groups.sweep()
        if not self._groups.bound_memory:
            return None
        try:
            return self._groups.create(self.limits.memory + self.limits.disk, self.limits.processes)
        except OSError:
            return None

    def request(self, scratch: Path, fds: Sequence[int], groups: Sequence[Path] = ()) -> None:
        """Requests a forked process. Called by `Process` only."""
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
        request = ProcessSettings(
            scratch=str(scratch),
            environment=environment,
            limits=self.limits,
            gpu=visible(self.gpu),
            pid_namespace=self._pid_namespace,
            private_scratch=self._private_scratch,
            handed_out=self._handed_out,
            memory_files=not self._private_scratch or self.kind is ProcessKind.CUDA,
            groups=tuple(str(folder) for folder in groups),
        )
        try:
            self._channel.send(request.as_message(), fds)
        except ChannelClosed as error:
            raise InfrastructureError(
                f"the sandbox is gone: {self._last_words() or error}; run the command again"
            ) from error

    def process(self) -> Process:
        """Returns a process waiting for its job, the spare if available, and starts the next
        spare.
        """
        with self._lock:
            spare = self._spare
            process, self._spare = spare or Process(self), None
            if self._keep_spare:
                self._spare = Process(self)
            before, self._last = self._last, process
            self._dying = before
            self._processes.append(process)
        if before is not None and not self._pid_namespace:
            before.gone()  # nothing but the zygote ends what a candidate has left behind there
        try:
            process.wait_ready()
        except InfrastructureError:
            if spare is None:
                raise
            process = self._in_its_place(process)
        return process

    def _in_its_place(self, spare: Process) -> Process:
        """Returns a new process in place of a spare started while another process held the GPU's
        whole memory.
        """
        spare.kill()
        with self._lock:
            process = self._last = Process(self)
            self._processes.append(process)
        process.wait_ready()
        return process

    def start(self, entry: str, payload: Message, fds: Sequence[int] = ()) -> Process:
        """Runs `package.module:function(channel, payload)` in a process of its own."""
        process = self.process()
        process.start(entry, payload, fds)
        return process

    def settle(self) -> None:
        """Waits until all killed processes are gone, which takes seconds for a candidate that
        started hundreds on a busy machine.
        """
        with self._lock:
            started = list(self._processes)
        for process in started:
            if process.gone():
                with (
                    self._lock,
                    contextlib.suppress(ValueError),
                ):  # another thread may have seen it gone
                    self._processes.remove(process)

    def close(self) -> None:
        """Ends the warm process and all candidates forked from it."""
        if not self._warm:
            self._process.kill()  # who waits for it holds the lock
        with self._lock:
            if self._spare:
                self._spare.kill()
                self._spare.gone()
                self._spare = None
            if self._last:
                self._last.gone()
        self._channel.close()
        # It ends its candidates and removes their folder by itself, and is killed where it takes too long.
        if self._warm:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_SECONDS)
        self._unclosed()
