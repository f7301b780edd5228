"""Launchers built ahead. Tritons up to 3.7 or so compile a piece of C for each kernel's signature, a fifth of a second of gcc: done beside the offline
compile it costs nothing, and the GPU does not wait for it, since it is found in the cache that the candidate's process is given.

Nothing here is needed for a verdict: where it does not work, Triton builds the launcher itself when it is needed.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from tools.untrusted import symbols

log = logging.getLogger(__name__)
DRIVER = "triton.backends.nvidia.driver"
SECONDS = 10.0
"""That `wait` gives them all."""

_threads: list[threading.Thread] = []
_ready = False


def look_for_the_library() -> None:
    """Whether this Triton compiles launchers, and has here what it links them with. In the zygote, once: it asks ldconfig."""
    global _ready
    begin = symbols.find(DRIVER, "CudaLauncher.__init__")
    libraries = symbols.find(DRIVER, "library_dirs")
    if begin is None or libraries is None or "compile_module_from_src" not in begin.__code__.co_names:
        return
    try:
        libraries()
    except (AssertionError, OSError, ValueError):
        return  # no driver on this machine: nothing can be launched on it either
    _ready = True


def build_ahead(source: Any, metadata: Any) -> None:
    """Starts building the launcher of one compiled kernel, and returns."""
    if not _ready:
        return
    thread = threading.Thread(target=_build, args=(source, metadata), daemon=True)
    _threads.append(thread)
    thread.start()


def wait() -> None:
    """Until all that was started is built."""
    for thread in _threads:
        thread.join(SECONDS)
    _threads.clear()


def _build(source: Any, metadata: Any) -> None:
    launcher: Any = symbols.find(DRIVER, "CudaLauncher")
    try:
        launcher(source, metadata)
    except Exception as error:
        log.debug("launcher not built ahead: %s", error)
