"""A live policy in a process of its own: the same answers, the same weights, and nobody waits for one that has
ended.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from kernelwright.policies.base import (  # noqa: E402
    Message,
    PolicyRefused,
    PolicyUnavailable,
    Request,
    Role,
    Sampling,
    Trouble,
)
from kernelwright.policies.local.in_process_policy import InProcessPolicy, fingerprint  # noqa: E402
from kernelwright.policies.local.process_policy import ProcessPolicy  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="module")
def apart(tiny):
    policy = ProcessPolicy(tiny, device="cpu", places=4, continuous=True)
    yield policy
    policy.close()


def request(word, seed, tokens=24, **more):
    sampling = Sampling(max_tokens=tokens, seed=seed, **more)
    return Request(messages=(Message(role=Role.USER, content=word),), sampling=sampling)


@pytest.mark.slow
def test_many_threads_get_what_a_policy_in_this_process_says(tiny, apart):
    asked = [request("softmax " * (1 + n % 3), n, 3 + n % 20) for n in range(24)]
    here = InProcessPolicy(tiny, device="cpu", places=4, continuous=True)
    assert (apart.name, apart.prompt_form) == (here.name, here.prompt_form)
    answers, before = {}, apart.drawn[0]
    threads = [
        threading.Thread(
            target=lambda n=n: answers.update({n: apart.sample(asked[2 * n : 2 * n + 2])})
        )
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
    found = [answer for n in range(12) for answer in answers[n]]
    wanted = here.sample(asked)
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-5)
    bare = {"latency", "logprobs"}
    assert [one.model_dump(exclude=bare) for one in found] == [
        one.model_dump(exclude=bare) for one in wanted
    ]
    assert apart.drawn[0] - before == sum(len(one.token_ids) for one in found)


@pytest.mark.slow
def test_weights_travel_and_those_that_do_not_fit_are_refused(tiny, tmp_path):
    policy = ProcessPolicy(tiny, device="cpu", places=4)
    before = policy.sample([request("add", 1)])[0]
    other = transformers.AutoModelForCausalLM.from_pretrained(
        save_tiny_model(tmp_path / "other", seed=7)
    )
    with pytest.raises(PolicyRefused, match="do not fit"):
        policy.update({"model.embed_tokens.weight": torch.zeros(3, 3)})
    revision = policy.update(other.state_dict())
    after = policy.sample([request("add", 1)])[0]
    policy.close()
    assert after.revision == revision == fingerprint(other.state_dict()) != before.revision
    [wanted] = InProcessPolicy(str(tmp_path / "other"), device="cpu").sample([request("add", 1)])
    assert after.token_ids == wanted.token_ids != before.token_ids


def test_one_that_cannot_be_answered_takes_no_other_with_it(apart):
    with pytest.raises(PolicyRefused) as caught:
        apart.sample([request("add", 1), request("long " * 5000, 2), request("add", 3)])
    assert caught.value.trouble is Trouble.CONTEXT
    assert sorted(caught.value.finished) == [0, 2]


def test_a_model_that_is_not_there_is_refused_as_it_would_be_here(tmp_path):
    with pytest.raises(PolicyRefused) as caught:
        ProcessPolicy(str(tmp_path / "nothing"), device="cpu")
    assert caught.value.trouble is Trouble.MODEL


@pytest.mark.slow
def test_whoever_waits_is_told_when_the_process_has_ended(tiny):
    policy = ProcessPolicy(tiny, device="cpu", places=4, continuous=True)
    told = []

    def ask():
        try:
            policy.sample([request("add", 1, 50_000)])
        except PolicyUnavailable as error:
            told.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    os.kill(policy._process.pid, signal.SIGKILL)
    thread.join(500)
    assert not thread.is_alive()
    assert len(told) == 1
    assert "has ended" in told[0]
    with pytest.raises(PolicyUnavailable, match="has ended"):
        policy.sample([request("add", 1)])
    policy.close()


@pytest.mark.slow
def test_who_waits_leaves_when_it_is_told_to(tmp_path):
    """Greedily the tiny model never ends by itself."""
    policy, ended = (
        ProcessPolicy(
            str(save_tiny_model(tmp_path / "long", context=8192)),
            device="cpu",
            places=4,
            continuous=True,
        ),
        [],
    )

    def ask():
        with pytest.raises(KeyboardInterrupt):
            policy.sample([request("add", n, 5_000, temperature=0.0) for n in range(6)])
        ended.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    while not policy._waiting:
        time.sleep(0.01)
    policy.stop_answering()
    thread.join(500)
    policy.close()
    assert ended
