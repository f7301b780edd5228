"""Runs a command behind walls of its own: how ncu and compute-sanitizer start a candidate.

    python -m kernelwright.tools.sandbox.inside.enter SCRATCH COMMAND [ARGUMENT ...]

Network, mounts and message queues of its own, files closed but for Python, CUDA and SCRATCH.
Capabilities stay: counters need them.
"""

from __future__ import annotations

import os
import sys

from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.isolation.layers import Layers, enter_namespaces
from kernelwright.tools.sandbox.isolation.readable_files import close_files
from kernelwright.tools.sandbox.limits import ProcessKind


def main() -> None:
    """Enters the isolation layers and executes the command in the arguments."""
    scratch, command = sys.argv[1], sys.argv[2:]
    layers = Layers()
    if os.geteuid() == 0:
        enter_namespaces(layers, own_user=False)
    layers.enter("no new privileges", kernel.no_new_privileges)
    layers.enter("landlock", lambda: close_files(scratch, ProcessKind.CUDA))
    os.environ.update({"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/triton"})
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
