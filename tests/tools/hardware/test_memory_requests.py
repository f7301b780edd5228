"""Memory that a process which is alone on a GPU asks the others for."""

import subprocess
import sys
import tempfile
import threading
import time

from kernelwright.tools.hardware import memory_requests
from kernelwright.tools.hardware.memory_requests import (
    answer_memory_request,
    requested_memory,
    requesting_memory,
    wait_for_memory,
)
from kernelwright.tools.judging.turns import MemoryGiver

ASK = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from kernelwright.tools.hardware.memory_requests import requesting_memory
with requesting_memory("GPU-of-another", 12345678901):
    print("asked", flush=True)
    time.sleep(60)
"""


def test_a_request_is_seen_while_it_stands_and_not_afterwards():
    assert requested_memory("gpu-seen") is None
    with requesting_memory("gpu-seen", 70 << 30) as answers:
        first = requested_memory("gpu-seen")
        assert first is not None
        assert first.needed == 70 << 30
        assert requested_memory("gpu-other") is None
        assert answers() == 0
        answer_memory_request("gpu-seen")
        answer_memory_request("gpu-seen")
        assert answers() == 2
        assert requested_memory("gpu-seen") == first
    assert requested_memory("gpu-seen") is None
    with requesting_memory("gpu-seen", 5) as answers:
        second = requested_memory("gpu-seen")
        assert second is not None
        assert second.needed == 5
        assert second.number != first.number
        assert answers() == 0


def test_the_request_of_a_process_that_was_killed_is_none():
    asking = subprocess.Popen(
        [sys.executable, "-c", ASK, tempfile.gettempdir()], stdout=subprocess.PIPE
    )
    try:
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"asked\n"
        wanted = requested_memory("GPU-of-another")
        assert wanted is not None
        assert wanted.needed == 12345678901
    finally:
        asking.kill()
        asking.communicate()
    assert requested_memory("GPU-of-another") is None


def test_a_judge_that_is_not_at_work_gives_once_what_is_asked_for_and_one_at_work_does_not(
    monkeypatch,
):
    monkeypatch.setattr(memory_requests, "MAX_WAIT_SECONDS", 0.3)
    given, at_work = list[int](), threading.Lock()
    giver = MemoryGiver("gpu-given", at_work, given.append)
    try:
        with at_work:
            assert not wait_for_memory("gpu-given", 100, 1)
            assert not given
        monkeypatch.setattr(memory_requests, "MAX_WAIT_SECONDS", 60.0)
        assert wait_for_memory("gpu-given", 200, 1)
        assert given == [200]
        monkeypatch.setattr(memory_requests, "MAX_WAIT_SECONDS", 0.5)
        assert not wait_for_memory("gpu-given", 300, 2)  # there is no second one that could give
        assert given == [200, 300]
    finally:
        giver.close()
    assert not wait_for_memory("gpu-given", 400, 1)
    assert given == [200, 300]


def test_who_answers_at_once_is_not_waited_for_any_longer():
    giver = MemoryGiver("gpu-quick", threading.Lock(), lambda _: None)
    try:
        begun = time.monotonic()
        assert wait_for_memory("gpu-quick", 1, 1)
        assert time.monotonic() - begun < memory_requests.MAX_WAIT_SECONDS
    finally:
        giver.close()
