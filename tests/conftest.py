"""What every test may rely on."""

import pytest


@pytest.fixture(scope="session")
def gpu_present() -> bool:
    """Whether CUDA finds a GPU and this torch can use it."""
    from tools.gpus import read_driver
    from tools.machine_info import version

    return bool(read_driver().gpus) and not (version("torch") or "").endswith("+cpu")


@pytest.fixture(autouse=True)
def _needs_gpu(request):
    """A test marked `gpu` is skipped, and says so, where there is none."""
    if request.node.get_closest_marker("gpu") and not request.getfixturevalue("gpu_present"):
        pytest.skip("no GPU here")
