"""What a walled judge's process sees, and that all it starts ends at a bound. Every program ends by itself, too."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

import kernelwright
from kernelwright.agent.judging.walls.bounds import EXIT_CODES, bounds_of_judge, exceeded_bound
from kernelwright.tools.sandbox.inside.usage_watch import Bound
from kernelwright.tools.sandbox.isolation.layers import available

PROGRAM = Path(__file__).with_name("behind_walls.py")
WIDE = {
    "own_processes": 1000, "processes": 1000, "threads": 1000, "memory": 4 << 30, "memory_when_scarce": 4 << 30,
    "scarce_memory": 0,
}  # fmt: skip
FORKS = """
import os, sys, time
for number in range(200):
    try:
        child = os.fork()
    except OSError:
        sys.exit(7 if number < 100 else 8)
    if child == 0:
        time.sleep(20 + MARK)
        os._exit(0)
time.sleep(10)
"""
TAKES_MEMORY = """
import time
kept = []
for _ in range(20):
    kept.append(bytearray(b"x") * (50 << 20))
    time.sleep(0.05)
"""
FILLS_TEMPORARY_FOLDER = """
import tempfile
for _ in range(300_000):
    tempfile.mkstemp()
"""
REFUSED = {
    "the hidden file": "open({hidden!r})",
    "the hidden folder": "os.listdir({folder!r})[0]",
    "files of root": "open('/etc/shadow')",
    "disks": "open((glob.glob('/dev/[svn][dv]*') or ['/dev/none'])[0], 'rb')",
    "settings of the kernel": "open('/proc/sys/kernel/core_pattern', 'w')",
    "files outside of /tmp": "open('/etc/planted', 'w')",
    "the package": "open(kernelwright.__path__[0] + '/planted.py', 'w')",
    "mounts": "subprocess.run(['umount', '/'], check=True, capture_output=True)",
    "the first process": "open('/proc/1/environ').read()",
    "devices": "os.mknod('/tmp/device', 0o60666, os.makedev(254, 0))",
}


def has_namespaces() -> bool:
    return all(
        holds for name, holds, _ in available() if name in ("pid namespace", "private mounts")
    )


pytestmark = pytest.mark.skipif(not has_namespaces(), reason="this system refuses namespaces")


def run(
    text: str,
    folder: Path,
    walls: str = "namespaces",
    before: tuple[str, ...] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
    **changed: int,
) -> subprocess.CompletedProcess[str]:
    hidden = folder / "server" / "tokens.txt"
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("a-token")
    numbers = [str(value) for value in (WIDE | changed).values()]
    words = [*before, sys.executable, str(PROGRAM), text, str(hidden), *numbers, walls]
    source = Path(kernelwright.__file__).parents[1]
    whole = {"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin"} | environment
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env=whole)


@pytest.mark.parametrize("action", REFUSED)
def test_a_walled_process_is_refused(action, tmp_path):
    statement = REFUSED[action].format(
        hidden=str(tmp_path / "server" / "tokens.txt"), folder=str(tmp_path / "server")
    )
    text = (
        "import glob, os, subprocess\nimport kernelwright\n"
        f"try:\n    {statement}\n"
        "except (OSError, IndexError, subprocess.CalledProcessError) as error:\n    print('refused', error)\n"
    )
    ended = run(text, tmp_path)
    assert ended.returncode == 0, ended
    assert ended.stdout.startswith("refused"), ended
    assert not ended.stderr


@pytest.mark.parametrize(
    ("text", "changed", "bound"),
    [
        (FORKS, {"own_processes": 60}, Bound.PROCESSES),
        (FORKS, {"processes": 60}, Bound.PROCESSES),
        (TAKES_MEMORY, {"memory": 300 << 20}, Bound.MEMORY),
        (TAKES_MEMORY, {"memory_when_scarce": 300 << 20, "scarce_memory": 1 << 60}, Bound.MEMORY),
        (FILLS_TEMPORARY_FOLDER, {}, None),
    ],
    ids=[
        "forks",
        "forks in sandboxes",
        "takes memory",
        "takes scarce memory",
        "fills the temporary folder with names",
    ],
)
def test_a_bound_ends_the_judge_and_all_that_it_started(text, changed, bound, tmp_path):
    mark = int(time.time()) % 100_000
    ended = run(text.replace("MARK", str(mark)), tmp_path, **changed)
    assert exceeded_bound(ended.returncode) is bound
    assert ended.returncode != 0
    assert not _running(str(mark)), "a copy outlived the bound"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_mount_below_a_covered_home_leaves_the_walls_whole(tmp_path):
    below = tmp_path / "below"
    below.mkdir()
    mounting = f'mount -t tmpfs none {below} && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", mounting, "sh")
    home = {"HOME": str(tmp_path)}
    ended = run("import os; print(os.getpid())", tmp_path, "user of the server", before, home)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) < 20, "it is in no process namespace of its own"


def test_without_namespaces_the_parent_ends_all_descendants(tmp_path):
    ended = run(FORKS.replace("MARK", "1"), tmp_path, "none", own_processes=60)
    assert ended.returncode == EXIT_CODES[Bound.PROCESSES]
    assert not _running("1")


def test_the_kernel_refuses_processes_beyond_the_ceiling(tmp_path):
    ended = run(FORKS.replace("MARK", "2"), tmp_path, threads=50)
    assert ended.returncode == 7


def test_a_judge_with_more_verdicts_side_by_side_may_have_more_processes():
    one, four = bounds_of_judge(1), bounds_of_judge(4)
    assert four.own_processes == one.own_processes
    assert four.processes - one.processes == 3 * (one.processes - one.own_processes)
    assert four.threads > one.threads


def _running(mark: str) -> list[int]:
    """Processes whose text holds the mark, but for this one."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if f"time.sleep(20 + {mark})" in words:
            found.append(process.pid)
    return found
