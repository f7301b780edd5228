"""A test that wants a GPU alone waits for the others, and those that come later wait for it."""

from __future__ import annotations

import multiprocessing
import time

from tests.gpu_lock import gpu_lock

SECONDS = 0.3


def hold(folder, alone, spans):
    with gpu_lock(folder, alone=alone):
        began = time.monotonic()
        time.sleep(SECONDS)
        spans.put((alone, began, time.monotonic()))


def test_tests_that_share_run_together_and_nothing_runs_beside_one_that_is_alone(tmp_path):
    context = multiprocessing.get_context("fork")
    spans = context.Queue()
    processes = []
    for alone in (False, False, True, False, False):
        processes.append(context.Process(target=hold, args=(tmp_path, alone, spans)))
        processes[-1].start()
        time.sleep(SECONDS / 6)
    held = sorted((spans.get(timeout=20) for _ in processes), key=lambda span: span[1])
    for process in processes:
        process.join()
    assert [alone for alone, *_ in held] == [False, False, True, False, False]
    (_, began, ended), before, after = held[2], held[:2], held[3:]
    assert max(end for *_, end in before) <= began
    assert ended <= min(begin for _, begin, _ in after)
    assert before[1][1] < before[0][2], "those that share overlap"
