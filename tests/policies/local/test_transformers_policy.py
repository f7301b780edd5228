"""The in-process policy on a real, tiny, random Qwen3: what it logs is what it sampled from."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch

from kernelwright.policies.base import (
    FinishReason,
    Message,
    PolicyRefused,
    PromptForm,
    Request,
    Role,
    Sampling,
    Trouble,
)
from kernelwright.policies.local.stepping import CacheKind
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.policies.policy_card import CARD_FILE
from kernelwright.policies.small.embedded import open_embedded
from tests.policies.exactness import teacher_forced
from tests.tiny_model import CONTEXT, save_tiny_model

PROMPTS = (
    "Write add.",
    "Write a fused softmax over the last dimension, please.",
    "x",
    "The last one did not compile: mask",
)


def ask(text: str, **sampling: object) -> Request:
    return Request(
        messages=(Message(role=Role.USER, content=text),),
        sampling=Sampling(**{"max_tokens": 24, **sampling}),
    )


@pytest.fixture(scope="module")
def policy(tiny_model: Path) -> TransformersPolicy:
    return TransformersPolicy(str(tiny_model), device="cpu")


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_logged_log_probs_are_those_of_a_teacher_forced_pass(policy, tiny_model, temperature):
    requests = [
        ask(text, temperature=temperature, seed=place) for place, text in enumerate(PROMPTS)
    ]
    for completion in policy.sample(requests):
        assert completion.exact
        assert completion.token_ids
        assert len(completion.logprobs) == len(completion.token_ids)
        assert completion.logprobs == pytest.approx(
            teacher_forced(tiny_model, completion, temperature), abs=1e-4
        )


@pytest.mark.parametrize("cache", [CacheKind.GROWING, CacheKind.STATIC])
def test_a_row_is_the_same_alone_and_in_a_batch_with_either_cache(tiny_model, policy, cache):
    requests = [
        ask(text, seed=place, max_tokens=8 + 8 * place) for place, text in enumerate(PROMPTS)
    ]
    together = TransformersPolicy(str(tiny_model), device="cpu", cache=cache).sample(requests)
    for request, completion in zip(requests, together, strict=True):
        alone = policy.sample([request])[0]
        assert alone.token_ids == completion.token_ids
        assert alone.logprobs == pytest.approx(completion.logprobs, abs=1e-4)


def test_a_seed_repeats_and_another_differs(policy):
    first, again, other = policy.sample(
        [ask("add", seed=7), ask("add", seed=7), ask("add", seed=8)]
    )
    assert first.token_ids == again.token_ids != other.token_ids
    assert policy.sample([ask("add", seed=7)])[0].token_ids == first.token_ids


def test_a_seed_that_the_policy_drew_is_written_down_and_repeats(policy):
    completion = policy.sample([ask("add")])[0]
    assert policy.sample([ask("add", seed=completion.seed)])[0].token_ids == completion.token_ids


def test_draws_follow_the_distribution_of_the_model(policy, tiny_model):
    drawn = policy.sample(ask("add", seed=0, max_tokens=1).repeated(600))
    shares = (
        torch.bincount(
            torch.tensor([completion.token_ids[0] for completion in drawn]), minlength=384
        )
        / 600
    )
    expected = {completion.token_ids[0]: completion.logprobs[0] for completion in drawn}
    likeliest = sorted(expected, key=expected.__getitem__)[-5:]
    for token in likeliest:
        share = torch.tensor(expected[token]).exp().item()
        assert abs(shares[token].item() - share) < 4 * (share * (1 - share) / 600) ** 0.5


def test_length_and_stop_are_told_apart(policy):
    cut = policy.sample([ask("add", seed=3, max_tokens=5)])[0]
    assert cut.finish is FinishReason.LENGTH
    assert cut.usage.completion_tokens == 5
    whole = policy.sample([ask("add", seed=3, max_tokens=40, temperature=1.2)])[0]
    stop = whole.text[6:9]
    stopped = policy.sample([ask("add", seed=3, max_tokens=40, temperature=1.2, stop=(stop,))])[0]
    assert stopped.finish is FinishReason.STOP
    assert stopped.text == whole.text[: whole.text.find(stop)]
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids)]


def test_the_end_token_ends_the_row_and_stays_in_the_log(policy, tiny_model):
    from transformers import AutoTokenizer

    end = AutoTokenizer.from_pretrained(tiny_model).eos_token_id
    drawn = policy.sample(ask("add", seed=0, max_tokens=200, temperature=1.5).repeated(32))
    ended = [completion for completion in drawn if completion.finish is FinishReason.STOP]
    assert ended, "with 384 tokens and 200 steps some rows must end"
    assert all(
        completion.token_ids[-1] == end and end not in completion.token_ids[:-1]
        for completion in ended
    )
    assert all("<|im_end|>" not in completion.text for completion in ended)


def test_greedy_and_truncated_sampling_are_not_exact(policy):
    greedy, top_p, top_k, min_p, penalty = policy.sample(
        [
            ask("add", temperature=0.0),
            ask("add", top_p=0.9, seed=1),
            ask("add", top_k=1, seed=1),
            ask("add", min_p=0.999, seed=1),
            ask("add", repetition_penalty=1.3, seed=1),
        ]
    )
    assert not any(completion.exact for completion in (greedy, top_p, top_k, min_p, penalty))
    assert greedy.token_ids == top_k.token_ids == min_p.token_ids
    assert set(top_k.logprobs) == {0.0}


def test_a_repetition_penalty_is_that_of_transformers(policy, tiny_model):
    from transformers import AutoModelForCausalLM

    ours = policy.sample([ask("add add add", temperature=0.0, repetition_penalty=1.5)])[0]
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    theirs = model.generate(
        torch.tensor([ours.prompt_token_ids]),
        max_new_tokens=24,
        do_sample=False,
        repetition_penalty=1.5,
    )[0, len(ours.prompt_token_ids) :].tolist()
    assert list(ours.token_ids) == theirs[: len(ours.token_ids)]


def test_greedy_is_what_generate_says(policy, tiny_model):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    for completion in policy.sample([ask(text, temperature=0.0) for text in PROMPTS]):
        theirs = model.generate(
            torch.tensor([completion.prompt_token_ids]), max_new_tokens=24, do_sample=False
        )
        assert list(completion.token_ids) == theirs[0, len(completion.prompt_token_ids) :].tolist()


def test_an_adapter_by_request_changes_the_answer_and_only_there(policy, tiny_model, tiny_adapter):
    plain = ask("add", seed=5)
    adapted = plain.with_(adapter=str(tiny_adapter))
    own = TransformersPolicy(str(tiny_model), device="cpu")
    first, second, third = own.sample([plain, adapted, plain])
    assert first.token_ids == third.token_ids == policy.sample([plain])[0].token_ids
    assert second.token_ids != first.token_ids
    assert (first.adapter_revision, first.revision) == (None, second.revision)
    assert second.adapter_revision
    always = TransformersPolicy(str(tiny_model), adapter=str(tiny_adapter), device="cpu")
    assert always.sample([plain])[0].logprobs == pytest.approx(second.logprobs, abs=1e-5)


def test_fingerprints_survive_saving_and_follow_the_weights(policy, tiny_model, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(tiny_model).save_pretrained(tmp_path / "copy")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "copy")
    first = policy.sample([ask("add", seed=1)])[0]
    copy = TransformersPolicy(str(tmp_path / "copy"), device="cpu").sample([ask("add", seed=1)])[0]
    other = TransformersPolicy(
        str(save_tiny_model(tmp_path / "other", seed=9)), device="cpu"
    ).sample([ask("add", seed=1)])[0]
    assert (copy.revision, copy.tokenizer_hash, copy.chat_template_hash) == (
        first.revision,
        first.tokenizer_hash,
        first.chat_template_hash,
    )
    assert other.revision != first.revision
    assert other.tokenizer_hash == first.tokenizer_hash


def test_a_prompt_that_does_not_fit_is_refused_and_a_long_answer_is_cut_to_the_context(policy):
    with pytest.raises(PolicyRefused, match="shorten it") as refusal:
        policy.sample([ask("mask " * CONTEXT)])
    assert refusal.value.trouble is Trouble.CONTEXT
    completion = policy.sample([ask("mask " * 160, seed=1, max_tokens=10_000, temperature=0.0)])[0]
    assert completion.usage.prompt_tokens + completion.usage.completion_tokens <= CONTEXT


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "no model at"),
        (lambda path: path.mkdir(), "no config.json"),
        (lambda path: (path.mkdir(), (path / "config.json").write_text("{")), "not JSON"),
        (lambda path: (path.mkdir(), (path / "config.json").write_text("{}")), "no model_type"),
    ],
)
def test_what_is_not_a_model_is_refused_before_anything_is_loaded(tmp_path, make, says):
    make(tmp_path / "model")
    with pytest.raises(PolicyRefused, match=says) as refusal:
        TransformersPolicy(str(tmp_path / "model"))
    assert "\n" not in str(refusal.value)


def test_a_model_without_its_weights_is_refused_in_one_line(tmp_path, tiny_model):
    (tmp_path / "config.json").write_text((tiny_model / "config.json").read_text())
    with pytest.raises(PolicyRefused, match="cannot load") as refusal:
        TransformersPolicy(str(tmp_path), device="cpu").sample([ask("add")])
    assert refusal.value.trouble is Trouble.MODEL
    assert "\n" not in str(refusal.value)


def test_an_adapter_that_is_none_or_does_not_fit_is_refused(tmp_path, tiny_model, tiny_adapter):
    with pytest.raises(PolicyRefused, match="not a LoRA adapter"):
        TransformersPolicy(str(tiny_model), adapter=str(tmp_path))
    with pytest.raises(PolicyRefused, match="give it as --adapter"):
        TransformersPolicy(str(tiny_adapter))
    config = json.loads((tiny_adapter / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "r": 7}))
    (tmp_path / "adapter_model.safetensors").write_bytes(
        (tiny_adapter / "adapter_model.safetensors").read_bytes()
    )
    with pytest.raises(PolicyRefused, match="does not fit"):
        TransformersPolicy(str(tiny_model), adapter=str(tmp_path), device="cpu").sample(
            [ask("add")]
        )


def test_the_embedded_policy_is_compact_and_refuses_where_no_weights_ship(tmp_path, tiny_model):
    with pytest.raises(PolicyRefused, match="no embedded policy ships"):
        open_embedded(tmp_path)
    policy = open_embedded(tiny_model, device="cpu")
    assert (policy.name, policy.prompt_form) == ("embedded", PromptForm.COMPACT)
    assert policy.sample([ask("add", seed=1)])[0].policy == "embedded"


def test_a_model_that_this_project_trained_says_in_which_form_it_is_asked(tmp_path):
    folder = save_tiny_model(tmp_path / "own")
    assert TransformersPolicy(str(folder)).prompt_form is PromptForm.CHAT
    (folder / CARD_FILE).write_text('{"prompt_form": "compact"}')
    assert TransformersPolicy(str(folder)).prompt_form is PromptForm.COMPACT


@pytest.mark.gpu
def test_the_captured_graph_draws_what_the_growing_cache_draws(tiny_model):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    requests = [ask(text, seed=place, max_tokens=64) for place, text in enumerate(PROMPTS)]
    drawn = [
        TransformersPolicy(str(tiny_model), device="cuda", dtype="float32", cache=cache).sample(
            requests
        )
        for cache in (CacheKind.GROWING, CacheKind.STATIC)
    ]
    for growing, static in zip(*drawn, strict=True):
        assert growing.token_ids == static.token_ids
        assert growing.logprobs == pytest.approx(static.logprobs, abs=1e-3)


@pytest.mark.gpu
def test_a_graph_is_captured_while_other_threads_ask_for_memory(tiny_model):
    """As `agent batch --device cuda:0` does, whose threads read the device beside the policy's: it once ended with
    `operation failed during capture`.
    """
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    over = threading.Event()

    def busy() -> None:
        while not over.is_set():
            torch.empty(1 << 22, device="cuda").fill_(1.0).sum().item()
            torch.cuda.empty_cache()

    beside = threading.Thread(target=busy)
    beside.start()
    try:
        policy = TransformersPolicy(str(tiny_model), device="cuda", cache=CacheKind.STATIC)
        completions = policy.sample(
            [ask(text, seed=place, max_tokens=32) for place, text in enumerate(PROMPTS)]
        )
    finally:
        over.set()
        beside.join()
    assert all(completion.token_ids for completion in completions)
