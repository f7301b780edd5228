"""vLLM and `transformers serve`, for real: each on loopback with the tiny model, driven through the project's
policies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.policies.base import (
    Completion,
    FinishReason,
    Message,
    PolicyRefused,
    PolicyUnavailable,
    Request,
    Role,
    Sampling,
    Trouble,
)
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.policies.openai.openai_policy import OpenAIPolicy
from kernelwright.policies.retrying import RetryingPolicy
from tests.policies.exactness import teacher_forced
from tests.policies.servers import ROOT, environment, free_port, serving, vllm_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def ask(text: str = "add", **sampling: object) -> Request:
    return Request(
        messages=(Message(role=Role.USER, content=text),),
        sampling=Sampling(**{"max_tokens": 16, **sampling}),
    )


def vllm_serve(model: Path, port: int, *more: str) -> list[str]:
    """The `vllm` command asks for a distribution named vllm, which the CPU wheel is not; the module is the same
    server.
    """
    options = (
        f"--host 127.0.0.1 --port {port} --served-model-name tiny --max-model-len 512 --dtype "
        "float32 --enforce-eager"
    )
    return [
        str(vllm_python()),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(model),
        *options.split(),
        *more,
    ]


@pytest.fixture(scope="module")
def vllm_url(
    tiny_model: Path, tiny_adapter: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    port = free_port()
    command = vllm_serve(
        tiny_model,
        port,
        "--logprobs-mode=processed_logprobs",
        "--api-key=sk-loopback",
        "--enable-lora",
        "--lora-modules",
        f"extra={tiny_adapter}",
    )
    with serving(command, port, tmp_path_factory.mktemp("vllm") / "log"):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture
def served(vllm_url: str) -> Iterator[OpenAIPolicy]:
    policy = OpenAIPolicy("tiny", vllm_url, key="sk-loopback", timeout=500)
    yield policy
    policy.close()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_vllm_serve_gives_exact_log_probs_at_any_temperature(served, tiny_model, temperature):
    for completion in served.sample(
        [ask(text, temperature=temperature) for text in ("add", "softmax, please")]
    ):
        assert completion.exact
        assert completion.logprobs == pytest.approx(
            teacher_forced(tiny_model, completion, temperature), abs=1e-4
        )


def test_vllm_serve_repeats_a_seed_and_says_how_it_ended(served, tiny_model):
    first, again, other = served.sample([ask(seed=5), ask(seed=5), ask(seed=6)])
    assert first.token_ids == again.token_ids != other.token_ids
    assert first.finish is FinishReason.LENGTH
    drawn = served.sample(ask(seed=0, temperature=1.5, max_tokens=10_000).repeated(8))
    ended = [completion for completion in drawn if completion.finish is FinishReason.STOP]
    assert ended
    assert len({completion.token_ids[-1] for completion in ended}) == 1, (
        "the end token is in the log"
    )
    assert ended[0].logprobs == pytest.approx(teacher_forced(tiny_model, ended[0], 1.5), abs=1e-4)


def test_vllm_serve_and_the_transformers_policy_have_one_identity_and_one_prompt(
    served, tiny_model
):
    there = served.sample([ask()])[0]
    here = TransformersPolicy(str(tiny_model), device="cpu").sample([ask()])[0]
    for field in ("prompt_token_ids", "revision", "tokenizer_hash", "chat_template_hash"):
        assert getattr(there, field) == getattr(here, field)


def test_an_adapter_of_vllm_serve_is_used_by_request(served, tiny_model, tiny_adapter):
    plain, adapted = served.sample([ask(seed=5), ask(seed=5).with_(adapter="extra")])
    assert adapted.adapter_revision
    assert plain.adapter_revision is None
    assert adapted.logprobs == pytest.approx(
        teacher_forced(tiny_model, adapted, adapter=tiny_adapter), abs=1e-3
    )


def test_vllm_serve_refuses_for_good_what_is_wrong_for_good(served, vllm_url):
    for policy, request, trouble in (
        (served, ask("mask " * 600), Trouble.CONTEXT),
        (served, ask().with_(adapter="none"), Trouble.MODEL),
        (OpenAIPolicy("other", vllm_url, key="sk-loopback"), ask(), Trouble.MODEL),
        (OpenAIPolicy("tiny", vllm_url, key="sk-wrong"), ask(), Trouble.KEY),
    ):
        with pytest.raises(PolicyRefused) as caught:
            policy.sample([request])
        assert caught.value.trouble is trouble


def test_raw_log_probs_are_noticed_and_a_server_that_dies_is_unavailable(tiny_model, tmp_path):
    port = free_port()
    with serving(vllm_serve(tiny_model, port), port, tmp_path / "log") as process:
        policy = OpenAIPolicy("tiny", f"http://127.0.0.1:{port}/v1", timeout=500)
        plain, warm = policy.sample([ask(seed=1), ask(seed=1, temperature=0.7)])
        assert (plain.exact, warm.exact) == (True, False)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(PolicyUnavailable):
            policy.sample([ask()])
        policy.close()


def test_vllm_in_process_gives_exact_log_probs_and_adapters_by_request(tiny_model, tiny_adapter):
    script = ROOT / "tests" / "policies" / "vllm" / "drive_vllm.py"
    said = subprocess.run(
        [str(vllm_python()), str(script), str(tiny_model), str(tiny_adapter)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )
    lines = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 10, said.stderr[-2000:]
    completions = [Completion.model_validate(line) for line in lines[:7]]
    plain, again, warm, adapted, long, narrow, unseeded = completions
    assert plain.token_ids == again.token_ids
    for completion, temperature in ((plain, 1.0), (warm, 0.7), (long, 1.5), (unseeded, 1.0)):
        assert completion.exact
        assert completion.logprobs == pytest.approx(
            teacher_forced(tiny_model, completion, temperature), abs=1e-4
        )
    assert adapted.logprobs == pytest.approx(
        teacher_forced(tiny_model, adapted, adapter=tiny_adapter), abs=1e-3
    )
    assert adapted.adapter_revision
    assert not narrow.exact
    assert unseeded.seed is not None
    assert [line.get("trouble") for line in lines[7:]] == [Trouble.CONTEXT, Trouble.MODEL, None]


def test_transformers_serve_answers_without_log_probs_and_is_never_exact(tiny_model, tmp_path):
    program = vllm_python().parent / "transformers"
    needed: list[Any] = [str(vllm_python()), "-c", "import accelerate, fastapi, uvicorn"]
    if not program.exists() or subprocess.run(needed, capture_output=True).returncode:
        pytest.skip("transformers serve is not installed beside vLLM (docs/reference/policies.md)")
    port = free_port()
    command = [str(program), "serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with serving(command, port, tmp_path / "log"):
        policy = RetryingPolicy(
            OpenAIPolicy(str(tiny_model), f"http://127.0.0.1:{port}/v1", timeout=500), budget=60
        )
        started = time.monotonic()
        completion = policy.sample([ask(max_tokens=8)])[0]
        assert time.monotonic() - started < 120
        policy.close()
    assert completion.text
    assert (completion.usage.completion_tokens, completion.finish) == (8, FinishReason.LENGTH)
    assert (completion.exact, completion.token_ids, completion.usage.dollars) == (False, None, None)
