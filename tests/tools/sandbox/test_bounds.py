"""What a candidate takes of memory, disk and processes meets a bound with a name, and the next candidate is served
as if nothing had happened.
"""

import os
import time

import pytest

from kernelwright.tools.sandbox import ProcessDied, ProcessKind, Zygote

PROBE = "kernelwright.tools.sandbox.inside.probe:serve"


def ask(zygote, code, seconds=60.0):
    with zygote.start(PROBE, {"code": code}) as process:
        answer = process.receive(seconds)
    process.gone()
    return answer


def death(zygote, code, seconds=60.0):
    with zygote.start(PROBE, {"code": code}) as process, pytest.raises(ProcessDied) as died:
        process.receive(seconds)
    process.gone()
    assert not process.scratch.exists()
    assert ask(zygote, "result = 1")["result"] == 1
    return died.value.describe()


SHARED = """
import mmap, os, time
held = []
for _ in range(4):
    if os.fork() == 0:
        region = mmap.mmap(-1, 700 << 20)
        for at in range(0, 700 << 20, 4096):
            region[at] = 1
        time.sleep(600)
time.sleep(60)
"""

PRIVATE = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(b"x") * (600 << 20)
        time.sleep(600)
time.sleep(60)
"""


@pytest.mark.parametrize("where", ["strict", "bare"])
@pytest.mark.parametrize("code", [SHARED, PRIVATE], ids=["shared", "private"])
def test_memory_that_several_processes_hold_together_is_bounded(request, where, code):
    zygote = request.getfixturevalue(where)
    assert "held more than 1 GiB of memory" in death(zygote, code)


@pytest.mark.parametrize("where", ["strict", "bare"])
def test_forks_that_hold_nothing_of_their_own_are_not_counted_as_if_they_did(request, where):
    code = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(1.0); result = 1"
    assert ask(request.getfixturevalue(where), code)["result"] == 1


def test_files_in_memory_are_closed(strict):
    answer = ask(strict, "import os; os.memfd_create('m')")
    assert answer["error"] == "PermissionError"


def test_the_folder_is_bounded_in_bytes(strict):
    code = (
        "import os\ngot = 0\ntry:\n    for i in range(12):\n        with open(f'big{i}', 'wb', buffering=0) as "
        "file:\n            for _ in range(60): got += "
        "file.write(b'x' * (1 << 20))\nexcept OSError as error:\n  "
        "  result = [error.errno, got >> 20]"
    )
    number, got = ask(strict, code)["result"]
    assert number == 28
    assert got <= 64


def test_the_folder_is_bounded_in_files(strict):
    code = (
        "import os\ntry:\n    for i in range(100_000): os.close(os.open(f'f{i}', os.O_CREAT | "
        "os.O_WRONLY))\nexcept OSError as error:\n    result = "
        "[error.errno, i]"
    )
    number, made = ask(strict, code)["result"]
    assert number == 28
    assert made <= 2_000


def test_a_private_folder_is_seen_by_nobody_else_and_goes_with_its_process(strict):
    code = "import os; open('mine', 'w').write('x'); result = [os.getcwd(), os.listdir('.')]"
    with strict.start(PROBE, {"code": code}) as process:
        folder, listed = process.receive(200)["result"]
        assert folder == str(process.scratch)
        assert listed == ["mine"]
        assert not any(process.scratch.iterdir())
        assert "bounded scratch folder" in process.isolation.active
    process.gone()
    assert not process.scratch.exists()


def test_what_is_handed_out_of_a_private_folder_is_the_beginning_of_a_regular_file_and_nothing_else():
    code = (
        "import os\nopen('words', 'w').write('x' * 100_000)\nos.symlink('/etc/passwd', 'link')\n"
        "os.mkfifo('pipe')\nopen('more', 'w').write('y')\nos._exit(3)"
    )
    named = ("words", "link", "pipe", "absent")
    with (
        Zygote(
            ProcessKind.INTERPRET, spare=False, private_scratch=True, handed_out=named
        ) as zygote,
        zygote.start(PROBE, {"code": code}) as process,
    ):
        with pytest.raises(ProcessDied, match="exit code 3"):
            process.receive(200)
        assert [entry.name for entry in process.scratch.iterdir()] == ["words"]
        assert (process.scratch / "words").read_text() == "x" * (64 << 10)


def test_where_the_folder_is_the_hosts_it_is_watched_in_bytes(bare):
    code = "import time\nfor i in range(12):\n    open(f'big{i}', 'wb').write(b'x' * (60 << 20))\ntime.sleep(60)"
    assert "wrote more than 0.0625 GiB of files" in death(bare, code)


def test_deleted_files_that_are_held_open_count(bare):
    code = (
        "import os, time\nheld = []\nfor i in range(12):\n    held.append(open('big', 'wb', buffering=0)); "
        "os.unlink('big'); held[-1].write(b'x' * (20 << "
        "20))\ntime.sleep(60)"
    )
    assert "wrote more than 0.0625 GiB of files" in death(bare, code)


def test_where_the_folder_is_the_hosts_it_is_watched_in_files(bare):
    code = (
        "import os, time\nos.makedirs('a/b')\nfor i in range(30_000): os.close(os.open(f'a/b/f{i}', os.O_CREAT "
        "| os.O_WRONLY))\ntime.sleep(60)"
    )
    assert "made more than 2,000 files" in death(bare, code)


@pytest.mark.parametrize("where", ["strict", "bare"])
def test_a_fork_bomb_meets_a_bound_with_a_name(request, where):
    code = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(600)"
    assert "ran more than 64 processes at once" in death(request.getfixturevalue(where), code)


LEFT_BEHIND = """
import os, time
def away(mark):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(mark, "w").close()
            while True:
                time.sleep(0.01)
        os._exit(0)
for mark in "abc":
    away(mark)
while not all(os.path.exists(mark) for mark in "abc"):
    time.sleep(0.01)
"""


def _at(scratch):
    """Processes whose working folder is there."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.readlink(f"/proc/{entry}/cwd").startswith(str(scratch)):
                    found.append(int(entry))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("end", ["it is killed", "it ends", "its keeper is killed"])
def test_what_a_candidate_leaves_behind_is_ended_without_a_pid_namespace(bare, end):
    after = {
        "it ends": "import os\nos._exit(0)",
        "it is killed": "result = 1",
        "its keeper is killed": "result = 1",
    }[end]
    with bare.start(PROBE, {"code": LEFT_BEHIND + after}) as process:
        if end == "it ends":
            with pytest.raises(ProcessDied):
                process.receive(200)
        else:
            assert process.receive(200)["result"] == 1
            assert len(_at(process.scratch)) >= 3
        if end == "its keeper is killed":
            os.kill(process._pid, 9)
            time.sleep(0.2)
    process.gone()
    assert _at(process.scratch) == []
    assert ask(bare, "result = 1")["result"] == 1


def test_a_bomb_that_forks_on_while_it_is_ended_is_ended(bare):
    code = (
        LEFT_BEHIND
        + "\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        while True:\n          "
        "  if os.fork(): os._exit(0)\nresult = 1"
    )
    with bare.start(PROBE, {"code": code}) as process:
        assert process.receive(200)["result"] == 1
    process.gone()
    assert _at(process.scratch) == []
