"""Clients take turns, and a judge process is changed no more often than it must."""

import time

import pytest

import kernelwright
from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.serving.queueing import waiting_line
from kernelwright.agent.serving.queueing.waiting_line import WaitingEntry, WaitingLine

from .conftest import ALICE, BOB, RunningServer

CPU = DeviceKind.CPU


def line_of(*waiting: tuple[str, str]) -> WaitingLine:
    """A line with verdicts named by their number, of clients and domains in the order of their arrival."""
    line = WaitingLine()
    for number, (client, domain) in enumerate(waiting, 1):
        line.add(WaitingEntry(f"{client}{number}", CPU, number, client, domain))
    return line


def taken(line: WaitingLine, fits=lambda domain: True) -> list[str]:
    order = []
    while (entry := line.first(CPU, fits)) is not None:
        order.append(entry.verdict_id)
    return order


def test_a_client_that_submits_thousands_delays_another_by_one_verdict():
    line = line_of(*[("greedy", "")] * 3000, ("single", ""))
    assert line.position("single3001") == 2
    assert taken(line)[:3] == ["greedy1", "single3001", "greedy2"]
    assert len(line) == 0


def test_positions_are_the_order_in_which_verdicts_are_taken():
    line = line_of(*[("a", ""), ("a", ""), ("b", ""), ("c", ""), ("b", ""), ("a", "")])
    names = list(line._entries)
    positions = {name: line.position(name) for name in names}
    assert sorted(names, key=positions.__getitem__) == taken(line)


def test_a_verdict_that_no_idle_judge_fits_is_passed_over_for_a_while(monkeypatch):
    line = line_of(("a", "a"), ("a", ""), ("b", ""), ("b", "b"))
    assert line.first(CPU, lambda domain: domain == "").verdict_id == "a2"
    assert line.first(CPU, lambda domain: domain == "").verdict_id == "b3"
    monkeypatch.setattr(waiting_line, "MAX_PASSED_OVER_SECONDS", 0.0)
    time.sleep(0.01)
    assert line.first(CPU, lambda domain: domain == "b").verdict_id == "a1", (
        "it has waited for long enough"
    )
    assert line.first(CPU, lambda domain: False).verdict_id == "b4", "nothing else waits"


def test_a_verdict_is_removed_once():
    line = line_of(("a", ""), ("b", ""))
    line.remove("a1")
    line.remove("a1")
    assert "a1" not in line
    assert taken(line) == ["b2"]


@pytest.mark.slow
def test_a_single_submission_is_judged_before_those_of_a_greedy_client(tmp_path, text_only, hangs):
    (tmp_path / "tokens.txt").write_text(f"greedy {ALICE}\nsingle {BOB}\n")
    server = RunningServer(tmp_path, "--token-file", "tokens.txt")
    with (
        kernelwright.JudgeClient(server.url, ALICE) as greedy,
        kernelwright.JudgeClient(server.url, BOB) as single,
    ):
        first = greedy.submit("fused_silu", hangs("first"), sizes=1, compile_seconds=300.0)
        many = [greedy.submit("fused_silu", text_only(f"greedy {k}")) for k in range(40)]
        one = single.submit("fused_silu", text_only("single"))
        assert one.position <= 2
        greedy.cancel(first.verdict_id)
        single.result(one)
        one = single.status(one.verdict_id)
        before = [
            it
            for it in many
            if (greedy.result(it) and greedy.status(it.verdict_id).ended < one.ended)
        ]
    assert len(before) <= 2
    assert server.stop() == 130
