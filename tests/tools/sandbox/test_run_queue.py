"""A busy machine's other work is not counted against a candidate."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernelwright.tools.sandbox import ProcessKind, ProcessTimedOut, Zygote
from kernelwright.tools.sandbox.run_queue import RemainingSeconds

PROBE = "kernelwright.tools.sandbox.inside.probe:serve"
WORKS = "import time\nwhile time.process_time() - begun < {seconds}: pass\nresult = 1"
SPINS = "import time\nbegun = time.monotonic()\nwhile time.monotonic() - begun < 60: pass"


@contextmanager
def on_one_processor() -> Iterator[None]:
    """What is begun inside may run on one processor only: to keep it busy leaves the others to other tests."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.fixture(scope="module")
def zygote():
    with on_one_processor():
        warm = Zygote(ProcessKind.INTERPRET)
    with warm:
        yield warm


@pytest.fixture
def busy_machine():
    """Two processes on the candidate's processor, which do nothing but run. Each has a session of its own: Linux
    shares processors out among sessions first, and the candidate has one, too.
    """
    with on_one_processor():
        others = [
            subprocess.Popen([sys.executable, "-c", SPINS], start_new_session=True)
            for _ in range(2)
        ]
    time.sleep(0.5)
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.slow
def test_time_in_which_no_processor_was_there_does_not_count(zygote, busy_machine):
    with zygote.start(PROBE, {"code": "while True: pass"}) as process:
        process.wait_ready()
        begun, allowed = time.monotonic(), RemainingSeconds(process, 10.0)
        with pytest.raises(ProcessTimedOut):
            allowed.receive(1.5)
        taken = time.monotonic() - begun
    assert taken > 1.8
    assert 10.0 - allowed.remaining < taken - 0.3


def test_an_answer_is_waited_for_longer_where_others_ran_meanwhile(zygote, busy_machine):
    code = "import time\nbegun = time.process_time()\n" + WORKS.format(seconds=0.6)
    with zygote.start(PROBE, {"code": code}) as process:
        process.wait_ready()
        begun = time.monotonic()
        assert process.receive(1.2)["result"] == 1
        assert time.monotonic() - begun > 1.2


def test_who_only_sleeps_is_not_waited_for(zygote):
    with zygote.start(PROBE, {"code": "import time; time.sleep(60)"}) as process:
        process.wait_ready()
        begun, allowed = time.monotonic(), RemainingSeconds(process, 0.5)
        with pytest.raises(ProcessTimedOut):
            allowed.receive()
        assert time.monotonic() - begun < 2.5
