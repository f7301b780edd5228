"""Progress on stderr: one activity, shown live in a terminal and as lines everywhere else."""

import io
import os
import pty
import subprocess
import sys
import threading

import pytest

from kernelwright.agent.viewing.show import rendering
from kernelwright.agent.viewing.show.progress import CurrentStep, progress
from kernelwright.agent.viewing.show.rendering import FIRST_LINE_SECONDS, HEARTBEAT_SECONDS, LineLog


@pytest.fixture
def log(capsys):
    """`log(step, at)`: says a step, polls at that second, and returns what was printed."""
    activity = CurrentStep()
    lines = LineLog(activity)

    def polled(step, at):
        activity.say(step)
        lines.print_due(lines._started + at)
        return capsys.readouterr().err

    return polled


def test_a_command_that_ends_within_seconds_prints_nothing(log):
    assert log("starting the tools", FIRST_LINE_SECONDS - 0.1) == ""


def test_a_step_is_printed_once_and_the_next_one_after_an_interval(log):
    assert log("starting the tools", 3.0) == "[3 s] starting the tools\n"
    assert log("starting the tools", 4.0) == ""
    assert log("tracing", 4.5) == "", "steps that last a moment pass unseen"
    assert log("compiling for sm_90", 6.5) == "[6 s] compiling for sm_90\n"


def test_a_silent_stretch_repeats_its_step_with_the_seconds_so_far(log):
    log("drafting (compiler)", 5.0)
    assert log("drafting (compiler)", 5.0 + HEARTBEAT_SECONDS - 1) == ""
    assert (
        log("drafting (compiler)", 5.0 + HEARTBEAT_SECONDS) == "[20 s] drafting (compiler), 15 s\n"
    )
    assert (
        log("drafting (compiler)", 5.0 + 2 * HEARTBEAT_SECONDS)
        == "[35 s] drafting (compiler), 30 s\n"
    )


def test_what_a_problem_calls_itself_cannot_break_the_line_or_the_terminal(log):
    assert log("judging \x1b[2Ja\nb", 5.0).count("\n") == 1


def test_a_stderr_that_is_closed_ends_nothing(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    activity = CurrentStep()
    activity.say("tracing")
    lines = LineLog(activity)
    lines.print_due(lines._started + 5.0)


def test_quiet_shows_nothing_and_starts_no_thread(capsys):
    before = threading.active_count()
    with progress(quiet=True) as say:
        say("tracing")
        assert threading.active_count() == before
    assert capsys.readouterr().err == ""


def test_tables_are_not_padded_in_a_pipe(capsys):
    from kernelwright.agent.reporting.words import facts_table
    from kernelwright.agent.viewing.show.progress import console

    console().print(
        facts_table([("kernel", "short"), ("kept", "a much longer value than the first one")])
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["kernel  short", "kept    a much longer value than the first one"]


WORK = """
import time
from kernelwright.agent.viewing.show import rendering
from kernelwright.agent.viewing.show.progress import progress
rendering.FIRST_LINE_SECONDS = 0.0
with progress() as say:
    say("tracing")
    time.sleep(1.5)
print("result")
"""


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_terminal_gets_the_live_view_and_a_dumb_one_lines(term):
    leader, follower = pty.openpty()
    surroundings = {**os.environ, "TERM": term}
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        env=surroundings,
        check=True,
    )
    os.close(follower)
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    assert done.stdout == "result\n"
    assert "tracing" in shown
    assert ("\x1b[" in shown) == (term == "xterm")
    assert ("[0 s] tracing" in shown) == (term == "dumb")


class Events(CurrentStep):
    """An activity that tells an event at the end of its block, after the last poll."""

    def __init__(self):
        super().__init__()
        self.events = []

    def take_events(self):
        taken, self.events = self.events, []
        return taken


def test_what_happens_after_the_last_poll_is_printed_too(monkeypatch, capsys):
    monkeypatch.setattr(rendering, "FIRST_LINE_SECONDS", 0.0)
    monkeypatch.setattr(rendering, "RENDER_SECONDS", 3600.0)
    activity = Events()
    with rendering.show(activity):
        activity.events.append("step 8/8: loss 0.25")
    assert capsys.readouterr().err == "[0 s] step 8/8: loss 0.25\n"
