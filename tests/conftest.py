"""What every test may rely on."""

import signal
import threading

import pytest


def pytest_configure() -> None:
    """Started in the background by a shell without job control, a process ignores Ctrl-C, and so do its children:
    here tests send it to them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def gpu_present() -> bool:
    """Whether CUDA finds a GPU and this torch can use it."""
    from kernelwright.tools.hardware.gpus import read_driver
    from kernelwright.tools.hardware.machine_info import version

    return bool(read_driver().gpus) and not (version("torch") or "").endswith("+cpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test marked `gpu` is skipped, and says so, where there is none (before any fixture of it is made)."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_present():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
