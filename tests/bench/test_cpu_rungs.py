"""What the benchmark of the CPU rungs counts, and what it leaves behind."""

from __future__ import annotations

import subprocess
import sys

from bench.cpu_rungs import ACCOUNT, counting_processor_time, processor_time


def test_the_control_group_that_counts_is_gone_afterwards_with_the_time_of_processes_in_it():
    with counting_processor_time():
        before = processor_time()
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
        after = processor_time()
    assert not ACCOUNT.exists()
    assert before is None or (after is not None and after > before)
