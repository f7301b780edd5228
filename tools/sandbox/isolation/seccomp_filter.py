"""System-call filter for candidates: a seccomp program for the native architecture; other
architectures are refused.

A foreign entry into the kernel (`int 0x80` on x86-64 takes i386 numbers) kills the process,
because the numbers have other meanings there. x32 numbers (bit 30 set, x86-64) return ENOSYS.
Calls in the table fail with EPERM; all others pass.

Numbers: Linux UAPI headers (asm/unistd_64.h, asm-generic/unistd.h); the program is classic BPF
over `struct seccomp_data` (linux/seccomp.h, linux/filter.h).
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Iterable

from kernelwright.tools.sandbox.isolation.system_call_bindings import prctl

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64 (linux/audit.h), by machine."""

REFUSED_CALLS: dict[str, tuple[int | None, int | None]] = {
    # other processes: their memory, their descriptors, their state
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # large surfaces of the kernel that no kernel author needs
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "lookup_dcookie": (212, 18),
    # the machine itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
    # memory and messages that outlive the process, in System V's and POSIX's namespaces, and memory that nobody else
    # can read
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "memfd_secret": (447, 447),
}  # fmt: skip
"""System calls refused to every candidate: (number on x86-64, number on aarch64), None if the
call does not exist.
"""

MEMORY_FILES: dict[str, tuple[int | None, int | None]] = {"memfd_create": (319, 279)}
"""Files in memory count against no limit on the memory of a process. The CUDA driver may need them."""

SOCKETS: dict[str, tuple[int | None, int | None]] = {"socket": (41, 198), "socketpair": (53, 199)}
"""Socket calls: data waiting in a socket is kernel memory, and a descriptor waiting in a socket
is in no process's table.
"""

_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_X32 = 0x40000000

_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets into seccomp_data; of an argument the low half, on a little-endian machine."""
_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_EPERM = 0x00050001
_ENOSYS = 0x00050026


def refuse_system_calls(*, memory_files: bool, sockets: bool) -> None:
    """Installs the filter for this process and all its children, permanently; two groups of calls
    may stay open.

    Raises OSError, and KeyError on a machine with unknown call numbers.
    """
    program = build_program(platform.machine(), memory_files=memory_files, sockets=sockets)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(filter_, len(filter_))
    prctl(22, 2, ctypes.addressof(holder))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def build_program(machine: str, *, memory_files: bool, sockets: bool) -> bytes:
    """The BPF program for `machine` ("x86_64" or "aarch64"), eight bytes an instruction."""
    if machine not in ARCHITECTURES:
        raise KeyError(f"no numbers of system calls are known for {machine}")
    column = list(ARCHITECTURES).index(machine)
    table = REFUSED_CALLS | ({} if memory_files else MEMORY_FILES) | ({} if sockets else SOCKETS)
    numbers = [pair[column] for pair in table.values()]
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        *_unless(_EQUAL, ARCHITECTURES[machine], _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += _when(_AT_LEAST, _X32, _ENOSYS)
    for number in numbers:
        if number is not None:
            program += _when(_EQUAL, number, _EPERM)
    # The C library falls back from clone3, whose flags no filter can read, to clone, whose flags it can.
    program += _when(_EQUAL, _CLONE3[column], _ENOSYS)
    program += _first_argument(_CLONE[column], _when(_ANY_BIT, _NEW_NAMESPACES, _EPERM))
    program += _first_argument(_PRLIMIT[column], _unless(_EQUAL, 0, _EPERM))
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _when(code: int, value: int, answer: int) -> list[bytes]:
    return [_instruction(code, value, 0, 1), _instruction(_RETURN, answer)]


def _unless(code: int, value: int, answer: int) -> list[bytes]:
    return [_instruction(code, value, 1, 0), _instruction(_RETURN, answer)]


def _first_argument(number: int, tests: Iterable[bytes]) -> list[bytes]:
    """The tests are made on the first argument of the call `number`; the number is loaded again after them."""
    inner = [_instruction(_LOAD, _FIRST_ARGUMENT), *tests, _instruction(_LOAD, _NUMBER)]
    return [_instruction(_EQUAL, number, 0, len(inner)), *inner]
