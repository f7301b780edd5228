"""The few system calls that Python does not wrap, through ctypes. Each returns nothing and raises OSError.

Numbers: Linux UAPI headers (asm/unistd_64.h, linux/landlock.h, linux/prctl.h, linux/seccomp.h).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 4, 24, 38, 22
_MS_PRIVATE, _MS_REC, _MS_BIND, _MS_REMOUNT, _MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1 << 18, 1 << 14, 1 << 12, 32, 1, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _syscall(number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), f"syscall {number}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def make_mounts_private() -> None:
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def mount_proc() -> None:
    """A /proc that shows this pid namespace only."""
    mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV)


def mount_own_shm() -> None:
    """A /dev/shm that nobody else sees. The CUDA driver names its files there by process id, and every candidate's is the same in its own namespace."""
    mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "size=256m,mode=1777")


def make_read_only(path: str) -> None:
    """A bind mount over itself that cannot be written, whoever asks."""
    mount(path, path, None, _MS_BIND)
    mount(path, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)


def prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(option, *padded), f"prctl {option}")


def die_with_parent(signal_number: int = 9) -> None:
    prctl(_PR_SET_PDEATHSIG, signal_number)


def no_new_privileges() -> None:
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
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)
READ = _EXECUTE | _READ_FILE | _READ_DIR
DEVICE = READ | _WRITE_FILE | (1 << 14) | (1 << 15)
"""Reading, writing, truncating and ioctl of what is there; nothing new."""


def landlock_version() -> int:
    """The kernel's Landlock ABI; 0 where there is none."""
    try:
        return _syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def landlock(read: list[str], devices: list[str], write: list[str]) -> None:
    """Everything but these paths (and what lies under them) is closed to this process and its children, for good.

    With ABI 4 TCP is closed too, with ABI 6 signals and abstract sockets to processes outside.
    """
    version = landlock_version()
    rights = _ALL_FILE_RIGHTS.get(version, (1 << 16) - 1)
    net, scope = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    attributes = struct.pack("<QQQ", rights, net, scope)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for paths, allowed in ((read, READ), (devices, DEVICE), (write, rights)):
            for path in paths:
                _allow(ruleset, path, allowed & rights)
        _syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_ONLY
        _syscall(
            _LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), struct.pack("<Qi", rights, fd), ctypes.c_uint32(0)
        )
    finally:
        os.close(fd)


# ------------------------------------------------------------------ seccomp
_REFUSED = {
    "x86_64": (
        0xC000003E,
        [
            101,
            310,
            311,
            165,
            166,
            155,
            161,
            272,
            308,
            250,
            248,
            321,
            323,
            298,
            425,
            426,
            427,
            246,
            169,
            175,
            313,
            176,
            304,
            429,
            442,
        ],
    ),
    "aarch64": (
        0xC00000B7,
        [
            117,
            270,
            271,
            40,
            39,
            41,
            51,
            97,
            268,
            219,
            217,
            280,
            282,
            241,
            425,
            426,
            427,
            104,
            142,
            105,
            273,
            106,
            265,
            429,
            442,
        ],
    ),
}
"""ptrace, process_vm_readv/writev, mount, umount2, pivot_root, chroot, unshare, setns, keyctl, add_key, bpf, userfaultfd, perf_event_open,
io_uring_*, kexec_load, reboot, init_module, finit_module, delete_module, open_by_handle_at, move_mount, mount_setattr."""


def refuse_system_calls() -> None:
    """A seccomp filter: the calls above fail with EPERM; everything else goes through."""
    machine, numbers = _REFUSED[platform.machine()]

    def op(code: int, yes: int, no: int, value: int) -> bytes:
        return struct.pack("<HBBI", code, yes, no, value)

    program = [op(0x20, 0, 0, 4), op(0x15, 1, 0, machine), op(0x06, 0, 0, 0x7FFF0000), op(0x20, 0, 0, 0)]
    for index, number in enumerate(numbers):
        program.append(op(0x15, len(numbers) - index, 0, number))
    program += [op(0x06, 0, 0, 0x7FFF0000), op(0x06, 0, 0, 0x00050000 | 1)]
    code = b"".join(program)
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(filter_, len(filter_))
    prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(holder))
