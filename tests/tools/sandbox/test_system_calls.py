"""The system-call filter, tried with real entries into the kernel."""

import platform

import pytest

from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.sandbox.isolation.seccomp_filter import (
    MEMORY_FILES,
    REFUSED_CALLS,
    SOCKETS,
    build_program,
)

TABLE = REFUSED_CALLS | MEMORY_FILES | SOCKETS
PROBE = "kernelwright.tools.sandbox.inside.probe:serve"
X86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="these entries exist on x86-64 only"
)

EVERY_NUMBER = """
import json, subprocess, sys

# The filter stays over execve; a Python without torch forks a hundred times as fast as the process that is asked.
done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True)
result = json.loads(done.stdout) if done.returncode == 0 else done.stderr[-1000:]
"""
EACH_IN_A_CHILD = """
import ctypes, mmap, os

def int80(number):
    code = bytes.fromhex("53b8") + number.to_bytes(4, "little") + bytes.fromhex("31db31c931d2cd805bc3")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()

def ended(number):
    child = os.fork()
    if child == 0:
        os._exit(1 if int80(number) < 0 else 0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 1

print([number for number in range(470) if not ended(number)])
"""

EVERY_X32_NUMBER = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
numbers = [*range(600), 0x3fffffff]
def answers(n):
    return libc.syscall(ctypes.c_long(0x40000000 | n), 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 38
result = [n for n in numbers if answers(n)]
"""


@pytest.fixture(scope="module")
def zygote():
    with Zygote(ProcessKind.COMPILE, spare=False, private_scratch=True) as warm:
        yield warm


def ask(zygote, code, seconds=60.0):
    with zygote.start(PROBE, {"code": code}) as process:
        answer = process.receive(seconds)
    assert "result" in answer, answer
    return answer["result"]


@X86
def test_no_i386_number_is_answered_but_with_an_error_or_the_end(zygote):
    assert ask(zygote, f"script = {EACH_IN_A_CHILD!r}" + EVERY_NUMBER) == []


@X86
def test_no_x32_number_is_answered_but_with_an_error(zygote):
    assert ask(zygote, EVERY_X32_NUMBER) == []


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_call_of_the_table_is_refused(zygote, name):
    number = TABLE[name][platform.machine() == "aarch64"]
    if number is None:
        pytest.skip("not on this machine")
    code = (
        f"import ctypes; l = ctypes.CDLL(None, use_errno=True); r = l.syscall(ctypes.c_long({number}), 0, 0, "
        "0, 0, 0, 0); result = [r, "
        "ctypes.get_errno()]"
    )
    assert ask(zygote, code) == [-1, 1]


@X86
def test_namespaces_are_closed_through_clone_and_clone3_and_threads_are_not(zygote):
    code = """
import ctypes, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
flags = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
result = []
for flag in flags:
    result.append([libc.syscall(ctypes.c_long(56), ctypes.c_long(flag | 17), 0, 0, 0, 0), ctypes.get_errno()])
result.append([libc.syscall(ctypes.c_long(435), 0, 0), ctypes.get_errno()])
heard = []
thread = threading.Thread(target=heard.append, args=(1,))
thread.start()
thread.join()
result.append([len(heard), subprocess.run(["/bin/true"]).returncode])
"""
    assert ask(zygote, code) == [[-1, 1]] * 7 + [[-1, 38], [1, 0]]


def test_limits_of_other_processes_cannot_be_changed_and_its_own_can_be_read(zygote):
    code = """
import os, resource
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)
except OSError as error:
    result = [type(error).__name__, resource.getrlimit(resource.RLIMIT_CORE)[0]]
"""
    assert ask(zygote, code) == ["PermissionError", 0]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("open_", [True, False])
def test_the_program_is_within_what_the_kernel_takes(machine, open_):
    program = build_program(machine, memory_files=open_, sockets=open_)
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4096
