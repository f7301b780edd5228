"""Online training that samples with vLLM, for real: the engine in this process and a server on loopback.

Run with the Python of an environment that has vLLM (docs/reference/policies.md).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.policies.base import Message, PolicyRefused, Request, Role, Sampling  # noqa: E402
from kernelwright.policies.vllm.worker import EXTENSION_CLASS  # noqa: E402
from kernelwright.rl.log.dataset import revision_of  # noqa: E402
from kernelwright.rl.training.online.options import OnlineOptions  # noqa: E402
from kernelwright.rl.training.online.sampler import engine_of, open_samplers, refuse_engine  # noqa: E402
from kernelwright.rl.training.online.training import train_online  # noqa: E402
from kernelwright.rl.training.subject import load_weights, open_subject  # noqa: E402
from kernelwright.store.database import Store  # noqa: E402
from kernelwright.store.records import CandidateFilter  # noqa: E402
from tests.policies.servers import free_port, serving  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def _small_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def novice(tmp_path_factory) -> Path:
    return save_novice(tmp_path_factory.mktemp("novice") / "model", head_dim=32)


@pytest.fixture(scope="module")
def problems(tmp_path_factory) -> str:
    return str(write_problems(tmp_path_factory.mktemp("problems") / "toys"))


@pytest.fixture(scope="module")
def server(novice, tmp_path_factory):
    """A server whose adapters and whole weights can be moved."""
    port = free_port()
    options = (
        f"--model {novice} --served-model-name novice --host 127.0.0.1 --port {port} --dtype float32 "
        "--enforce-eager --enable-lora --max-lora-rank 64"
    )
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options.split()]
    more = [
        "--logprobs-mode=processed_logprobs",
        f"--worker-extension-cls={EXTENSION_CLASS}",
        "--api-key=sk-loopback",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
        with serving([*command, *more], port, tmp_path_factory.mktemp("server") / "log"):
            yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(params=["vllm", "server"])
def engine(request) -> str:
    return (
        f"openai:novice@{request.getfixturevalue('server')}"
        if request.param == "server"
        else "vllm"
    )


def options(novice: Path, output: Path, problems: str = "synth", **more) -> OnlineOptions:
    settings = {"learning_rate": 1e-3, "warmup_steps": 0, "gradient_accumulation_steps": 2}
    known = {
        "prompts": 2,
        "group": 4,
        "turns": 1,
        "reply_tokens": 40,
        "workers": 1,
        "lag": 0,
        "max_steps": 3,
    }
    return OnlineOptions(
        policy=f"transformers:{novice}", output=output, problems=(problems,), settings=settings, key="sk-loopback",
        db=str(output.parent / "runs.db"), **{**known, **more},
    )  # fmt: skip


REQUESTS = [
    Request(
        messages=(Message(role=Role.USER, content="x" * 300),),
        sampling=Sampling(max_tokens=12, seed=seed),
    )
    for seed in range(4)
]
"""One prompt of several blocks of the engine's cache: under new weights nothing of it may be used again."""


def distance(model, completions) -> float:
    """The largest between what was logged and what the model gives for the same tokens."""
    furthest = 0.0
    for completion in completions:
        prompt, drawn = list(completion.prompt_token_ids), list(completion.token_ids)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + drawn])).logits[0, len(prompt) - 1 : -1]
        own = logits.log_softmax(-1).gather(-1, torch.tensor(drawn)[:, None])[:, 0]
        furthest = max(furthest, float((own - torch.tensor(completion.logprobs)).abs().max()))
    return furthest


@pytest.mark.parametrize("lora", [False, True])
def test_the_next_round_is_drawn_from_the_weights_that_were_handed_over(
    novice, tmp_path, engine, lora
):
    subject = open_subject(f"transformers:{novice}")
    [sampler] = open_samplers(subject, options(novice, tmp_path / "out", engine=engine, lora=lora))
    model = load_weights(subject, "cpu", lora).eval()
    first = sampler.follow(model, subject.revision)
    before = sampler.policy.sample(REQUESTS)
    assert distance(model, before) < 1e-4
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not lora or "lora_B" in name:
                weight.add_(0.1 * torch.randn_like(weight))
    second = sampler.follow(model)
    after = sampler.policy.sample(REQUESTS)
    assert distance(model, before) > 0.1
    assert distance(model, after) < 1e-4
    assert all(completion.exact for completion in after)
    for revision, completions in ((first, before), (second, after)):
        assert {"+".join(filter(None, (c.revision, c.adapter_revision))) for c in completions} == {
            revision
        }
    assert sampler.drawn()[0] == sum(len(c.token_ids) for c in (*before, *after))
    sampler.close()


@pytest.mark.parametrize("lora", [False, True])
def test_an_online_training_samples_each_step_from_the_one_before(
    novice, problems, tmp_path, engine, lora
):
    lines, asked = (
        [],
        options(novice, tmp_path / "better", problems, engine=engine, lora=lora, group=8),
    )
    trained = train_online(asked, watch=lambda step, of, figures: lines.append(figures))
    assert trained.steps == 3
    assert sum(line["rows"] for line in lines) > 0
    assert all(line["drift/largest_log_ratio"] < 1e-3 for line in lines), (
        "sampled from the very weights of the step"
    )
    assert all(line["sampled_tokens_a_second"] > 0 for line in lines)
    lineage = json.loads((Path(trained.output) / "kernelwright.json").read_text())["lineage"]
    with Store.open(asked.db) as store:
        used = [revision_of(turn) for turn in store.samples(CandidateFilter())]
    assert len(set(used)) == 3
    assert set(used) <= set(lineage)


def test_a_server_gets_its_own_weights_back(server, novice, tmp_path):
    subject, asked = open_subject(f"transformers:{novice}"), f"openai:novice@{server}"
    [sampler] = open_samplers(subject, options(novice, tmp_path / "out", engine=asked))
    model, own = (
        load_weights(subject, "cpu", False).eval(),
        load_weights(subject, "cpu", False).eval(),
    )
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2.0)
    sampler.follow(model)
    sampler.close()
    [again] = open_samplers(subject, options(novice, tmp_path / "out", engine=asked))
    assert distance(own, again._under.sample(REQUESTS)) < 1e-4
    again.close()


def test_a_server_of_another_model_or_with_another_name_is_refused(server, novice, tmp_path):
    other = save_novice(tmp_path / "other", steps=1)
    with pytest.raises(InputError, match=f"start it with --model {other}"):
        refuse_engine(open_subject(f"transformers:{other}"),
            options(other, tmp_path / "out", engine=f"openai:novice@{server}"))  # fmt: skip
    with pytest.raises(PolicyRefused, match="has no model 'expert': it serves novice"):
        refuse_engine(open_subject(f"transformers:{novice}"),
            options(novice, tmp_path / "out", engine=f"openai:expert@{server}"))  # fmt: skip


def test_vllm_is_taken_on_a_gpu_where_it_is_installed_and_fits(novice, tmp_path):
    subject, on_gpu = open_subject(f"transformers:{novice}"), {"device": "cuda:0", "lora": True}
    assert engine_of(subject, options(novice, tmp_path / "out", **on_gpu)) == "vllm"
    assert engine_of(subject, options(novice, tmp_path / "out", **on_gpu, lag=2)) == "auto"
    assert engine_of(subject, options(novice, tmp_path / "out", **on_gpu), world=2) == "auto"
    assert engine_of(subject, options(novice, tmp_path / "out", lora=True)) == "auto", (
        "on a CPU transformers is faster"
    )
    with pytest.raises(InputError, match="use --lag 1"):
        engine_of(subject, options(novice, tmp_path / "out", engine="vllm", lag=2))
