"""A reference that fails a device-side assertion, in the middle of honest verdicts of the same judge.

All references are one client's, so that one judge process makes all of these verdicts. On a machine without a GPU the
reference works like any other, and the judge lives on.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from kernelwright.agent.serving.client import JudgeClient
from kernelwright.agent.serving.wire import Status
from kernelwright.tools.problem import Problem

BACK_SECONDS = 10.0
"""Seconds that the judge may take to be ready again."""
HONEST = 3
"""Honest verdicts beside the hostile one."""
QUICK = {"sizes": 1, "profile": False, "interpret": False}
"""Options of these verdicts: they compile, and run on the device."""
PATIENCE_SECONDS = 30.0
KERNEL = Path(__file__).parents[1] / "tests" / "kernels" / "good" / "fused_silu.py"
REFERENCE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {statement}
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
OUT_OF_BOUNDS = (
    "x.is_cuda and torch.zeros(1, device=x.device)[torch.full((4,), 7, device=x.device)]"
)


class AssertionResult(NamedTuple):
    """The verdicts beside a reference that fails on the device."""

    hostile: Status
    honest: tuple[Status, ...]
    other_client: Status
    """A verdict on the server's own problem, submitted as the next one."""
    back_seconds: float
    """From the end of the hostile verdict until the judge was ready again."""

    @property
    def passed(self) -> bool:
        """Whether every honest verdict is right and the judge was back in time."""
        right = [_is_correct(status) for status in (*self.honest, self.other_client)]
        return all(right) and not _is_correct(self.hostile) and self.back_seconds <= BACK_SECONDS

    def lines(self) -> list[str]:
        """Returns the result as lines of Markdown."""
        rows = {
            "the hostile one": self.hostile,
            **{f"honest {number}, of the same judge": s for number, s in enumerate(self.honest, 1)},
            "the server's own problem, submitted next": self.other_client,
        }
        return [
            "## A reference with a device-side assertion", "",
            f"The judge was ready again {self.back_seconds:.1f} s after the verdict had ended (goal: "
            f"{BACK_SECONDS:.0f} s); {'passed' if self.passed else 'FAILED'}.", "",
            "| verdict | state | correct | attempts | message |", "|---|---|---|---|---|",
            *(
                f"| {name} | {status.state} | {_is_correct(status)} | "
                f"{', '.join(attempt.outcome for attempt in status.attempts)} | {_message(status)} |"
                for name, status in rows.items()
            ),
        ]  # fmt: skip


def judge_beside_an_assertion(client: JudgeClient) -> AssertionResult:
    """Submits honest candidates around a hostile one, and measures when the judge is back."""
    mine = Problem(name="mine", source=REFERENCE.format(statement="pass"))
    hostile_problem = Problem(name="mine", source=REFERENCE.format(statement=OUT_OF_BOUNDS))
    client.score(mine, _kernel("warm"), **QUICK)  # the judge of this client's references is there
    restarts = _restarts(client)
    first = client.submit(mine, _kernel("before"), **QUICK)
    hostile = client.submit(hostile_problem, _kernel("hostile"), **QUICK)
    behind = [
        client.submit(mine, _kernel(f"behind {number}"), **QUICK) for number in range(HONEST - 1)
    ]
    ended = _followed(client, hostile.verdict_id)
    deadline = time.time() + PATIENCE_SECONDS
    # Ready again is a judge that was started anew; without a GPU none is.
    while client.health().judges_ready < 1 or _restarts(client) == restarts:
        if time.time() > deadline or ended.device == "cpu":
            break
        time.sleep(0.05)
    back_seconds = time.time() - (ended.ended or time.time())
    next_one = client.submit("fused_silu", _kernel("next"), **QUICK)
    return AssertionResult(
        hostile=ended,
        honest=tuple(_followed(client, status.verdict_id) for status in (first, *behind)),
        other_client=_followed(client, next_one.verdict_id),
        back_seconds=back_seconds,
    )


def wait_until_ready(client: JudgeClient, seconds: float) -> None:
    """Waits until every judge of a server is ready. Raises RuntimeError after so many seconds."""
    deadline = time.monotonic() + seconds
    while (health := client.health()).judges_ready < len(health.devices):
        if time.monotonic() > deadline:
            raise RuntimeError("the server's judges did not begin")
        time.sleep(0.2)


def _restarts(client: JudgeClient) -> int:
    answer = client._http.get("/v1/judges").json()
    return sum(judge["restarts"] for judge in answer["judges"])


def _followed(client: JudgeClient, verdict_id: str) -> Status:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (status := client.status(verdict_id, wait=5.0)).state.ended:
        if time.monotonic() > deadline:
            break
    return status


def _is_correct(status: Status) -> bool:
    return status.score is not None and status.score.correct


def _message(status: Status) -> str:
    told = status.error.message if status.error else ""
    told = told or (status.score.explanation if status.score else "")
    return " ".join(told.split()).replace("|", "/")[:160]


def _kernel(name: str) -> str:
    return f"{KERNEL.read_text()}\n\nNAME = {name!r}\n"
