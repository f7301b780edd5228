"""The event loop of the API policy ends with its process, whoever forgot to close it."""

import subprocess
import sys

NEVER_CLOSED = """
import asyncio
from kernelwright.policies.http.event_loop import EventLoop
loop = EventLoop()
loop.wait_for(asyncio.sleep(0))
loop.itself = loop  # a cycle is collected at the very end of the interpreter
{more}
print("done")
"""
FORKED = """
import os
if (child := os.fork()) == 0:
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def ended(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_a_process_whose_loop_nobody_closed_ends():
    assert ended(NEVER_CLOSED.format(more="")) == "done\n"


def test_a_forked_child_of_one_ends_too():
    assert ended(NEVER_CLOSED.format(more=FORKED)) == "done\n"
