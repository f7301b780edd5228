"""Starts a judge whose references are bounded, see nothing of the server, and write only to their own /tmp.

`python -m kernelwright.agent.judging.walls.walled_judge DESCRIPTOR DEVICE WORKERS JUDGES PATHS`; PATHS is the JSON of
`WalledPaths`. References run in the judge's process. A candidate's sandbox does not fit this process, because the judge
starts such sandboxes itself. The judge gets Linux namespaces instead: mounts, with the home and the folders of the
server's files empty but for Python's needs, and everything but /tmp read-only; processes, with no /proc of the server.

    server -> launcher (mounts) -> first process of the namespace (bounds) -> judge_process (user without rights)

On a CPU the judge is no user of this machine: under root it takes a user id without files, and its capabilities count
only in a user namespace of its own. It can neither unmount the covers of the server's files nor change the kernel's
settings, and RLIMIT_NPROC holds (root's processes are not counted).

If the system refuses a namespace, the judge runs without it, and a line on stderr says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from kernelwright.agent.judging.verdict_maker import capacity_of
from kernelwright.agent.judging.walls.bounds import JudgeBounds, bounds_of_judge
from kernelwright.agent.judging.walls.first_process import (
    as_exit_code,
    be_first_process,
    be_subreaper,
)
from kernelwright.agent.judging.walls.mounts import make_mounts, needed_paths
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel

JUDGE_MODULE = "kernelwright.agent.judging.judge_process"
FIRST_USER, USERS = 61184, 4336
"""User ids without files: those from which systemd takes its dynamic users."""
OUT_OF_MEMORY_SCORE = 500
"""Addition to the kernel's out-of-memory score: a judge is ended before its server."""


class WalledPaths(NamedTuple):
    """Paths passed to a walled judge."""

    hidden: Sequence[str]
    """Paths of server files."""
    shared: Sequence[str]
    """Files in /tmp, locked by other processes of this machine as well."""


def main() -> None:
    """Starts the judge behind its walls, and ends with its exit code."""
    *judge_arguments, paths_json = sys.argv[1:]
    _, device, workers, _ = judge_arguments
    bounds = bounds_of_judge(capacity_of(device, int(workers)))
    # On an H200 (2026-11-29) right kernels failed with `runtime` in a judge with its own user and /tmp; cause unknown.
    user = user_without_files() if device == "cpu" else None
    paths = WalledPaths(*json.loads(paths_json))
    run_behind_walls(paths, bounds, partial(_run_judge, judge_arguments), user)


def run_behind_walls(
    paths: WalledPaths, bounds: JudgeBounds, run: Callable[[], NoReturn], user: int | None
) -> NoReturn:
    """Enters the namespaces, calls `run` in a process behind the walls, and ends with its exit
    code.

    user: id taken by the process; None keeps the user and /tmp.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OUT_OF_MEMORY_SCORE))
    try:
        _enter_namespaces()
    except OSError as error:
        _tell_of_missing_walls(error)
        be_subreaper(run, bounds)
    try:
        make_mounts(
            [Path(path) for path in paths.hidden], [Path(path) for path in paths.shared], user
        )
    except OSError as error:  # the next process is still the first of its pid namespace
        _tell_of_missing_walls(error)
    if (first := os.fork()) == 0:
        be_first_process(partial(_become_user_and_run, user, bounds, run), bounds)
    os._exit(as_exit_code(os.waitpid(first, 0)[1]))


def user_without_files() -> int:
    """Returns the judge's user id as seen by this process: an unused id under root, else 0."""
    return FIRST_USER + os.getpid() % USERS if os.geteuid() == 0 else 0


def _enter_namespaces() -> None:
    """Makes the namespaces of the judge. The next fork is the first process of a process namespace. Raises OSError."""
    if os.geteuid() != 0:
        kernel.enter_user_namespace()
    kernel.unshare(kernel.NEWNS | kernel.NEWPID)


def _tell_of_missing_walls(error: OSError) -> None:
    print(
        f"judges of this server are not walled off ({error.strerror or error}): references can read what the "
        "server's user can read",
        file=sys.stderr,
    )


def _become_user_and_run(
    user: int | None, bounds: JudgeBounds, run: Callable[[], NoReturn]
) -> NoReturn:
    """Gives up all rights outside of the namespaces, and becomes the judge's process."""
    try:
        if user is not None:
            if os.getuid() != user and not _reaches_python(user):
                raise OSError(13, "its files are closed to other users")
            _become_user(user, bounds)
    except OSError as error:
        print(
            f"judges of this server keep the rights of its user ({error.strerror or error})",
            file=sys.stderr,
        )
    os.environ["HOME"] = tempfile.mkdtemp(prefix="kernelwright-judge-home-")
    run()


def _become_user(user: int, bounds: JudgeBounds) -> None:
    """Takes the user id, and enters a user namespace as its root. Raises OSError.

    Inherited mounts are locked in the mount namespace of the new user namespace (mount_namespaces(7)).
    """
    if os.getuid() != user:
        _set_user(user)
        # Setting the user clears this flag, and without the flag /proc/self belongs to root.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = bounds.threads if hard == resource.RLIM_INFINITY else min(bounds.threads, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    kernel.enter_user_namespace()
    kernel.unshare(kernel.NEWNS)


def _set_user(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _reaches_python(user: int) -> bool:
    """Whether a user can read Python's files and enter user namespaces, tried in a short-lived process."""
    if (trial := os.fork()) == 0:
        try:
            _set_user(user)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            readable = all(os.access(path, os.R_OK) for path in needed_paths())
            kernel.enter_user_namespace()
            os._exit(0 if readable else 1)
        finally:
            os._exit(1)
    return os.waitpid(trial, 0)[1] == 0


def _run_judge(judge_arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by the judge's module."""
    os.execv(sys.executable, [sys.executable, "-m", JUDGE_MODULE, *judge_arguments])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
