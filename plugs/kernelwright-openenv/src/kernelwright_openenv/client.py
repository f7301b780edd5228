"""The client of a running environment."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.types import State

from kernelwright_openenv.models import KernelAction, KernelObservation


class KernelEnv(EnvClient[KernelAction, KernelObservation, State]):
    """`with KernelEnv(base_url="http://127.0.0.1:8000").sync() as env: env.reset(problem="fused_softmax")`."""

    def _step_payload(self, action: KernelAction) -> dict[str, Any]:
        return {"code": action.code}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[KernelObservation]:
        told = {
            **payload.get("observation", {}),
            "reward": payload.get("reward"),
            "done": payload.get("done", False),
        }
        observation = KernelObservation.model_validate(told)
        return StepResult(observation=observation, reward=observation.reward, done=observation.done)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State.model_validate(payload)
