"""The resources server: `/verify` asks the judge about the policy's last message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.failure_kinds import JUDGE_FAILED, TRANSPORT_UNREACHABLE
from pydantic import PrivateAttr

from kernelwright_client import JudgeClient, Reward, Score, code_of

AGENT = "kernelwright_simple_agent"
"""The agent's name in configs/kernelwright.yaml."""
UNREACHABLE = "unreachable"


class KernelResourcesServerConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_url: str | None = None
    """The judge service; without one KERNELWRIGHT_JUDGE_URL names it."""
    patience: float = 900.0
    """Seconds that trouble of the judge is waited out."""
    weights: dict[str, float | str | bool | None] | str = "default"
    """A preset's name, or a table of weights."""


class KernelVerifyRequest(BaseVerifyRequest):
    problem: str
    """The judge's name of the problem."""
    group: str = ""
    """The same for rollouts of one prompt; empty takes the problem's name."""


class KernelVerifyResponse(BaseMultiRewardVerifyResponse):
    """The reward with its parts, which are fields of their own so that NeMo-Gym reports the mean of each."""

    problem: str
    group: str = ""
    verdict_id: str = ""
    ended_at: str = ""
    form: float = 0.0
    compile: float = 0.0
    checks: float = 0.0
    correct: float = 0.0
    speed: float = 0.0
    share: float = 0.0
    length: float = 0.0
    cheat: float = 0.0


class KernelResourcesServer(SimpleResourcesServer):
    """One judge for all rollouts: the server itself keeps no state."""

    config: KernelResourcesServerConfig
    _judge: JudgeClient = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._judge = JudgeClient(self.config.judge_url, patience=self.config.patience)

    async def verify(self, body: KernelVerifyRequest) -> KernelVerifyResponse:
        """The verdict on the last message. A candidate that could not be judged is masked: its reward says nothing."""
        group = body.group or f"nemo/{body.problem}"
        score = await self._judge.score_async(
            body.problem, code_of(text_of_response(body)), group=group
        )
        return answered(body, score, score.reward(self.config.weights))


def answered(body: KernelVerifyRequest, score: Score, reward: Reward) -> KernelVerifyResponse:
    """A verdict in NeMo-Gym's form."""
    return KernelVerifyResponse(
        **body.model_dump(),
        reward=reward.total or 0.0,
        reward_components=dict(reward.parts),
        mask_sample=reward.masked,
        failure_kind=failure_kind_of(score),
        failure_reason=reward.explanation or None,
        verdict_id=score.verdict_id,
        ended_at=reward.ended_at,
        **reward.parts,
    )


def failure_kind_of(score: Score) -> str | None:
    """NeMo-Gym's shared name for trouble of the judge; `kernelwright:FAULT` for a fault of the candidate."""
    if score.trouble:
        return TRANSPORT_UNREACHABLE if score.trouble == UNREACHABLE else JUDGE_FAILED
    return f"kernelwright:{score.fault}" if score.fault else None


def text_of_response(body: BaseVerifyRequest) -> str:
    """The text of the last message that the policy wrote."""
    messages = [item for item in body.response.output if item.type == "message"]
    parts = messages[-1].content if messages else []
    return "".join(part.text for part in parts if part.type == "output_text")


def rows(
    judge: JudgeClient | None = None, names: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Rows of a data set in NeMo-Gym's form, a JSON object a line."""
    return [
        {
            "responses_create_params": {"input": task.prompt},
            "problem": task.id,
            "agent_ref": {"type": "responses_api_agents", "name": AGENT},
        }
        for task in (judge or JudgeClient()).tasks(names)
    ]


if __name__ == "__main__":
    KernelResourcesServer.run_webserver()
