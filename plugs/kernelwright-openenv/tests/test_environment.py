"""A served environment, driven through OpenEnv's own WebSocket client and held to its own validator."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from kernelwright_openenv import KernelAction, KernelEnv

PACKAGE = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
STARTS_SECONDS = 300.0
"""On a machine that is busy with more."""


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTS_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(httpx.HTTPError):
            httpx.get(url).raise_for_status()
            return
        time.sleep(0.1)
    raise AssertionError(f"no server at {url}: exit status {server.poll()}")


@contextmanager
def served(judge: str) -> Iterator[str]:
    """The URL of the environment's server, in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [BIN / "uvicorn", "server.app:app", "--port", str(port), "--log-level", "warning"]
    variables = {**os.environ, "KERNELWRIGHT_JUDGE_URL": judge}
    server = subprocess.Popen(words, cwd=PACKAGE, env=variables)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="module")
def environment(judge_url) -> Iterator[str]:
    with served(judge_url) as url:
        yield url


def test_a_kernel_is_repaired_in_one_episode(environment, problem, right, wrong, uncompiled):
    with KernelEnv(base_url=environment).sync() as env:
        first = env.reset(problem=problem).observation
        assert "class Model" in first.text
        results = [
            env.step(KernelAction(code=text))
            for text in (uncompiled, wrong, f"```python\n{right}```")
        ]
        state = env.state()
    assert [result.observation.ended_at for result in results] == [
        "compile",
        "interpreted",
        "interpreted",
    ]
    assert [result.reward for result in results] == pytest.approx([0.0, 0.035, 1.05], abs=0.016)
    assert [result.done for result in results] == [False, False, True]
    assert results[2].observation.parts["correct"] == 1.0
    assert results[0].observation.attempts_left == 7
    assert state.step_count == 3


def test_sessions_side_by_side_keep_apart(environment, right):
    def run(name: str) -> tuple[str, float | None]:
        with KernelEnv(base_url=environment).sync() as env:
            env.reset(problem=name)
            result = env.step(KernelAction(code=right))
            return result.observation.problem, result.reward

    with ThreadPoolExecutor(2) as threads:
        told = list(threads.map(run, ["fused_silu", "fused_gelu"]))
    assert told[0] == ("fused_silu", pytest.approx(1.05))
    assert told[1][0] == "fused_gelu"
    assert told[1][1] == pytest.approx(0.035, abs=0.016)


def test_one_seed_draws_one_problem(environment):
    with KernelEnv(base_url=environment).sync() as env:
        drawn = [env.reset(seed=seed).observation.problem for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_a_judge_that_is_away_gives_no_reward_and_costs_no_attempt(
    judge_url, nobody, problem, right
):
    from kernelwright_client import JudgeClient
    from kernelwright_openenv.environment import KernelEnvironment

    environment = KernelEnvironment(JudgeClient(judge_url))
    environment.reset(problem=problem)
    environment._judge = JudgeClient(nobody, patience=0.0)
    observation = environment.step(KernelAction(code=right))
    assert observation.reward is None
    assert observation.failure_kind == "unreachable"
    assert observation.metadata["masked"]
    assert (observation.attempts_left, observation.done) == (8, False)


def test_openenv_validates_the_package_and_the_running_server(environment, tmp_path):
    package = tmp_path / "package.json"
    subprocess.run(
        [BIN / "openenv", "validate", PACKAGE, "--skip-build", "--output", package],
        check=False,
        timeout=400,
    )
    told = json.loads(package.read_text())
    assert "FAIL" not in json.dumps(told)
    running = tmp_path / "running.json"
    done = subprocess.run(
        [BIN / "openenv", "validate", "--url", environment, "--output", running, "--timeout", "60"],
        timeout=400,
    )
    assert done.returncode == 0
    assert json.loads(running.read_text())


def test_two_steps_of_groups_of_several_turns_with_a_failed_and_a_masked_candidate(
    environment, judge_url, problem, right, wrong, uncompiled, crashing, settled
):
    """Sessions of OpenEnv's own client, as a trainer opens them: OpenEnv has no trainer of its own."""
    rollouts = ((wrong, right), (uncompiled, wrong))
    for step in (1, 2):
        rewards = []
        for texts in rollouts:
            with KernelEnv(base_url=environment).sync() as env:
                env.reset(problem=problem, group=f"openenv/step-{step}")
                results = [env.step(KernelAction(code=text)) for text in texts]
            rewards.append(results[-1].reward)
            assert results[-1].observation.metadata["masked"] is False
        assert rewards == pytest.approx([1.05, 0.035], abs=0.016)
    for row in settled("openenv/step-", 2, 4):
        assert (row["problem"], row["correct"], row["masked"]) == (problem, 1, 0)


def test_a_crash_that_the_judge_was_asked_about_once_is_masked_and_the_turns_go_on(
    judge_url, problem, right, crashing
):
    from kernelwright_client import JudgeClient
    from kernelwright_openenv.environment import KernelEnvironment

    local = KernelEnvironment(JudgeClient(judge_url, insist=0), attempts=3, until="turns")
    local.reset(problem=problem)
    observations = [local.step(KernelAction(code=text)) for text in (right, crashing, right)]
    assert [one.reward for one in observations] == [pytest.approx(1.05), None, pytest.approx(1.05)]
    assert [one.metadata["masked"] for one in observations] == [False, True, False]
    assert [one.done for one in observations] == [False, False, True]
