"""Online training whose rollouts are sampled and judged on a real Ray cluster of two nodes on loopback."""

from __future__ import annotations

import os

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here: pip install kernelwright[ray]")
torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = pytest.mark.slow

from kernelwright.rl.training.online.training import train_online  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402
from tests.rl.test_online import options  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    """127.0.0.2 and 127.0.0.3: Ray replaces 127.0.0.1 by the machine's own address, and nothing here listens there."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", **node})
    found.add_node(node_ip_address="127.0.0.3", **node)
    yield found
    ray.shutdown()
    found.shutdown()


def test_sampled_and_judged_on_a_cluster_a_training_is_the_same(cluster, tmp_path):
    torch.set_num_threads(1)
    novice, problems = save_novice(tmp_path / "novice"), str(write_problems(tmp_path / "toys"))
    ways = {}
    for name, more in (("here", {}), ("ray", {"ray": cluster.address, "rollout_actors": 2})):
        lines, said = [], []
        asked = options(novice, problems, tmp_path / name / "better", max_steps=2, **more)
        train_online(asked, say=said.append, watch=lambda step, of, figures, lines=lines: lines.append(figures))
        ways[name] = [(line["reward"], line["pass_at_1"], line["completion_length"]) for line in lines]
        assert (tmp_path / name / "better" / "model.safetensors").is_file()
        assert any("Ray cluster" in line for line in said) == (name == "ray")
    # A mean's last bit depends on which trajectory was begun first.
    assert ways["ray"][0] == pytest.approx(ways["here"][0], rel=1e-12)
    assert ways["ray"][1] == pytest.approx(ways["here"][1], rel=0.5)
