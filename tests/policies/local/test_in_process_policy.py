"""The running batch: the same answers as the plain one, whoever asks beside it; weights that move while it is used."""

from __future__ import annotations

import threading
import time

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kernelwright.policies.base import Message, PolicyRefused, Request, Role, Sampling, Trouble  # noqa: E402
from kernelwright.policies.local.in_process_policy import (  # noqa: E402
    BURSTS_BEFORE_REFILL,
    InProcessPolicy,
    QueuedRequest,
    fingerprint,
)
from kernelwright.policies.local.transformers_policy import TransformersPolicy  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

WORDS = (
    "softmax",
    "add",
    "a longer prompt with many more words in it than the others have",
    "x",
    "store and load",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny") / "model"))


def request(word, seed, tokens=24, temperature=1.0, **more):
    sampling = Sampling(max_tokens=tokens, seed=seed, temperature=temperature, **more)
    return Request(messages=(Message(role=Role.USER, content=word),), sampling=sampling)


def requests(count=23):
    return [
        request(
            WORDS[n % len(WORDS)], n, tokens=3 + 5 * (n % 7), temperature=(1.0, 0.7, 0.0)[n % 3]
        )
        for n in range(count)
    ]


def test_rows_that_come_and_go_say_what_they_would_say_alone(tiny):
    asked = requests()
    running = InProcessPolicy(tiny, device="cpu", places=4, continuous=True).sample(asked)
    plain = TransformersPolicy(tiny, device="cpu").sample(asked)
    for one, other in zip(running, plain, strict=True):
        assert one.token_ids == other.token_ids
        assert one.finish == other.finish
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)
        assert one.exact == other.exact


def test_a_batch_that_has_gone_round_many_times_is_still_right(tiny):
    policy = InProcessPolicy(tiny, device="cpu", places=2, continuous=True)
    asked = [request(WORDS[n % 5], n, tokens=40) for n in range(30)]
    running = policy.sample(asked)
    assert policy._batch.steps > 2 * policy._batch.length
    plain = TransformersPolicy(tiny, device="cpu").sample(asked)
    assert [one.token_ids for one in running] == [other.token_ids for other in plain]


def test_many_threads_get_their_own_answers(tiny):
    policy, asked, answers = (
        InProcessPolicy(tiny, device="cpu", places=8, continuous=True),
        requests(40),
        {},
    )
    threads = [
        threading.Thread(target=lambda n=n: answers.update({n: policy.sample([asked[n]])[0]}))
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
    plain = TransformersPolicy(tiny, device="cpu").sample(asked)
    assert [answers[n].token_ids for n in range(40)] == [
        completion.token_ids for completion in plain
    ]


def test_what_the_batch_cannot_sample_goes_the_plain_way_beside_it(tiny):
    asked = [request("add", 1), request("add", 2, top_p=0.5), request("add", 3, stop=("e",))]
    running = InProcessPolicy(tiny, device="cpu", places=4, continuous=True).sample(asked)
    plain = TransformersPolicy(tiny, device="cpu").sample(asked)
    assert [one.token_ids for one in running] == [other.token_ids for other in plain]


def test_a_prompt_that_does_not_fit_is_refused_and_takes_no_other_with_it(tiny):
    policy = InProcessPolicy(tiny, device="cpu", places=4, continuous=True)
    with pytest.raises(PolicyRefused) as refused:
        policy.sample([request("add", 1), request("word " * 600, 2)])
    assert refused.value.trouble is Trouble.CONTEXT
    assert policy.sample([request("add", 1)])[0].token_ids


def test_a_longer_question_gets_a_longer_batch(tiny):
    policy = InProcessPolicy(tiny, device="cpu", places=4, continuous=True)
    policy.sample([request("add", 1, tokens=4)])
    short = policy._batch.length
    long = policy.sample([request("add", 2, tokens=400)])[0]
    assert policy._batch.length > short
    assert (
        long.token_ids
        == TransformersPolicy(tiny, device="cpu")
        .sample([request("add", 2, tokens=400)])[0]
        .token_ids
    )


def test_who_asks_alone_is_let_in_at_once_and_beside_many_after_a_few_bursts(tiny):
    policy = InProcessPolicy(tiny, device="cpu", places=16, continuous=True)
    first, late = (
        QueuedRequest(request("add", 1, tokens=4)),
        QueuedRequest(request("x", 2, tokens=4)),
    )
    others = [
        QueuedRequest(request("add", seed, tokens=200, temperature=0.0)) for seed in range(15)
    ]
    policy._waiting.append(first)
    policy._work()
    assert first.answered
    policy._waiting.extend(others)
    policy._work()
    policy._waiting.append(late)
    for _ in range(BURSTS_BEFORE_REFILL + 1):
        policy._work()
    assert late.answered
    assert not any(question.answered for question in others)


@pytest.mark.parametrize("continuous", [True, False])
def test_weights_move_in_place_and_the_revision_with_them(tiny, tmp_path, continuous):
    policy = InProcessPolicy(tiny, device="cpu", places=4, continuous=continuous)
    before = policy.sample([request("add", 1)])[0]
    other = transformers.AutoModelForCausalLM.from_pretrained(
        save_tiny_model(tmp_path / "other", seed=7)
    )
    revision = policy.update(other.state_dict())
    after = policy.sample([request("add", 1)])[0]
    assert after.revision == revision == fingerprint(other.state_dict()) != before.revision
    wanted = TransformersPolicy(str(tmp_path / "other"), device="cpu").sample([request("add", 1)])[
        0
    ]
    assert after.token_ids == wanted.token_ids != before.token_ids


def test_weights_of_another_shape_are_refused_and_nothing_is_changed(tiny):
    policy = InProcessPolicy(tiny, device="cpu", places=4)
    before = policy.sample([request("add", 1)])[0]
    with pytest.raises(PolicyRefused, match="do not fit"):
        policy.update({"model.embed_tokens.weight": torch.zeros(3, 3)})
    assert policy.sample([request("add", 1)])[0].token_ids == before.token_ids


@pytest.mark.gpu
def test_the_replayed_graph_says_what_the_plain_batch_says_on_a_gpu(tiny):
    asked = requests(64)
    running = InProcessPolicy(tiny, device="cuda", dtype="float32", places=16).sample(asked)
    plain = TransformersPolicy(tiny, device="cuda", dtype="float32").sample(asked)
    same = sum(one.token_ids == other.token_ids for one, other in zip(running, plain, strict=True))
    assert same >= 60  # rounding may turn a draw at the edge of two tokens
    for one, other in zip(running, plain, strict=True):
        if one.token_ids == other.token_ids:
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


@pytest.mark.parametrize("continuous", [True, False])
def test_who_waits_leaves_when_it_is_told_to_and_not_when_the_batch_is_drawn(tmp_path, continuous):
    policy, ended = (
        InProcessPolicy(
            str(save_tiny_model(tmp_path / "long", context=8192)),
            device="cpu",
            places=4,
            continuous=continuous,
        ),
        [],
    )
    endless = [
        request("add", n, tokens=5_000, temperature=0.0) for n in range(12)
    ]  # greedily it never ends by itself

    def ask(own):
        with pytest.raises(KeyboardInterrupt):
            policy.sample(own)
        ended.append(own)

    threads = [threading.Thread(target=ask, args=(endless[n : n + 3],)) for n in range(0, 12, 3)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    policy.stop_answering()
    for thread in threads:
        thread.join(500)
    assert len(ended) == 4
    assert (policy._batch is not None) == continuous
