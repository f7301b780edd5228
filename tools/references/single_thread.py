"""torch's operators in the calling thread alone, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_threaded() -> Iterator[None]:
    """torch starts no threads for what this thread asks of it until the block ends.

    OpenMP keeps that number for each thread, so that others are not touched.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
