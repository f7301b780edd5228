"""The walls round a candidate, tried for real."""

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.sandbox import ProcessDied, ProcessKind, ProcessTimedOut, Zygote, available
from kernelwright.tools.sandbox.channel import Channel, ChannelClosed
from kernelwright.tools.sandbox.zygote import visible

ROOT = Path(__file__).parents[3]
PROBE = "kernelwright.tools.sandbox.inside.probe:serve"


@pytest.fixture(scope="module")
def zygote():
    with Zygote(ProcessKind.INTERPRET) as warm:
        yield warm


def ask(zygote, code, seconds=200.0):
    with zygote.start(PROBE, {"code": code}) as process:
        return process.receive(seconds)


@pytest.mark.slow
def test_a_candidate_answers_and_names_its_walls(zygote):
    with zygote.start(PROBE, {"code": "result = 6 * 7"}) as process:
        assert process.receive(200)["result"] == 42
        assert "resource limits" in process.isolation.active


def test_every_layer_of_this_machine_is_tried():
    names = [name for name, _, _ in available()]
    assert {"landlock", "seccomp", "resource limits"} <= set(names)


def test_a_hang_is_killed_and_the_next_one_answers(zygote):
    with (
        zygote.start(PROBE, {"code": "while True: pass"}) as process,
        pytest.raises(ProcessTimedOut),
    ):
        process.receive(0.5)
    assert ask(zygote, "result = 1")["result"] == 1


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os._exit(0)", (0, None)),
        ("import os; os.abort()", (None, 6)),
        ("import ctypes; ctypes.string_at(0)", (None, 11)),
    ],
)
def test_a_death_is_told_apart(zygote, code, how):
    with zygote.start(PROBE, {"code": code}) as process, pytest.raises(ProcessDied) as death:
        process.receive(200)
    assert (death.value.exit_code, death.value.signal_number) == how


def test_a_daemon_left_behind_dies_with_its_candidate(zygote, tmp_path):
    mark = f"sleep-{os.getpid()}"
    code = (
        f"import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        open('{mark}', "
        "'w'); time.sleep(600)\n    os._exit(0)\n"
        f"while not os.path.exists('{mark}'): time.sleep(.01)\nresult = os.listdir('.')"
    )
    with zygote.start(PROBE, {"code": code}) as process:
        assert mark in process.receive(200)["result"]
        scratch = str(process.scratch)
    process.gone(500)
    assert not [p for p in os.listdir("/proc") if p.isdigit() and _cwd(p).startswith(scratch)]


def test_a_spare_that_could_not_be_set_up_is_replaced(zygote):
    """It is begun while another judge may have all of the GPU's memory."""
    assert ask(zygote, "result = 1")["result"] == 1
    spare = zygote._spare
    spare.wait_ready()
    os.killpg(spare._pid, signal.SIGKILL)
    spare._ready = False  # as if it had died on the way
    assert ask(zygote, "result = 2")["result"] == 2
    assert zygote._last is not spare
    assert ask(zygote, "result = 3")["result"] == 3


def test_gone_is_when_everything_of_a_candidate_is_gone(zygote):
    """The namespace's first process, which tells how it ended, dies before the others: with much memory they take a
    while, and a GPU's is theirs until then.
    """
    with zygote.start(
        PROBE,
        {"code": "kept = b'x' * (1 << 30); import builtins; builtins.kept = kept; result = 1"},
    ) as process:
        process.receive(60)
        scratch = str(process.scratch)
        living = [p for p in os.listdir("/proc") if p.isdigit() and _cwd(p).startswith(scratch)]
        assert living
    process.gone()
    assert not [p for p in living if Path("/proc", p).exists()]
    assert not Path(scratch).exists()


def test_settled_is_when_nothing_is_left_of_the_processes_that_were_killed_and_the_others_live_on(
    zygote,
):
    code = "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        time.sleep(300)\nresult = 1"
    with zygote.start(PROBE, {"code": code}) as killed:
        killed.receive(60)
        scratch = str(killed.scratch)
        until, living = time.monotonic() + 60.0, list[str]()
        while (
            len(living) < 40 and time.monotonic() < until
        ):  # on a busy machine one look misses some
            living = [p for p in os.listdir("/proc") if p.isdigit() and _cwd(p).startswith(scratch)]
        assert len(living) >= 40
    with zygote.start(PROBE, {"code": "result = 2"}) as other:
        zygote.settle()
        assert not [p for p in living if Path("/proc", p).exists()]
        assert other.receive(60)["result"] == 2
        assert other in zygote._processes
    zygote.settle()
    assert zygote._processes == []


def test_many_threads_settle_at_once(zygote):
    def one(number: int) -> int:
        with zygote.start(PROBE, {"code": f"result = {number}"}) as process:
            found = process.receive(60)["result"]
        zygote.settle()
        return found

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(48))) == list(range(48))
    zygote.settle()
    assert zygote._processes == []


def _cwd(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "open('/tmp/left-behind', 'w')",
        "open(os.path.expanduser('~root/.profile')).read()",
        f"open({__file__!r}).read()",
        "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)",
        "os.kill(os.getppid() or 1, 0) if os.getppid() else (_ for _ in ()).throw(PermissionError('no "
        "parent in sight'))",
        "import ctypes; l = ctypes.CDLL(None, use_errno=True); r = l.ptrace(16, 1, 0, 0); (_ for _ in "
        "()).throw(PermissionError()) if r < 0 else "
        "None",
    ],
)
def test_what_is_not_its_own_is_closed(zygote, code):
    answer = ask(zygote, f"import os\n{code}")
    assert answer["error"] in (
        "PermissionError",
        "OSError",
        "FileNotFoundError",
        "ConnectionRefusedError",
        "ProcessLookupError",
    ), answer


@pytest.mark.slow
def test_output_is_drained_and_capped(zygote):
    with zygote.start(
        PROBE,
        {"code": "import sys\nfor _ in range(200): sys.stdout.write('x' * 1_000_000)\nresult = 1"},
    ) as process:
        assert process.receive(60)["result"] == 1
        assert 0 < len(process.output) < 10_000


def test_memory_is_bounded(zygote):
    assert ask(zygote, "x = bytearray(40 << 30)")["error"] == "MemoryError"


@pytest.mark.slow
def test_a_fork_bomb_ends_with_its_candidate(zygote):
    code = (
        "import os, time\nn = 0\ntry:\n    while n < 2000:\n        if os.fork() == 0: time.sleep(600)\n       "
        " n += 1\nexcept OSError: pass\nresult = n"
    )
    assert ask(zygote, code, 60)["result"] < 1000
    assert ask(zygote, "result = 1")["result"] == 1


@pytest.mark.parametrize("ceiling", [True, False])
def test_what_else_this_user_runs_counts_only_where_nothing_else_bounds_a_candidate(ceiling):
    """RLIMIT_NPROC counts all threads of a user, so those that a neighbour starts later could end a candidate."""
    code = (
        "import resource as r\n"
        "from kernelwright.tools.sandbox.isolation.layers import Limits, ProcessKind, set_limits\n"
        f"before = r.getrlimit(r.RLIMIT_NPROC); set_limits(ProcessKind.INTERPRET, Limits(), ceiling={ceiling})\n"
        "print(before == r.getrlimit(r.RLIMIT_NPROC), r.getrlimit(r.RLIMIT_AS)[0] > 0)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert said.split() == [str(ceiling), "True"]


def test_shared_memory_of_others_is_out_of_sight(zygote):
    name = f"/dev/shm/kernelwright-test-{os.getpid()}"
    Path(name).write_text("of someone else")
    try:
        with zygote.start(PROBE, {"code": "import os; result = os.listdir('/dev/shm')"}) as process:
            assert "own /dev/shm" in process.isolation.active
            assert Path(name).name not in str(process.receive(200))
    finally:
        Path(name).unlink()


def test_the_environment_is_scrubbed(zygote, monkeypatch):
    names = ask(zygote, "import os; result = sorted(os.environ)")["result"]
    assert not [n for n in names if n.endswith(("_KEY", "_TOKEN")) or n == "SECRET"]


def test_a_gpu_is_the_same_one_in_the_sandbox_as_here(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible(1) == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-7bcd")
    assert [visible(0), visible(1)] == ["3", "GPU-7bcd"]
    assert visible(None) == ""


class _Paused:
    """A socket whose owner is held up after it has sent: who listened has read all, answered and gone by then."""

    def __init__(self, sock, listener):
        self._sock, self._listener = sock, listener

    def sendmsg(self, *given):
        sent = self._sock.sendmsg(*given)
        self._listener.receive()
        self._listener.send({"done": 1})
        self._listener.close()
        return sent

    def __getattr__(self, name):
        return getattr(self._sock, name)


def test_a_message_that_was_read_is_sent_though_the_reader_is_gone():
    """Seen on a busy machine: the process ended with its work done before the judge's thread came back from sending
    it.
    """
    ours, theirs = socket.socketpair()
    channel = Channel(_Paused(ours, Channel(theirs)))
    channel.send({"work": "short"})
    assert channel.receive() == {"done": 1}
    with pytest.raises(ChannelClosed):
        channel.receive()


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_zygote_whose_owner_goes_while_it_imports_dies_at_once(seconds):
    """A killed owner, or Ctrl-C in the middle of its start: nobody waits for torch."""
    zygote = Zygote(ProcessKind.INTERPRET)
    time.sleep(seconds)
    zygote._channel.close()
    ended = zygote._process.wait(500)
    zygote.close()
    assert ended == -signal.SIGIO or (seconds and ended == 0)  # it had imported all in a second


def test_a_start_that_is_interrupted_leaves_no_folder(tmp_path, monkeypatch, own_processes):
    begun = Zygote._begun

    def interrupted(zygote, channel):
        if zygote.kind is ProcessKind.INTERPRET:
            raise KeyboardInterrupt
        return begun(zygote, channel)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Zygote, "_begun", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Zygote(ProcessKind.INTERPRET)
    with pytest.raises(KeyboardInterrupt):  # the first zygote is there, the second is not
        Evaluator()
    assert not list(tmp_path.iterdir())


INTERRUPTED_CLOSE = """
from kernelwright.agent.runtime.errors import end_process
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.sandbox.process import Process

def interrupted(process, seconds=20.0):
    raise KeyboardInterrupt

evaluator = Evaluator()
for zygote in evaluator._zygotes.values():
    zygote.process()
Process.gone = interrupted
try:
    evaluator.close()
except KeyboardInterrupt:
    end_process(130)
"""


@pytest.mark.slow
def test_an_end_that_is_interrupted_leaves_no_folder(tmp_path):
    command, surroundings = (
        [sys.executable, "-c", INTERRUPTED_CLOSE],
        {**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (
        subprocess.run(command, cwd=ROOT, env=surroundings, timeout=500, check=False).returncode
        == 130
    )
    assert not list(tmp_path.glob("kernelwright-*"))


def test_a_zygote_that_nobody_closed_is_put_away(tmp_path, monkeypatch):
    """Ctrl-C between its start and the name that it was to have."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    zygote = Zygote(ProcessKind.INTERPRET)
    running = zygote._process
    del zygote
    gc.collect()
    assert running.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())
