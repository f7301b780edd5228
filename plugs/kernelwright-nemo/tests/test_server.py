"""The resources server as NeMo-Gym sets it up, served on loopback, and its own aggregation of what was masked."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.failure_kinds import is_namespaced, is_registered
from nemo_gym.server_utils import ServerClient
from omegaconf import OmegaConf

import kernelwright_nemo
from kernelwright_client import JudgeClient
from kernelwright_nemo.server import KernelResourcesServerConfig

CONFIG = Path(__file__).parents[1] / "configs" / "kernelwright.yaml"


@contextmanager
def served(judge_url: str, patience: float = 900.0) -> Iterator[httpx.Client]:
    """A client of the server, which runs with all that NeMo-Gym puts round it."""
    config = KernelResourcesServerConfig(
        host="127.0.0.1", port=0, entrypoint="app.py", name="kernelwright", domain="coding", judge_url=judge_url,
        patience=patience,
    )  # fmt: skip
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create({}),
    )
    application = kernelwright_nemo.KernelResourcesServer(
        config=config, server_client=client
    ).setup_webserver()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        with httpx.Client(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=120
        ) as http:
            yield http
        server.should_exit = True
        thread.join(10)


def request_of(row: dict, reply: str, **more: object) -> dict:
    """What an agent posts to /verify: a row of the data set, and the response that the policy gave."""
    content = [{"type": "output_text", "text": reply, "annotations": []}]
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    response = {
        "id": "r", "created_at": 0.0, "model": "scripted", "object": "response", "output": [message],
        "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    return {**row, "response": response, **more}


def test_verify_answers_the_reward_in_parts_and_names_the_failure(
    judge_url, problem, right, wrong, uncompiled
):
    [row] = kernelwright_nemo.rows(JudgeClient(judge_url), [problem])
    with served(judge_url) as http:
        told = []
        for text in (right, wrong, uncompiled):
            answer = http.post("/verify", json=request_of(row, f"```python\n{text}```"))
            answer.raise_for_status()
            told.append(answer.json())
    assert [one["reward"] for one in told] == pytest.approx([1.05, 0.035, 0.0], abs=0.016)
    assert [one["failure_kind"] for one in told] == [
        None,
        "kernelwright:mismatch",
        "kernelwright:compile",
    ]
    assert [one["mask_sample"] for one in told] == [False, False, False]
    assert [one["ended_at"] for one in told] == ["interpreted", "interpreted", "compile"]
    assert told[0]["reward_components"]["correct"] == told[0]["correct"] == 1.0
    assert all(is_namespaced(one["failure_kind"]) for one in told[1:])


def test_a_judge_that_is_away_masks_the_sample_and_no_mean_counts_it(
    judge_url, nobody, problem, right
):
    [row] = kernelwright_nemo.rows(JudgeClient(judge_url), [problem])
    with served(nobody, patience=0.0) as http:
        masked = http.post("/verify", json=request_of(row, right)).json()
    assert masked["mask_sample"]
    assert is_registered(masked["failure_kind"])
    assert masked["failure_reason"]
    with served(judge_url) as http:
        scored = http.post("/verify", json=request_of(row, right)).json()
        both = [
            {**one, "_ng_task_index": 0, "_ng_rollout_index": place}
            for place, one in enumerate((masked, scored))
        ]
        metrics = http.post("/aggregate_metrics", json={"verify_responses": both}).json()[
            "agent_metrics"
        ]
    assert metrics["mean/reward"] == pytest.approx(1.05)
    assert metrics["mean/correct"] == pytest.approx(1.0)


def test_the_configuration_names_the_server_and_the_agent_of_the_rows():
    config = OmegaConf.load(CONFIG)
    assert config.kernelwright.resources_servers.kernelwright.entrypoint == "app.py"
    assert (CONFIG.parents[1] / "app.py").is_file()
    assert kernelwright_nemo.server.AGENT in config


def test_two_steps_of_groups_with_a_failed_and_a_masked_candidate(
    judge_url, nobody, problem, right, wrong, uncompiled, settled
):
    """verify and aggregate_metrics, as NeMo-Gym's rollouts call them; its trainer (NeMo RL) needs GPUs."""
    [row] = kernelwright_nemo.rows(JudgeClient(judge_url), [problem])
    with served(judge_url) as http, served(nobody, patience=0.0) as away:
        for step in (1, 2):
            row_of_step = {**row, "group": f"nemo/step-{step}"}
            answers = [
                http.post("/verify", json=request_of(row_of_step, f"```python\n{text}```")).json()
                for text in (right, wrong, uncompiled)
            ]
            answers.append(away.post("/verify", json=request_of(row_of_step, right)).json())
            assert [answer["mask_sample"] for answer in answers] == [False, False, False, True]
            responses = [
                {**answer, "_ng_task_index": 0, "_ng_rollout_index": index}
                for index, answer in enumerate(answers)
            ]
            metrics = http.post("/aggregate_metrics", json={"verify_responses": responses}).json()
            mean = metrics["agent_metrics"]["mean/reward"]
            assert mean == pytest.approx((1.05 + 0.035) / 3, abs=0.01)
    for shown in settled("nemo/step-", 2, 3):
        assert (shown["problem"], shown["correct"], shown["masked"]) == (problem, 1, 0)
