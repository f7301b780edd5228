"""A GRPO training here and a vLLM server in an environment of its own: weights by vLLM's transfer API.

The environment: docs/reference/policies.md. The trainer's own environment needs no vLLM.
"""

from __future__ import annotations

import json
import urllib.request

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.policies.base import Message, Request, Role, Sampling  # noqa: E402
from kernelwright.policies.vllm.worker import EXTENSION_CLASS  # noqa: E402
from kernelwright.rl.training.grpo.config import GRPOFacts, grpo_config  # noqa: E402
from kernelwright.rl.training.grpo.rows import ScoredCompletion  # noqa: E402
from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer  # noqa: E402
from kernelwright.rl.training.online.options import OnlineOptions  # noqa: E402
from kernelwright.rl.training.online.sampler import open_samplers  # noqa: E402
from kernelwright.rl.training.subject import load_weights, open_subject  # noqa: E402
from tests.policies.servers import free_port, serving, vllm_python  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def server(tiny, tmp_path_factory):
    port = free_port()
    options = f"--model {tiny} --served-model-name tiny --host 127.0.0.1 --port {port} --dtype float32 --enforce-eager"
    command = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *options.split()]
    more = ["--logprobs-mode=processed_logprobs", f"--worker-extension-cls={EXTENSION_CLASS}"]
    log = tmp_path_factory.mktemp("server") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        with serving([*command, *more, "--max-model-len=512"], port, log):
            yield f"http://127.0.0.1:{port}/v1"


def requests(first_seed: int) -> list[Request]:
    message = Message(role=Role.USER, content="softmax of " + "x" * 100)
    return [
        Request(messages=(message,), sampling=Sampling(max_tokens=12, seed=seed))
        for seed in range(first_seed, first_seed + 8)
    ]


def scored(completions) -> list[ScoredCompletion]:
    return [
        ScoredCompletion(
            completion.prompt_token_ids, completion.token_ids, completion.logprobs, 1.0 - 2.0 * (number % 2)
        )
        for number, completion in enumerate(completions)
    ]  # fmt: skip


def weight_version(server: str) -> str:
    with urllib.request.urlopen(f"{server.removesuffix('/v1')}/weight_info") as answer:
        return str(json.load(answer)["weight_version"])


def test_rollouts_have_the_trainers_log_probs_before_and_after_a_step(server, tiny, tmp_path):
    subject = open_subject(f"transformers:{tiny}")
    options = OnlineOptions(
        policy=f"transformers:{tiny}", output=tmp_path / "out", engine=f"openai:tiny@{server}", device="cpu"
    )  # fmt: skip
    [sampler] = open_samplers(subject, options)
    model = load_weights(subject, "cpu", lora=False)
    versions, largest_ratios = [], []

    def batches(step: int) -> list[ScoredCompletion]:
        versions.append(sampler.follow(trainer.accelerator.unwrap_model(trainer.model)))
        completions = sampler.policy.sample(requests(100 * step))
        assert all(completion.exact for completion in completions)
        assert {completion.revision for completion in completions} == {versions[-1]}
        assert weight_version(server) == versions[-1]
        return scored(completions)

    facts = GRPOFacts(
        output_dir=str(tmp_path / "trainer"), max_steps=3, seed=0, device="cpu", parameters=100_000, lora=False,
        temperature=1.0, longest_completion=12,
    )  # fmt: skip
    settings = {
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "save_strategy": "no",
    }
    trainer = TrajectoryGRPOTrainer(
        model, grpo_config(settings, facts), batches, processing_class=subject.tokenizer
    )
    trainer.train()
    for entry in trainer.state.log_history:
        if "loss" in entry:
            largest_ratios.append(entry["drift/largest_log_ratio"])
    assert len(set(versions)) == 3, "each step has moved the weights"
    assert len(largest_ratios) == 3
    assert max(largest_ratios) < TOLERANCE
    assert not (options.work / "sampled").exists(), "no weights went through a folder"
    sampler.close()
