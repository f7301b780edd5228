"""The lanes of a batch: how many are let in, who waits, and which questions are asked together."""

import threading
import time

from kernelwright.agent.judging.lanes import Gate, PolicyLane
from kernelwright.policies.base import Message, PolicyRefused, Request, Role, Trouble
from kernelwright.policies.scripted import Script, ScriptedPolicy, ScriptPart, open_scripted


def test_a_gate_lets_in_as_many_as_it_has_places_and_counts_their_time():
    gate, most, inside, lock = Gate("tools", 2), 0, 0, threading.Lock()

    def work():
        nonlocal most, inside
        with gate.enter():
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.05)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traffic = gate.traffic
    assert (most, traffic.entered, traffic.inside, traffic.waiting) == (2, 6, 0, 0)
    assert traffic.busy_seconds >= 0.3
    assert 0 < traffic.utilisation <= 1


def test_a_closed_gate_lets_go_of_who_waits():
    gate, raised = Gate("tools", 1), []

    def wait():
        try:
            with gate.enter():
                raised.append("entered")
        except KeyboardInterrupt as error:
            raised.append(error)

    with gate.enter():
        thread = threading.Thread(target=wait)
        thread.start()
        while not gate.traffic.waiting:
            time.sleep(0.01)
        gate.close(KeyboardInterrupt())
        thread.join(500)
    assert len(raised) == 1
    assert isinstance(raised[0], KeyboardInterrupt)


def ask(text: str) -> Request:
    return Request(messages=(Message(role=Role.USER, content=text),), thread=text, turn=0)


class Counting:
    """A scripted policy that counts how many questions each call brings."""

    def __init__(self, script: Script) -> None:
        self._script, self.calls = ScriptedPolicy(script), []
        self.name, self.prompt_form, self.capabilities = (
            "scripted",
            self._script.prompt_form,
            self._script.capabilities,
        )

    def close(self):
        """Nothing is held."""

    def sample(self, requests):
        """The first call lasts until everybody else waits."""
        self.calls.append(len(requests))
        while len(self.calls) == 1 and self.others() > 0:
            time.sleep(0.005)
        return self._script.sample(requests)


def test_questions_that_wait_are_asked_together_and_one_refusal_takes_no_other_with_it():
    parts = [ScriptPart(when=f"question {k}", answers=(f"answer {k}",)) for k in range(7)]
    policy = Counting(Script(parts=tuple(parts)))
    lane = PolicyLane(policy, Gate("policy", 1), lambda error: None, together=True)
    policy.others = lambda: 8 - policy.calls[0] - len(lane._collector._waiting)
    said = {}

    def wonder(text):
        try:
            said[text] = lane.sample([ask(text)])[0].text
        except PolicyRefused as error:
            said[text] = error.trouble

    texts = [*(f"question {k}" for k in range(7)), "nobody's"]
    threads = [threading.Thread(target=wonder, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {
        **{f"question {k}": f"answer {k}" for k in range(7)},
        "nobody's": Trouble.SCRIPT,
    }
    assert max(policy.calls) > 1, "together"


def test_a_script_of_a_file_is_asked_by_each_run_itself(batch_script):
    lane = PolicyLane(
        open_scripted(batch_script), Gate("policy", 4), lambda error: None, together=False
    )
    [answer] = lane.sample([ask("return x + y")])
    assert "no code" in answer.text
