"""The taskset through verifiers' own loader, validator, scorer and evaluation, with verdicts of a real judge."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import verifiers.v1 as vf
from verifiers.v1.errors import TaskError
from verifiers.v1.state import state_cls
from verifiers.v1.trace import Trace, TraceTask
from verifiers.v1.utils.loaders import import_taskset

from kernelwright_verifiers import KernelTask
from kernelwright_verifiers.taskset import KernelTaskConfig, KernelTaskset, KernelTasksetConfig

BIN = Path(sys.executable).parent


def taskset_of(url: str, *names: str) -> KernelTaskset:
    return KernelTaskset(
        KernelTasksetConfig(
            id="kernelwright-verifiers",
            problems=list(names) or None,
            task=KernelTaskConfig(judge_url=url),
        )
    )


def replied(task: KernelTask, reply: str) -> Trace:
    """A trace of one reply, as a rollout leaves it to the scorer."""
    told = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    agent = vf.AgentInfo(config=vf.AgentConfig(), name="agent", trainable=True)
    return Trace(task=told, state=state_cls(type(task))(), agent=agent, root_reply=reply)


def test_verifiers_finds_the_taskset_and_its_tasks_by_name(judge_url, problem):
    assert import_taskset("kernelwright-verifiers").KernelTaskset is KernelTaskset
    everything = list(taskset_of(judge_url))
    assert len(everything) > 50
    [task] = taskset_of(judge_url).include(keys=[problem])
    assert "class Model" in task.data.prompt_text


def test_a_reply_is_rewarded_in_parts(judge_url, problem, right, wrong):
    [task] = taskset_of(judge_url, problem)
    good, bad = (
        replied(task, f"Here:\n```python\n{right}```"),
        replied(task, f"```python\n{wrong}```"),
    )

    async def score() -> None:
        await asyncio.gather(task.score(good), task.score(bad))

    asyncio.run(score())
    assert good.reward == pytest.approx(1.05)
    assert 0.02 <= bad.reward < 0.05
    assert good.rewards["correct"].value == 1.0
    assert bad.info["kernel"]["ended_at"] == "interpreted"
    assert bad.metrics["gate"] == 1.0


def test_a_judge_that_is_away_is_an_error_of_the_trace_and_no_zero(
    judge_url, nobody, problem, right
):
    [task] = taskset_of(judge_url, problem)
    away = KernelTask(task.data, KernelTaskConfig(judge_url=nobody, patience=0.0))
    trace = replied(away, right)
    with pytest.raises(TaskError, match="unreachable"):
        asyncio.run(away.score(trace))
    assert trace.rewards == {"kernel": None}


def test_vf_validate_finds_every_problem_valid(judge_url, problem, tmp_path):
    subprocess.run(
        [BIN / "vf-validate", "kernelwright-verifiers", "--runtime.type", "subprocess", "--rich", "False",
         "--taskset.problems", json.dumps([problem, "row_sum"]), "--taskset.task.judge-url", judge_url, "-o", tmp_path],
        check=True, timeout=300, cwd=tmp_path,
    )  # fmt: skip
    [summary] = tmp_path.glob("*/summary.json")
    told = json.loads(summary.read_text())
    assert told["outcomes"]["valid"] == told["total"] == 2
    assert told["checks"]["gold"]["valid"] == told["checks"]["noop"]["valid"] == 2


class ScriptedModel(BaseHTTPRequestHandler):
    """An endpoint in OpenAI's form that always streams the same reply."""

    reply = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        said = {"delta": {"role": "assistant", "content": self.reply}, "finish_reason": None}
        ended = {"delta": {}, "finish_reason": "stop"}
        chunks = [
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "scripted",
                "choices": [{"index": 0, **one}],
            }
            for one in (said, ended)
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for line in (*map(json.dumps, chunks), "[DONE]"):
            self.wfile.write(f"data: {line}\n\n".encode())

    def log_message(self, *_: object) -> None: ...


def test_vf_eval_rewards_a_scripted_policy(judge_url, problem, right, tmp_path):
    ScriptedModel.reply = f"```python\n{right}```"
    with ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        subprocess.run(
            [BIN / "vf-eval", "kernelwright-verifiers", "-m", "scripted", "--client.base-url",
             f"http://127.0.0.1:{server.server_port}/v1", "--client.api-key-var", "HOME",
             "--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess", "--no-push",
             "--env.taskset.problems", json.dumps([problem]), "--env.taskset.task.judge-url", judge_url,
             "-o", tmp_path],
            check=True, timeout=300, cwd=tmp_path,
        )  # fmt: skip
        server.shutdown()
    [traces] = tmp_path.glob("*/traces.jsonl")
    [line] = traces.read_text().splitlines()
    rewards = json.loads(line)["traces"][0]["rewards"]
    assert rewards["correct"]["score"] == 1.0


def test_two_steps_of_groups_with_a_failed_and_a_masked_candidate(
    judge_url, nobody, problem, right, wrong, uncompiled, settled
):
    """Rollouts of one task, scored as verifiers scores them; its trainer (prime-rl) needs GPUs.

    The policy's last reply is the candidate, so that a rollout has one turn of the judge.
    """
    [data] = [task.data for task in taskset_of(judge_url, problem)]
    for step in (1, 2):
        config = KernelTaskConfig(judge_url=judge_url, group=f"verifiers/step-{step}")
        task = KernelTask(data, config)
        traces = [replied(task, f"```python\n{text}```") for text in (right, wrong, uncompiled)]

        async def score(task: KernelTask = task, traces: list[Trace] = traces) -> None:
            await asyncio.gather(*(task.score(trace) for trace in traces))

        asyncio.run(score())
        assert [trace.reward for trace in traces] == pytest.approx([1.05, 0.035, 0.0], abs=0.016)
        away = KernelTask(data, KernelTaskConfig(judge_url=nobody, patience=0.0))
        masked = replied(away, right)
        with pytest.raises(TaskError, match="unreachable"):
            asyncio.run(away.score(masked))
        assert masked.rewards == {"kernel": None}
    for row in settled("verifiers/step-", 2, 3):
        assert (row["problem"], row["correct"], row["masked"]) == (problem, 1, 0)
