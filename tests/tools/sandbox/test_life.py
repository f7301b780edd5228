"""Zygotes from their start to their end, however that comes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.tools.report import InfrastructureError
from kernelwright.tools.sandbox import ProcessDied, ProcessKind, Zygote, folders
from kernelwright.tools.sandbox.process import MAX_OUTPUT_CHARACTERS

ROOT = Path(__file__).parents[3]
PROBE = "kernelwright.tools.sandbox.inside.probe:serve"
HOOKS = """
import os, threading, time

def note():
    with open("hook", "a") as file:
        file.write(f"{os.getpid()}\\n")

def leaves_a_thread():
    threading.Thread(target=time.sleep, args=(600,), daemon=True, name="left-behind").start()

def raises():
    raise ValueError("the hook's own words")

def keeps_a_thread_of_a_library():
    import ctypes
    libc = ctypes.CDLL(None)
    libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)

def ends_its_thread():
    threading.Thread(target=time.sleep, args=(0.2,)).start()
"""


@pytest.fixture
def hooks(tmp_path, monkeypatch):
    (tmp_path / "hooks_of_a_test.py").write_text(HOOKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "hooks_of_a_test"


def test_a_hook_runs_once_in_the_warm_process_before_anything_is_forked(hooks):
    with Zygote(ProcessKind.INTERPRET, warm=f"{hooks}:note") as zygote:
        for _ in range(2):
            with zygote.start(
                PROBE, {"code": "import sys; result = 'hooks_of_a_test' in sys.modules"}
            ) as process:
                assert process.receive(200)["result"]
        assert (zygote.folder / "hook").read_text() == f"{zygote._process.pid}\n"


def test_a_hook_may_use_a_thread_that_ends(hooks):
    with Zygote(ProcessKind.INTERPRET, warm=f"{hooks}:ends_its_thread", spare=False) as zygote:
        zygote.wait_warm()


@pytest.mark.parametrize("pid_namespace", [True, False])
def test_a_thread_that_a_library_keeps_changes_nothing_for_candidates(hooks, pid_namespace):
    options = {
        "warm": f"{hooks}:keeps_a_thread_of_a_library",
        "spare": False,
        "private_scratch": True,
    }
    with Zygote(ProcessKind.INTERPRET, pid_namespace=pid_namespace, **options) as zygote:
        zygote.wait_warm()
        assert len(os.listdir(f"/proc/{zygote._process.pid}/task")) == 2
        for code, end in (
            ("result = 1", None),
            ("import time; time.sleep(600)", None),
            ("import os; os.abort()", 6),
        ):
            with zygote.start(PROBE, {"code": code}) as process:
                assert ("pid namespace" in process.isolation.active) is pid_namespace
                assert "bounded scratch folder" in process.isolation.active
                if end:
                    with pytest.raises(ProcessDied) as death:
                        process.receive(200)
                    assert death.value.signal_number == end
                elif "result" in code:
                    assert process.receive(200)["result"] == 1
            process.gone()
            assert not Path("/proc", str(process._pid)).exists()
            assert not process.scratch.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"), [("leaves_a_thread", "left-behind"), ("raises", "the hook's own words")]
)
def test_a_hook_that_fails_is_said(hooks, name, words):
    with (
        Zygote(ProcessKind.INTERPRET, warm=f"{hooks}:{name}") as zygote,
        pytest.raises(InfrastructureError, match=words),
    ):
        zygote.wait_warm()


def test_a_killed_owner_leaves_no_process_and_no_folder(tmp_path):
    code = (
        "import os, time\nfrom kernelwright.tools.sandbox import ProcessKind, Zygote\n"
        "zygote = Zygote(ProcessKind.INTERPRET)\nprocess = zygote.process()\n"
        "print(zygote._process.pid, flush=True)\ntime.sleep(600)"
    )
    surroundings = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=surroundings, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    zygote = int(owner.stdout.readline())
    assert any(tmp_path.iterdir())
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 400
    while (
        Path("/proc", str(zygote)).exists() or any(tmp_path.iterdir())
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(tmp_path.iterdir())
    owner.stdout.close()


def test_a_folder_of_a_killed_owner_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, lock = folders.make_folder("interpret")
    os.close(lock)
    (left / "candidate-1").mkdir()
    held, kept = folders.make_folder("interpret")
    folders.sweep("interpret")
    assert left.exists()  # it is young
    folders.sweep("interpret", young=-1.0)
    assert not left.exists()
    assert held.exists()
    os.close(kept)


def test_closing_ends_the_zygote_by_itself_and_all_candidates(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("kernelwright.tools.sandbox.zygote.CLOSE_SECONDS", 400.0)
    with Zygote(ProcessKind.INTERPRET) as zygote:
        process = zygote.start(PROBE, {"code": "import time; time.sleep(600)"})
    assert zygote._process.returncode == 0
    assert not any(tmp_path.iterdir())
    assert not Path("/proc", str(process._pid)).exists()


def test_the_end_of_one_candidate_is_told_while_others_live(strict):
    with (
        strict.start(PROBE, {"code": "import time; time.sleep(600)"}),
        strict.start(PROBE, {"code": "result = 1"}) as second,
    ):
        assert second.receive(200)["result"] == 1
        second.kill()
        second.gone(500)
        assert not second._end.is_alive()


@pytest.mark.parametrize(
    "printed",
    [
        "'\\U0001f600' * 30_000",
        "'\\u4e2d' * 30_000",
        "'\\x1b[31m' * 30_000",
        "'\\\\' * 100_000",
        "chr(0x202e) * 9_000 + '\\x9b2J'",
    ],
)
def test_what_is_printed_is_short_in_any_encoding_and_without_control_characters(strict, printed):
    code = f"import os\nfor _ in range(3): os.write(1, ({printed}).encode())\nresult = 1"
    with strict.start(PROBE, {"code": code}) as process:
        assert process.receive(200)["result"] == 1
        process.kill()
        process.gone()
        process._drain.join(5)
        assert 0 < len(process.output.encode()) <= MAX_OUTPUT_CHARACTERS
        assert all(c in "\n\t" or c.isprintable() for c in process.output)


def test_a_death_by_signal_names_it_in_the_first_process_too(strict):
    with strict.start(PROBE, {"code": "result = 1"}) as process:
        os.kill(process._pid, signal.SIGKILL)
        process.gone()


def test_a_process_that_ends_at_once_takes_its_empty_folders_with_it_and_no_others(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(folders.tempfile, "tempdir", str(tmp_path))
    (empty, first), (used, second), (closed, third) = (
        folders.make_folder("interpret") for _ in range(3)
    )
    (used / "hook").write_text("a zygote works here")
    folders.remove(closed)
    folders.remove_empty()
    assert sorted(tmp_path.iterdir()) == [used]
    folders.remove(used)
    for lock in (first, second, third):
        os.close(lock)
    assert not empty.exists()


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0, 3.0])
def test_a_zygote_whose_owner_goes_removes_its_folder_whatever_it_is_at(seconds):
    zygote = Zygote(ProcessKind.INTERPRET)
    time.sleep(seconds)
    zygote._channel.close()
    zygote._process.wait(500)
    left = zygote.folder.exists()
    zygote.close()
    assert not left
