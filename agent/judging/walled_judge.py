"""A judge whose references see neither the server's files nor its processes, and write nowhere but in /tmp.

`python -m kernelwright.agent.judging.walled_judge DESCRIPTOR DEVICE WORKERS JUDGES HIDDEN`, where HIDDEN is a JSON list
of paths. References run in the judge's process, which cannot be confined like a candidate: it starts sandboxes itself.
So it gets namespaces of its own (Linux): mounts, in which the folders of these files and the home are empty, but
for what Python needs, and everything but /tmp is read-only; and processes, in which the server's environment and files
cannot be reached through /proc.

    server -> launcher (mounts) -> first process of the namespace, which reaps -> judge_process

Where the system refuses a namespace the judge runs without it, and a line on stderr says so.
"""

from __future__ import annotations

import json
import os
import signal
import site
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import kernelwright
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel

JUDGE_MODULE = "kernelwright.agent.judging.judge_process"
UNTOUCHED_MOUNTS = ("/proc", "/sys", "/dev")
"""Mounts that stay as they are: devices, the kernel's own files, and control groups, which bound candidates."""


def main() -> None:
    """Enters the namespaces, starts the judge, and ends as it does."""
    *judge_arguments, hidden_json = sys.argv[1:]
    try:
        _enter_namespaces([Path(path) for path in json.loads(hidden_json)])
    except OSError as error:
        print(
            f"judges of this server are not walled off ({error.strerror or error}): references can read what the "
            "server's user can read",
            file=sys.stderr,
        )
        _run_judge(judge_arguments)
    if (first := os.fork()) == 0:
        _be_first_process(judge_arguments)
    _end_like(os.waitpid(first, 0)[1])


def _enter_namespaces(hidden: Sequence[Path]) -> None:
    """Makes the mounts of the judge. The next fork is the first process of a process namespace. Raises OSError."""
    if os.geteuid() != 0:
        kernel.enter_user_namespace()
    kernel.unshare(kernel.NEWNS | kernel.NEWPID)
    kernel.make_mounts_private()
    home, needed = Path.home().resolve(), _needed_folders()
    temporary = tempfile.gettempdir()
    kernel.bind_mount(temporary, temporary)
    os.chdir("/")  # a folder that is covered is still seen by a process that works in it
    for folder in dict.fromkeys((home, *map(_folder_to_hide, hidden))):
        for path in _without(folder, needed):
            kernel.hide(path)
    for mount_point in _writable_mounts(temporary):
        kernel.remount_read_only(mount_point)


def _needed_folders() -> list[Path]:
    """Returns the folders that Python imports from, this package included."""
    package = Path(kernelwright.__file__).parent
    folders = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable), package]
    folders.append(package / "tools")  # a link in a checkout
    # The first entry of sys.path is the folder in which the server was started: Python needs nothing of it.
    folders += [Path(path) for path in (*sys.path[1:], *site.getsitepackages()) if path]
    resolved = {folder.resolve() for folder in folders}
    return sorted(resolved | {folder.absolute() for folder in folders})


def _folder_to_hide(file: Path) -> Path:
    """Returns the folder of a file: another file may be renamed to its name. Of /etc and its like the file alone."""
    return file.parent if len(file.parent.parts) > 2 else file


def _without(folder: Path, needed: Sequence[Path]) -> Iterator[Path]:
    """Yields the parts of a folder in which none of the needed folders lies."""
    if any(folder.is_relative_to(path) for path in needed):
        return
    if folder.is_file() or not any(path.is_relative_to(folder) for path in needed):
        yield folder
        return
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            yield from _without(entry, needed)
        elif entry not in needed and not entry.is_symlink():
            yield entry


def _writable_mounts(temporary: str) -> list[str]:
    """Returns the mount points that are to be read-only, from the fields of /proc/self/mountinfo (proc(5))."""
    mount_points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount_point = line.split()[4].encode().decode("unicode_escape")
        is_untouched = any(Path(mount_point).is_relative_to(path) for path in UNTOUCHED_MOUNTS)
        if not is_untouched and not Path(mount_point).is_relative_to(temporary):
            mount_points.append(mount_point)
    return mount_points


def _be_first_process(judge_arguments: Sequence[str]) -> None:
    """Starts the judge, reaps what it and its sandboxes leave, and ends as the judge does. Never returns."""
    kernel.die_with_parent()
    kernel.mount_proc()
    # The CUDA driver names its files there by process id, which is the same in every namespace.
    kernel.mount_own_shm()
    if (judge := os.fork()) == 0:
        os.environ["HOME"] = tempfile.mkdtemp(prefix="kernelwright-judge-home-")
        _run_judge(judge_arguments)
    while True:
        ended, status = os.wait()
        if ended == judge:
            _end_like(status)


def _run_judge(judge_arguments: Sequence[str]) -> None:
    """Becomes the judge's process."""
    os.execv(sys.executable, [sys.executable, "-m", JUDGE_MODULE, *judge_arguments])


def _end_like(status: int) -> None:
    """Ends this process with the exit code of another one, or 128 and the signal that ended it."""
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
