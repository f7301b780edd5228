"""The fast way of small models on a CPU gives what transformers gives: the same ids, the same log-probs, the same
fingerprints.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelwright.policies.base import Message, PolicyRefused, Request, Role, Sampling
from kernelwright.policies.local.decoding import SequenceInDecoding
from kernelwright.policies.local.lookahead import NgramTable, draw_with_lookahead, propose_tokens
from kernelwright.policies.local.quantised_weights import write_int8
from kernelwright.policies.local.small_model import KeyValueCache, is_small, load_small
from kernelwright.policies.local.transformers_policy import TransformersPolicy
from kernelwright.policies.small import small_policy
from kernelwright.policies.small.small_policy import SmallPolicy, open_local
from tests.tiny_model import CONTEXT, TEXTS, save_tiny_adapter, save_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("small") / "tiny")


def request(text, **sampling):
    return Request(
        messages=(Message(role=Role.USER, content=text),),
        sampling=Sampling(**{"max_tokens": 40, **sampling}),
    )


REQUESTS = [
    request(TEXTS[0], temperature=1.0, seed=1),
    request(TEXTS[1], temperature=0.7, seed=2),
    request(TEXTS[1], temperature=0.0, seed=3, max_tokens=60),
    request(TEXTS[2] * 3, temperature=0.2, seed=4),
    request(TEXTS[0], temperature=1.3, seed=5, max_tokens=1),
]


def test_it_says_what_transformers_says_id_for_id(tiny):
    fast = SmallPolicy(str(tiny), device="cpu").sample(REQUESTS)
    plain = TransformersPolicy(str(tiny), device="cpu").sample(REQUESTS)
    for one, other in zip(fast, plain, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        same = {
            "text",
            "prompt_token_ids",
            "finish",
            "exact",
            "revision",
            "tokenizer_hash",
            "chat_template_hash",
            "seed",
            "usage",
        }
        assert one.model_dump(include=same) == other.model_dump(include=same)


def test_no_guess_however_wrong_changes_what_is_drawn(tiny):
    model = load_small(tiny)
    dice = random.Random(0)

    def drawn(common, most):
        rows = [
            SequenceInDecoding(
                prompt=[5, 6, 7, 5, 6], sampling=Sampling(temperature=0.5), seed=seed, limit=50
            )
            for seed in range(4)
        ]
        steps = draw_with_lookahead(model, rows, frozenset(), str, common, most)
        return [row.token_ids for row in rows], [row.logprobs for row in rows], steps

    plain, logprobs, steps = drawn(NgramTable(), 0)
    assert steps == 50
    lies = NgramTable([dice.randrange(model.vocabulary) for _ in range(20_000)])
    assert drawn(lies, 8)[0] == plain
    truth = NgramTable()
    for ids in plain:
        truth.remember([5, 6, *ids])
    again, near, fewer = drawn(truth, 8)
    assert again == plain
    assert [p for row in near for p in row] == pytest.approx(
        [p for row in logprobs for p in row], abs=1e-4
    )
    assert fewer < steps


def test_what_follows_is_looked_up_by_the_longest_key():
    own = NgramTable([1, 2, 3, 4, 9, 2, 3, 5])
    assert propose_tokens([1, 2, 3], own, NgramTable(), 3) == [4, 9, 2]
    assert propose_tokens([7, 2, 3], own, NgramTable(), 1) == [5]
    assert propose_tokens([7, 8], own, NgramTable([7, 8, 6]), 4) == [6]


def test_rows_at_their_own_pace_read_like_rows_alone(tiny):
    import torch

    model = load_small(tiny)
    with torch.inference_mode():
        alone = KeyValueCache(model, 1, 16)
        whole = model.forward(torch.arange(10, 20)[None], torch.tensor([0]), alone)
        cache = KeyValueCache(model, 2, 16)
        model.forward(torch.tensor([[10, 11, 12, 13], [10, 11, 0, 0]]), torch.tensor([0, 0]), cache)
        both = model.forward(torch.tensor([[14, 15], [12, 13]]), torch.tensor([4, 2]), cache)
    assert torch.allclose(both[0], whole[0, 4:6], atol=1e-4)
    assert torch.allclose(both[1], whole[0, 2:4], atol=1e-4)


def test_what_it_cannot_do_transformers_does(tiny, tmp_path):
    policy = open_local(str(tiny), device="cpu")
    assert isinstance(policy, SmallPolicy)
    cut = request("x", top_p=0.5, seed=1)
    assert (
        policy.sample([cut])[0].token_ids
        == TransformersPolicy(str(tiny), device="cpu").sample([cut])[0].token_ids
    )
    adapter = save_tiny_adapter(tiny, tmp_path / "adapter")
    asked = request("x", seed=1).with_(adapter=str(adapter))
    assert policy.sample([asked])[0].adapter_revision
    policy.close()


def test_it_is_closed_without_waiting_for_whoever_samples_and_can_be_asked_again(tiny, monkeypatch):
    """A second Ctrl-C leaves at once, while a thread still samples."""
    policy = SmallPolicy(str(tiny), device="cpu")
    begun, closed = threading.Event(), threading.Event()
    draw = small_policy.draw_with_lookahead

    def draw_later(*arguments, **options):
        begun.set()
        assert closed.wait(60)
        draw(*arguments, **options)

    monkeypatch.setattr(small_policy, "draw_with_lookahead", draw_later)
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(policy.sample, REQUESTS[:1])
        assert begun.wait(60)
        policy.close()
        closed.set()
        [first] = answers.result()
    assert policy._small is None
    assert policy.sample(REQUESTS[:1])[0].token_ids == first.token_ids


@pytest.mark.parametrize("kind", [SmallPolicy, TransformersPolicy])
def test_an_answer_under_way_is_given_up_within_a_step(tiny, monkeypatch, kind):
    policy = kind(str(tiny), device="cpu")
    steps, drawn = [], SequenceInDecoding.take

    def take(row, *token):
        steps.append(row)
        policy.stop_answering()
        return drawn(row, *token)

    monkeypatch.setattr(SequenceInDecoding, "take", take)
    with pytest.raises(KeyboardInterrupt):
        policy.sample([request(TEXTS[0], temperature=1.0, seed=1, max_tokens=60)])
    assert 1 <= len(steps) < 60
    with pytest.raises(KeyboardInterrupt):
        policy.sample(REQUESTS[:1])


def test_eight_bit_weights_open_without_transformers(tiny, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_int8(AutoModelForCausalLM.from_pretrained(tiny), tmp_path)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path)
    assert (
        len(SmallPolicy(str(tmp_path), device="cpu").sample([request("x", seed=1)])[0].token_ids)
        > 0
    )


def test_a_prompt_too_long_and_a_folder_half_there_are_refused(tiny, tmp_path):
    with pytest.raises(PolicyRefused, match="shorten it"):
        SmallPolicy(str(tiny), device="cpu").sample([request("word " * CONTEXT)])
    (tmp_path / "config.json").write_text((tiny / "config.json").read_text())
    with pytest.raises(PolicyRefused, match="cannot load"):
        SmallPolicy(str(tmp_path), device="cpu").sample([request("x")])
    assert not is_small(tmp_path / "nothing")
