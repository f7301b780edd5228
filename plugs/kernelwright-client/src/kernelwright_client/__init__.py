"""Verdicts on Triton kernels over HTTP, and rewards made of them: what every plug for a training framework stands on.

Here belong the client of the judge service, the score, the reward and the tasks. What one framework wants belongs to
that framework's plug.

    from kernelwright_client import JudgeClient

    with JudgeClient("http://127.0.0.1:8700") as judge:
        reward = judge.score("fused_softmax", reply).reward()
        reward.total, reward.parts, reward.ended_at      # total is None where the verdict should not train
"""

from kernelwright_client.client import JudgeClient, JudgeError
from kernelwright_client.episodes import Episode, Until
from kernelwright_client.replies import code_of
from kernelwright_client.reward_parts import PRESET_WEIGHTS, Weights
from kernelwright_client.scores import Pays, Reward, Score
from kernelwright_client.tasks import CONTRACT, Task, prompt_of

__all__ = [
    "CONTRACT",
    "PRESET_WEIGHTS",
    "Episode",
    "JudgeClient",
    "JudgeError",
    "Pays",
    "Reward",
    "Score",
    "Task",
    "Until",
    "Weights",
    "code_of",
    "prompt_of",
]
