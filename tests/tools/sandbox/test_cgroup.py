"""Control groups: where they may be made, what is set, and that nothing is left.

Real ones where this host lets us make any.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.tools.sandbox.isolation import cgroup
from kernelwright.tools.sandbox.isolation.cgroup import Group, Groups, Hierarchy, find_groups

ROOT = Path(__file__).parents[3]


def pretend(tmp_path, line, mount, controllers="memory pids"):
    """A /proc/self and the root of a hierarchy, as files."""
    root = tmp_path / "root"
    group = root / line.rpartition(":")[2].lstrip("/")
    group.mkdir(parents=True, exist_ok=True)
    for folder in {root, group}:
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text(controllers)
    (tmp_path / "cgroup").write_text(f"{line}\n")
    (tmp_path / "mountinfo").write_text(f"30 1 0:26 / {root} rw,relatime - {mount}\n")
    return root


def test_groups_are_made_at_the_root_of_what_is_seen(tmp_path):
    root = pretend(tmp_path, "0::/", "cgroup2 cgroup rw")
    found = find_groups(tmp_path)
    assert found.hierarchies == [Hierarchy(root, frozenset({"memory", "pids"}), 2)]
    assert found.bound_memory
    assert not found.missing


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user owns the folder, and may use it")
def test_a_group_that_somebody_else_made_for_us_stays_as_it_is(tmp_path):
    root = pretend(tmp_path, "4:memory:/jobs/one", "cgroup cgroup rw,memory")
    found = find_groups(tmp_path)
    assert not found.bound_memory
    assert "/jobs/one" in found.missing
    assert list((root / "jobs" / "one").glob("kernelwright-*")) == []


def test_a_group_below_one_that_systemd_delegates_is_ours(tmp_path):
    root = pretend(tmp_path, "0::/user.slice/run.scope/inner", "cgroup2 cgroup rw")
    try:
        os.setxattr(root / "user.slice" / "run.scope", "user.delegate", b"1")
    except OSError:
        pytest.skip("no extended attributes here")
    assert find_groups(tmp_path).bound_memory


def test_controllers_that_are_not_switched_on_are_not_used(tmp_path):
    root = pretend(tmp_path, "0::/", "cgroup2 cgroup rw", "cpu io")
    assert not find_groups(tmp_path).bound_memory
    assert not list(root.glob("kernelwright-*"))


def test_memory_counts_whole_and_swap_does_not_extend_it():
    second = Hierarchy(Path("/x"), frozenset({"memory", "pids"}), 2).settings(1 << 30, 64)
    assert second == {
        "memory.max": 1 << 30,
        "memory.swap.max": 0,
        "memory.oom.group": 1,
        "pids.max": 64,
    }
    first = Hierarchy(Path("/x"), frozenset({"memory"}), 1).settings(1 << 30, 64)
    assert first == {"memory.limit_in_bytes": 1 << 30, "memory.memsw.limit_in_bytes": 1 << 30}


@pytest.mark.parametrize(
    ("file", "text"),
    [("memory.events", "oom 1\noom_kill 1\n"), ("memory.oom_control", "under_oom 0\noom_kill 2\n")],
)
def test_an_end_for_want_of_memory_is_known(tmp_path, file, text):
    assert not Group([tmp_path]).memory_ran_out()
    (tmp_path / file).write_text(text)
    assert Group([tmp_path]).memory_ran_out()


def test_folders_of_a_dead_maker_are_swept_and_others_are_not(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead, living = (
        tmp_path / f"kernelwright-{ended.pid}-0",
        tmp_path / f"kernelwright-{os.getpid()}-0",
    )
    dead.mkdir()
    living.mkdir()
    Groups([Hierarchy(tmp_path, frozenset({"pids"}), 2)]).sweep()
    assert not dead.exists()
    assert living.exists()


BOUNDED = """
import os, sys, time
from kernelwright.tools.sandbox.isolation import cgroup
cgroup.enter_groups(sys.argv[1:])
made = []
try:
    while len(made) < 50:
        made.append(os.fork())
        if made[-1] == 0:
            time.sleep(600)
            os._exit(0)
except BlockingIOError:
    pass
for process in made:
    os.kill(process, 9)
print(len(made))
"""


def test_a_real_group_bounds_what_enters_it_and_is_removed():
    groups = find_groups()
    if not any("pids" in hierarchy.controllers for hierarchy in groups.hierarchies):
        pytest.skip(f"no group can be made here: {groups.missing}")
    group = groups.create(1 << 30, 8)
    try:
        command = [sys.executable, "-c", BOUNDED, *map(str, group.folders)]
        said = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=True
        ).stdout
        assert int(said) == 7
    finally:
        group.remove()
    assert not any(folder.exists() for folder in group.folders)


def test_this_hosts_answer_is_told(strict):
    process = strict.process()
    with process:
        named = cgroup.find_groups().bound_memory
        assert ("memory cgroup" in process.isolation.active) == named
        assert ("memory watch" in process.isolation.active) != named
