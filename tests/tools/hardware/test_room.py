"""Memory that a process which is alone on a GPU asks the others for."""

import subprocess
import sys
import tempfile
import threading
import time

from kernelwright.tools.hardware import room
from kernelwright.tools.hardware.room import answer_for_room, asking_for_room, room_wanted, wait_for_room
from kernelwright.tools.judging.turns import RoomGiver

ASK = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from kernelwright.tools.hardware.room import asking_for_room
with asking_for_room("GPU-of-another", 12345678901):
    print("asked", flush=True)
    time.sleep(60)
"""


def test_a_request_is_seen_while_it_stands_and_not_afterwards():
    assert room_wanted("gpu-seen") is None
    with asking_for_room("gpu-seen", 70 << 30) as answers:
        first = room_wanted("gpu-seen")
        assert first is not None
        assert first.needed == 70 << 30
        assert room_wanted("gpu-other") is None
        assert answers() == 0
        answer_for_room("gpu-seen")
        answer_for_room("gpu-seen")
        assert answers() == 2
        assert room_wanted("gpu-seen") == first
    assert room_wanted("gpu-seen") is None
    with asking_for_room("gpu-seen", 5) as answers:
        second = room_wanted("gpu-seen")
        assert second is not None
        assert second.needed == 5
        assert second.number != first.number
        assert answers() == 0


def test_the_request_of_a_process_that_was_killed_is_none():
    asking = subprocess.Popen([sys.executable, "-c", ASK, tempfile.gettempdir()], stdout=subprocess.PIPE)
    try:
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"asked\n"
        wanted = room_wanted("GPU-of-another")
        assert wanted is not None
        assert wanted.needed == 12345678901
    finally:
        asking.kill()
        asking.communicate()
    assert room_wanted("GPU-of-another") is None


def test_a_judge_that_is_not_at_work_gives_once_what_is_asked_for_and_one_at_work_does_not(monkeypatch):
    monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.3)
    given, at_work = list[int](), threading.Lock()
    giver = RoomGiver("gpu-given", at_work, given.append)
    try:
        with at_work:
            assert not wait_for_room("gpu-given", 100, 1)
            assert not given
        monkeypatch.setattr(room, "PATIENCE_SECONDS", 60.0)
        assert wait_for_room("gpu-given", 200, 1)
        assert given == [200]
        monkeypatch.setattr(room, "PATIENCE_SECONDS", 0.5)
        assert not wait_for_room("gpu-given", 300, 2)  # there is no second one that could give
        assert given == [200, 300]
    finally:
        giver.close()
    assert not wait_for_room("gpu-given", 400, 1)
    assert given == [200, 300]


def test_who_answers_at_once_is_not_waited_for_any_longer():
    giver = RoomGiver("gpu-quick", threading.Lock(), lambda _: None)
    try:
        begun = time.monotonic()
        assert wait_for_room("gpu-quick", 1, 1)
        assert time.monotonic() - begun < room.PATIENCE_SECONDS
    finally:
        giver.close()
