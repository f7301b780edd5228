"""A live policy in actors of a real Ray cluster on loopback: the same answers, the same weights, also after a kill."""

from __future__ import annotations

import os
import threading
import time

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here: pip install kernelwright[ray]")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]

from kernelwright.policies.base import Message, PolicyRefused, Request, Role, Sampling  # noqa: E402
from kernelwright.policies.local.in_process_policy import InProcessPolicy, fingerprint  # noqa: E402
from kernelwright.policies.local.ray_policy import RayPolicy  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

QUIET = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = Cluster(initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", **QUIET})
    ray.init(address=found.address, log_to_driver=False, _node_ip_address="127.0.0.2")
    yield found
    ray.shutdown()
    found.shutdown()


def request(word, seed, tokens=12):
    messages = (Message(role=Role.USER, content=word),)
    return Request(messages=messages, sampling=Sampling(max_tokens=tokens, seed=seed))


def test_actors_answer_as_a_policy_here_does_and_one_that_is_killed_comes_back_with_the_last_weights(
    cluster, tmp_path
):
    tiny = str(save_tiny_model(tmp_path / "model"))
    other = transformers.AutoModelForCausalLM.from_pretrained(
        save_tiny_model(tmp_path / "other", seed=7)
    )
    asked = [request("softmax " * (1 + n % 3), n) for n in range(8)]
    policy = RayPolicy(tiny, actors=2, at_once=8, device="cpu", places=4)
    try:
        here = InProcessPolicy(tiny, device="cpu", places=4)
        assert (policy.name, policy.prompt_form) == (here.name, here.prompt_form)
        found = [policy.sample([one])[0].token_ids for one in asked]
        assert found == [one.token_ids for one in here.sample(asked)]
        assert policy.drawn[0] == sum(map(len, found))
        with pytest.raises(PolicyRefused, match="do not fit"):
            policy.update({"model.embed_tokens.weight": torch.zeros(3, 3)})
        revision = policy.update(other.state_dict())
        assert revision == fingerprint(other.state_dict())
        before = [policy.sample([one])[0] for one in asked]
        for actor in policy._actors:
            ray.kill(actor)
        after = [policy.sample([one])[0] for one in asked]
        assert {one.revision for one in after} == {revision}
        assert [one.token_ids for one in after] == [one.token_ids for one in before]
    finally:
        policy.close()


def test_whoever_waits_for_an_actor_is_let_go(cluster, tmp_path):
    policy = RayPolicy(str(save_tiny_model(tmp_path / "model")), at_once=2, device="cpu")
    policy.sample([request("add", 1, 2)])
    ended = []

    def ask():
        try:
            policy.sample([request("add", 1, 400) for _ in range(200)])
        except KeyboardInterrupt:
            ended.append("let go")

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.2)
    policy.stop_answering()
    asking.join(120)
    policy.close()
    assert ended == ["let go"]
