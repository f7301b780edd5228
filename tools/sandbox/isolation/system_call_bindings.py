"""System calls which Python does not wrap, through ctypes. Each returns nothing and raises
OSError.

Numbers: Linux UAPI headers (asm/unistd_64.h, linux/landlock.h, linux/prctl.h, linux/seccomp.h).
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000
_LANDLOCK_CREATE = 444
_LANDLOCK_ADD = 445
_LANDLOCK_RESTRICT = 446
_PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_MS_PRIVATE, _MS_REC, _MS_BIND, _MS_REMOUNT, _MS_RDONLY, _MS_NOSUID, _MS_NODEV = (
    1 << 18,
    1 << 14,
    1 << 12,
    32,
    1,
    2,
    4,
)
_MOUNT_FLAGS = {
    os.ST_NOSUID: _MS_NOSUID,
    os.ST_NODEV: _MS_NODEV,
    os.ST_NOEXEC: 8,
    os.ST_NOATIME: 1 << 10,
    os.ST_NODIRATIME: 1 << 11,
    os.ST_RELATIME: 1 << 21,
}
"""Flags of mount(2) by those that statvfs(3) tells."""

_PR_SET_CHILD_SUBREAPER = 36
_CLONE = {"x86_64": 56, "aarch64": 220}
_MADV_HUGEPAGE = 14
_MADV_COLLAPSE = 25

_libc = ctypes.CDLL(None, use_errno=True)
_libc_with_lock = ctypes.PyDLL(None, use_errno=True)
"""C library whose calls keep the interpreter's lock, as `os.fork` does."""


def _check(result: int, action: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{action}: {os.strerror(code)}")
    return result


def _syscall(number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), f"syscall {number}")


def unshare(flags: int) -> None:
    """Enters new namespaces. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def fork_into(flags: int) -> int:
    """Forks a child into new namespaces (clone(2)); with NEWPID the child is the first process of
    its pid namespace.

    Only for a process with a single thread. Handlers of os.register_at_fork do not run: the child
    may only set up and fork.
    """
    number = _CLONE[platform.machine()]
    zeros = [ctypes.c_long(0)] * 4
    result = _libc_with_lock.syscall(
        ctypes.c_long(number), ctypes.c_long(flags | signal.SIGCHLD), *zeros
    )
    return _check(result, "clone")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mounts a file system. Raises OSError."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {target}",
    )


def make_mounts_private() -> None:
    """Keeps mounts of this namespace from being seen in the parent's."""
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def mount_proc() -> None:
    """Mounts a /proc with this pid namespace only."""
    mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV)


def mount_own_shm() -> None:
    """Mounts a private /dev/shm. The CUDA driver names its files there by process id, and every
    candidate has the same id in its own namespace.
    """
    mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "size=256m,mode=1777")


def mount_scratch(folder: str, size: int, files: int) -> None:
    """An empty file system in memory over `folder`, for this mount namespace only: at most `size`
    bytes and `files` files.
    """
    mount(
        "tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},nr_inodes={files},mode=0700"
    )


def mount_memory(folder: str, options: str) -> None:
    """Mounts an empty file system in memory over a folder. options: those of tmpfs(5), as `size=4k,mode=0755`."""
    mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def make_read_only(path: str) -> None:
    """Bind-mounts a path over itself, read-only for every process."""
    mount(path, path, None, _MS_BIND)
    mount(path, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)


def bind_mount(source: str, target: str) -> None:
    """Mounts a path, with the mounts below it, at another one. Raises OSError."""
    mount(source, target, None, _MS_BIND | _MS_REC)


def remount_read_only(mount_point: str) -> None:
    """Makes an existing mount read-only in this namespace. Its flags stay: a user namespace may not clear them."""
    flags = os.statvfs(mount_point).f_flag
    held = sum(ours for flag, ours in _MOUNT_FLAGS.items() if flags & flag)
    mount("none", mount_point, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | held)


def hide(path: Path) -> None:
    """Covers a folder by an empty one, or a file by /dev/null, in this mount namespace. A missing path stays."""
    if path.is_dir():
        mount("tmpfs", str(path), "tmpfs", _MS_NOSUID | _MS_NODEV, "size=4k,mode=0555")
    elif path.exists():
        bind_mount("/dev/null", str(path))


def pid_namespaces_have_ceilings() -> bool:
    """Whether /proc/sys/kernel/pid_max belongs to the pid namespace (Linux 6.14 and later), not to the machine."""
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) >= (6, 14)


def enter_user_namespace() -> None:
    """Enters a user namespace in which this user is root. Raises OSError."""
    uid = os.getuid()
    gid = os.getgid()
    unshare(NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def prctl(option: int, *arguments: int) -> None:
    """Calls prctl(2). Raises OSError on failure."""
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *padded), f"prctl {option}")


def die_with_parent(signal_number: int = 9) -> None:
    """Has the kernel send this process a signal when its parent thread ends."""
    prctl(_PR_SET_PDEATHSIG, signal_number)


def become_subreaper() -> None:
    """Orphans below this process become its children, not the first process's of the namespace."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def gather_memory() -> None:
    """Gathers this process's anonymous memory into huge pages (Linux 6.1 and later; else does
    nothing): a fork then copies a single page-table entry instead of 512.

    Takes about half a second for 200 MB, and makes every later fork, and every exit of a forked
    process, about three times cheaper.
    """
    huge = 1 << 21
    for line in Path("/proc/self/maps").read_text().splitlines():
        mapping = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ \S+\s*(\[heap\])?$", line)
        if mapping is None:
            continue
        begin = -(-int(mapping[1], 16) // huge) * huge
        end = int(mapping[2], 16) // huge * huge
        if end > begin:
            _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_HUGEPAGE)
            for address in range(begin, end, huge):
                _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(huge), _MADV_COLLAPSE)


def no_new_privileges() -> None:
    """Keeps this process and its children from gaining privileges by set-user-id files."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Empties the bounding, permitted, effective and inheritable sets (capset, linux/capability.h version 3)."""
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break
    header = struct.pack("<Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("<6I", 0, 0, 0, 0, 0, 0)), "capset")


# ------------------------------------------------------------------ landlock
_EXECUTE = 1
_WRITE_FILE = 2
_READ_FILE = 4
_READ_DIR = 8
_ALL_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)
READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
ALL_RIGHTS = (1 << 16) - 1
DEVICE_RIGHTS = READ_RIGHTS | _WRITE_FILE | (1 << 14) | (1 << 15)
"""Landlock's rights to read, write, truncate and ioctl existing files, without creating new
files.
"""


def landlock_version() -> int:
    """Returns the version of the kernel's Landlock ABI; 0 without Landlock."""
    try:
        return _syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def open_landlock(paths: Iterable[tuple[str, int]]) -> list[tuple[int, int]]:
    """Opens each path for `make_ruleset`: (descriptor, rights).

    Skips missing paths. Forks inherit the descriptors; the caller closes them.
    """
    opened = []
    for path, rights in paths:
        try:
            opened.append((os.open(path, os.O_PATH | os.O_CLOEXEC), rights))
        except OSError:
            continue
    return opened


def make_ruleset(opened: Iterable[tuple[int, int]]) -> int:
    """Returns the descriptor of a Landlock ruleset which allows only these paths and everything
    below them.

    With ABI 4 TCP is refused too, with ABI 6 signals and abstract sockets to processes outside.
    Raises OSError.
    """
    version = landlock_version()
    if not version:
        raise OSError(38, "not in this kernel")
    rights = _ALL_FILE_RIGHTS.get(version, ALL_RIGHTS)
    net = 3 if version >= 4 else 0
    scope = 3 if version >= 6 else 0
    attributes = struct.pack("<QQQ", rights, net, scope)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    ruleset = _syscall(
        _LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)
    )
    try:
        for descriptor, allowed in opened:
            allowed &= rights if stat.S_ISDIR(os.fstat(descriptor).st_mode) else rights & _FILE_ONLY
            rule = struct.pack("<Qi", allowed, descriptor)
            _syscall(
                _LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0)
            )
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enter_ruleset(ruleset: int) -> None:
    """Restricts this process and its children permanently to the ruleset.

    Closes the descriptor.
    """
    try:
        _syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
