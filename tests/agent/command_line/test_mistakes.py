"""What users type by mistake ends with the documented status and one line that says what to do: bench.mistakes."""

import pytest

from bench.mistakes import Outcome, faults, run, write_files
from bench.mistakes_table import DEVELOPED, HELD_OUT, MISTAKES, Mistake
from tests.agent.command_in_process import agent_here

IN_THIS_PROCESS = [mistake for mistake in MISTAKES if mistake.words]
IN_A_PROCESS_OF_THEIR_OWN = [
    mistake for mistake in MISTAKES if not mistake.words and not mistake.slow
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("mistakes")
    write_files(place)
    return place


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("mistake", IN_THIS_PROCESS, ids=lambda mistake: mistake.command[:60])
def test_a_mistake_ends_with_its_status_and_one_line(mistake, folder):
    done = agent_here(*mistake.words, folder=folder)
    assert faults(mistake, Outcome(done.returncode, done.stdout, done.stderr)) == [], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", IN_A_PROCESS_OF_THEIR_OWN, ids=lambda mistake: mistake.command[:60]
)
def test_odd_surroundings_end_with_their_status_and_one_line(mistake, folder):
    outcome = run(mistake, folder)
    assert faults(mistake, outcome) == [], outcome.err


def test_there_are_at_least_sixty_and_each_is_in_one_half():
    assert len(set(MISTAKES)) == len(MISTAKES) >= 60
    assert set(DEVELOPED) | set(HELD_OUT) <= set(MISTAKES)
    assert not set(DEVELOPED) & set(HELD_OUT)


def test_a_mistake_that_is_not_told_is_found():
    """The test can fail: a wrong status, a traceback, two lines, and a line that says nothing."""
    mistake = Mistake("agent solve nothing.py", 2, "nothing.py")
    assert faults(mistake, Outcome(2, "", "agent: nothing.py is not there\n")) == []
    assert faults(mistake, Outcome(1, "", "agent: nothing.py is not there\n"))
    assert faults(
        mistake, Outcome(2, "", "Traceback (most recent call last):\nagent: nothing.py\n")
    )
    assert faults(mistake, Outcome(2, "", "agent: nothing.py\nagent: nothing.py\n"))
    assert faults(mistake, Outcome(2, "", "agent: wrong\n"))
