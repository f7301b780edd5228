"""The trusted side of the sandbox: a zygote to fork from, and one process for each candidate, killed at a deadline that is kept here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.results import InfrastructureError, Isolation, clean_text
from tools.sandbox.channel import BadMessage, ChannelClosed, ChannelTimeout, Message, pair
from tools.sandbox.isolation import Kind, Limits

WARM_SECONDS = 120.0
READY_SECONDS = 60.0
LAST_SECONDS = 3.0
"""To die in: a process closes its channel first and its CUDA context last, which takes over a second where many share a GPU."""
REMOVING_SECONDS = 1.0


KEPT = (
    "PATH", "LD_LIBRARY_PATH", "LANG", "CUDA_HOME", "CUDA_PATH", "CUDA_DEVICE_ORDER", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH",
)  # fmt: skip
"""Of this process's environment, what a sandbox sees."""


class ProcessDied(Exception):
    """The candidate's process ended without an answer."""

    def __init__(self, exit_code: int | None, signal_number: int | None) -> None:
        self.exit_code, self.signal_number = exit_code, signal_number
        super().__init__(self.describe())

    def describe(self) -> str:
        if self.signal_number is not None:
            try:
                return f"the process was killed by {signal.Signals(self.signal_number).name}"
            except ValueError:
                return f"the process was killed by signal {self.signal_number}"
        return f"the process ended by itself with exit code {self.exit_code}"


class ProcessTimedOut(Exception):
    """No answer before the deadline."""


class Process:
    """One candidate's process. A context manager: leaving it kills the process and everything it started."""

    def __init__(self, zygote: Zygote) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="candidate-", dir=zygote.folder))
        self._channel, theirs = pair()
        self.isolation = Isolation()
        self._collected = bytearray()
        self._limit = zygote.limits.output
        self._status = ""
        self._ready = False
        self._end: threading.Thread | None = None
        output_read, output_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            zygote.request(self._scratch, [theirs.fileno(), output_write, status_write])
        finally:
            theirs.close()
            os.close(output_write)
            os.close(status_write)
        self._status_pipe = os.fdopen(status_read, "r")
        self._drain = threading.Thread(target=self._collect, args=(output_read,), daemon=True)
        self._drain.start()
        self._pid = self._read_pid()

    @property
    def scratch(self) -> Path:
        """The only folder that the candidate can write."""
        return self._scratch

    @property
    def output(self) -> str:
        """What was printed, capped. Data."""
        return clean_text(bytes(self._collected).decode("utf-8", "replace"), 8000)

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Returns once the walls stand (and, on a GPU, the context exists). Raises InfrastructureError."""
        if self._ready:
            return
        try:
            layers = self._channel.receive(time.monotonic() + seconds)["ready"]
        except (ChannelClosed, ChannelTimeout, BadMessage, KeyError) as error:
            self._drain.join(1.0)
            raise InfrastructureError(
                f"a candidate's process could not be set up: {self.output[-500:] or error}"
            ) from error
        self.isolation = Isolation(active=tuple(layers["active"]), missing=tuple(layers["missing"]))
        self._ready = True

    def start(self, entry: str, payload: Message, fds: Sequence[int] = ()) -> None:
        self.wait_ready()
        self.send({"entry": entry, "payload": payload}, fds)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        try:
            self._channel.send(message, fds)
        except ChannelClosed as error:
            raise self._death() from error

    def receive(self, seconds: float) -> Message:
        """The next message. Raises ProcessDied, ProcessTimedOut, BadMessage (what arrived is no message)."""
        try:
            return self._channel.receive(time.monotonic() + seconds)
        except ChannelTimeout as error:
            raise ProcessTimedOut(f"no answer within {seconds:g} s") from error
        except ChannelClosed as error:
            raise self._death() from error

    def _death(self) -> ProcessDied:
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL) if self._closed_but_alive() else None
        ended = self._status_pipe.readline().split()
        if len(ended) != 2:
            return ProcessDied(None, None)
        return ProcessDied(int(ended[1]), None) if ended[0] == "exit" else ProcessDied(None, int(ended[1]))

    def _closed_but_alive(self) -> bool:
        """It closed its channel and lives on: give it a moment to end by itself, then it is killed."""
        import select

        return not select.select([self._status_pipe], [], [], LAST_SECONDS)[0]

    def _read_pid(self) -> int:
        line = self._status_pipe.readline().split()
        if len(line) != 2:
            raise InfrastructureError("the sandbox could not fork a process for the candidate: run `agent doctor`")
        return int(line[1])

    def _collect(self, fd: int) -> None:
        with os.fdopen(fd, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                room = self._limit - len(self._collected)
                self._collected += data[: max(room, 0)]

    def kill(self) -> None:
        """The process, its group and (through its pid namespace) all it started. Returns at once; `gone` waits. Safe to call twice."""
        for send_signal in (lambda: os.killpg(self._pid, signal.SIGKILL), lambda: os.kill(self._pid, signal.SIGKILL)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send_signal()
        self._channel.close()
        if self._end is None:
            self._end = threading.Thread(target=self._bury, daemon=True)
            self._end.start()

    def _bury(self) -> None:
        """A process with a CUDA context takes a third of a second to die: nobody needs to watch."""
        with contextlib.suppress(ValueError):
            self._status_pipe.read()
            self._status_pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def gone(self, seconds: float = 20.0) -> None:
        """Waits until the killed process, all that it started and its scratch folder are no more."""
        if self._end is not None:
            self._end.join(seconds)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


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
        ours, theirs = pair()
        self._channel = ours
        command = [sys.executable, "-m", "tools.untrusted.zygote", str(kind), str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=self._environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True, cwd=self.folder,
        )  # fmt: skip
        theirs.close()

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
        self._process.kill()
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()
        _remove(self.folder)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
