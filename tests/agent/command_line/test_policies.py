"""`agent policies`: what a model's folder says about itself."""

import json
import subprocess
import sys

from kernelwright.policies.model_identity import weights_revision
from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS


def agent_policies(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelwright.agent", "policies", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_policy_that_ships_says_what_it_is():
    done = agent_policies("--json")
    assert done.returncode == 0, done.stderr
    [card] = json.loads(done.stdout)
    assert (card["policy"], card["method"]) == ("embedded", "grpo")
    assert card["revision"] == weights_revision(EMBEDDED_WEIGHTS)


def test_a_folder_without_weights_is_refused_in_one_line(tmp_path):
    done = agent_policies(str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"agent: {tmp_path} holds no weights (*.safetensors, *.bin): give the folder that `rl sft` or `rl train` wrote"
    ]
