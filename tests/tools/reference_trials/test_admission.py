"""Whoever judges, a reference that ends or blocks its process is told as the problem's error, and the judge goes on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import kernelwright
from kernelwright.agent.judging.local_pool import LocalPool
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials import trials
from kernelwright.tools.reference_trials.admission import require_survival
from kernelwright.tools.reference_trials.trials import ReferenceTrials, reference_trials
from kernelwright.tools.reference_trials.worker import TrialOutcome

RIGHT = (Path(__file__).parents[2] / "kernels" / "good" / "fused_silu.py").read_text()
FORM = """import os, sys
import torch
SIZE = 64


class Model(torch.nn.Module):
    def forward(self, x):
        {forward}
        return torch.relu(x)


def get_inputs():
    return [torch.randn(SIZE)]


def get_init_inputs():
    return []
"""
ENDINGS = {
    "sys.exit(0)": "fails in forward, line 8: it ends the program",
    "os._exit(0)": "fails in forward, line 8: it ends the program",
    "os.kill(os.getpid(), 9)": "the process was killed by SIGKILL",
    "raise ValueError('not today')": "fails in forward, line 8: ValueError: not today",
    "while True: pass": "fails in forward, line 8: it took more than 3 s",
}
LOOP = "while True: pass"


def reference(forward: str) -> Problem:
    return Problem(name="mine.py", source=FORM.format(forward=forward))


@pytest.fixture
def short_trials(monkeypatch):
    """Trials of this process that end a reference after three seconds."""
    with ReferenceTrials(seconds=3.0) as short:
        monkeypatch.setitem(trials._trials, os.getpid(), short)
        yield short


@pytest.fixture(scope="module")
def pool():
    judges = LocalPool(["cpu"], 1)
    yield judges
    judges.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_python_is_told_the_line_of_a_reference_that_would_end_or_block_it(ending, short_trials):
    with pytest.raises(ProblemError) as refused:
        kernelwright.check(RIGHT, reference(ending), device="cpu")
    assert ENDINGS[ending] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_reference_that_crashes_without_elements_costs_that_size_alone():
    crashing = reference("if not x.numel(): os.kill(os.getpid(), 11)").source
    problem = Problem(
        name="mine.py", source=crashing.replace("torch.relu(x)", "x * torch.sigmoid(x)")
    )
    report = kernelwright.check(RIGHT, problem, device="cpu")
    assert report.correct, report.failure
    with pytest.raises(ProblemError, match="SIGSEGV"):
        require_survival(problem.with_sizes({"SIZE": 0}))


def test_a_reference_that_was_tried_costs_no_process_a_second_time(short_trials):
    problem = reference("pass")
    short_trials.require_working(problem)
    short_trials.close()
    short_trials.require_working(problem)
    assert not short_trials._processes._idle


def test_an_error_is_not_taken_for_that_of_a_text_with_other_lines(short_trials):
    problem = reference("sys.exit(0)")
    moved = Problem(name="mine.py", source="# a comment\n" + problem.source)
    for text, line in ((problem, 8), (moved, 9)):
        with pytest.raises(ProblemError, match=f"line {line}"):
            short_trials.require_working(text)


@pytest.mark.slow
def test_a_judge_process_takes_over_what_the_process_that_asks_has_tried(pool):
    problem = reference("assert True")
    reference_trials().remember(
        problem, TrialOutcome(error="told by the one that asks"), train_mode=False
    )
    with pytest.raises(ProblemError, match="told by the one that asks"):
        pool.submit(problem, RIGHT, Options(sizes=1)).result(500)


@pytest.mark.slow
def test_a_pool_judges_on_after_references_that_end_their_process(pool):
    futures = [
        pool.submit(reference(text), RIGHT, Options(sizes=1)) for text in ENDINGS if text != LOOP
    ]
    for future in futures:
        with pytest.raises(ProblemError, match=r"the reference mine\.py fails"):
            future.result(500)
    assert (
        pool.submit(find_by_name("fused_silu"), RIGHT, Options(sizes=1, seed=1)).result(500).correct
    )


@pytest.mark.slow
def test_the_mcp_server_refuses_such_a_reference_and_goes_on(tmp_path, short_trials):
    pytest.importorskip("mcp")
    from mcp import Client

    from kernelwright.agent.mcp_server.budget import ClientBudgets
    from kernelwright.agent.mcp_server.history import History
    from kernelwright.agent.mcp_server.judging import ServerJudge
    from kernelwright.agent.mcp_server.requests import Access
    from kernelwright.agent.mcp_server.server import KernelServer

    judging = ServerJudge(
        "cpu", History(tmp_path / "verdicts.db"), ClientBudgets(5, 1000.0), Access(local=True)
    )

    async def ask() -> list[dict[str, object]]:
        async with Client(KernelServer(judging, "test")) as client:
            problems = [FORM.format(forward="sys.exit(0)"), FORM.format(forward=LOOP), "fused silu"]
            answers = [
                await client.call_tool("check", {"problem": p, "source": RIGHT}) for p in problems
            ]
        return [dict(answer.structured_content) for answer in answers]

    with judging:
        exits, loops, right = asyncio.run(ask())
    assert (exits["state"], loops["state"]) == ("refused", "refused")
    assert "line 8: it ends the program" in str(exits["error"])
    assert "line 8: it took more than 3 s" in str(loops["error"])
    assert right["outcome"] == "correct"


@pytest.mark.slow  # a minute: the time limit of a reference
@pytest.mark.nightly
def test_a_service_with_one_judge_answers_for_references_that_loop_or_exit_and_goes_on(tmp_path):
    pytest.importorskip("fastapi")
    import subprocess
    import time

    import httpx2

    source = str(Path(kernelwright.__file__).parents[1])
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "serve",
        "--device",
        "cpu",
        "--workers",
        "1",
    ]
    command += ["--port", "0", "--no-token"]
    server = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    try:
        assert server.stderr is not None
        url = next(line.split()[-1] for line in server.stderr if "http://" in line)
        with httpx2.Client(base_url=url, timeout=400) as http:
            problems = [
                {"name": "mine", "source": FORM.format(forward=text)}
                for text in ("sys.exit(0)", LOOP)
            ]
            bodies = [{"problem": p, "candidate": RIGHT, "options": {"sizes": 1}} for p in problems]
            bodies.append(
                {"problem": {"name": "fused_silu"}, "candidate": RIGHT, "options": {"sizes": 1}}
            )
            ids = [http.post("/v1/verdicts", json=body).json()["verdict_id"] for body in bodies]
            begun, statuses = time.monotonic(), []
            for verdict_id in ids:
                status = {"state": "queued"}
                while status["state"] in ("queued", "running") and time.monotonic() < begun + 400:
                    status = json.loads(
                        http.get(f"/v1/verdicts/{verdict_id}", params={"wait": 30}).content
                    )
                statuses.append(status)
        assert [status["state"] for status in statuses] == ["failed", "failed", "finished"]
        assert "line 8: it ends the program" in statuses[0]["error"]["message"]
        assert "line 8: it took more than 60 s" in statuses[1]["error"]["message"]
        assert statuses[2]["report"]["correct"]
    finally:
        server.terminate()
        server.wait(400)
