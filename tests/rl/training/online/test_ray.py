"""Online training whose rollouts are sampled and judged on a real Ray cluster of two nodes on loopback."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time

import psutil
import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here: pip install kernelwright[ray]")
torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]

from kernelwright.rl.training.online.training import train_online  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402
from tests.rl.training.online.test_online import options  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    """127.0.0.2 and 127.0.0.3: Ray replaces 127.0.0.1 by the machine's own address, and nothing here listens there."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", **node})
    found.lost = found.add_node(node_ip_address="127.0.0.3", **node)
    yield found
    ray.shutdown()
    found.shutdown()


def actors(kind):
    """Processes of that class on this test's cluster."""
    own = psutil.Process().children(recursive=True)
    return [one for one in own if f"ray::{kind}" in " ".join(one.cmdline())]


def kill(kind):
    """Gives how many there were."""
    found = actors(kind)
    for one in found:
        one.kill()
    return len(found)


def test_sampled_and_judged_on_a_cluster_a_training_is_the_same(cluster, tmp_path):
    torch.set_num_threads(1)
    novice, problems = save_novice(tmp_path / "novice"), str(write_problems(tmp_path / "toys"))
    ways = {}
    for name, more in (("here", {}), ("ray", {"ray": cluster.address, "rollout_actors": 2})):
        lines, said, samplers = [], [], []

        def watch(step, of, figures, lines=lines, samplers=samplers):
            lines.append(figures)
            samplers.append(len(actors("PolicyActor")))

        asked = options(novice, problems, tmp_path / name / "better", max_steps=2, **more)
        train_online(asked, say=said.append, watch=watch)
        ways[name] = [
            (line["reward"], line["pass_at_1"], line["completion_length"]) for line in lines
        ]
        assert (tmp_path / name / "better" / "model.safetensors").is_file()
        assert any("Ray cluster" in line for line in said) == (name == "ray")
        assert set(samplers) == {2 if name == "ray" else 0}
    # A mean's last bit depends on which trajectory was begun first.
    assert ways["ray"][0] == pytest.approx(ways["here"][0], rel=1e-12)
    assert ways["ray"][1] == pytest.approx(ways["here"][1], rel=0.5)


def judged(database):
    """Verdicts so far."""
    if not database.exists():
        return 0
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as plain:
        try:
            return plain.execute("SELECT count(*) FROM verdict").fetchone()[0]
        except sqlite3.OperationalError:  # no table yet
            return 0


def test_as_a_user_types_it_samplers_judges_and_a_node_may_be_lost_and_it_ends_with_every_verdict(
    cluster, tmp_path
):
    novice, problems = save_novice(tmp_path / "novice"), write_problems(tmp_path / "toys")
    words = [
        "train",
        "--online",
        "--problems",
        str(problems),
        "--policy",
        f"transformers:{novice}",
        "--ray",
    ]
    words += [
        cluster.address,
        "--rollout-actors",
        "2",
        "--out",
        "better",
        "--db",
        "runs.db",
        "--max-steps",
        "3",
    ]
    words += [
        "--problems-per-step",
        "3",
        "--group",
        "8",
        "--lag",
        "0",
        "--reply-tokens",
        "40",
        "--json",
    ]
    log, database = tmp_path / "said", tmp_path / "runs.db"
    with log.open("w") as said:
        command = [sys.executable, "-m", "kernelwright.rl", *words]
        training = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=said, text=True
        )
    harm = {5: lambda: kill("PolicyActor"), 20: lambda: kill("JudgeActor"),
            45: lambda: bool(cluster.remove_node(cluster.lost, allow_graceful=False)) or 1}  # fmt: skip
    done = []
    ends = time.monotonic() + 500
    while training.poll() is None and time.monotonic() < ends:
        if harm and judged(database) >= min(harm):
            done.append(harm.pop(min(harm))())
        time.sleep(0.05)
    assert training.poll() == 0, log.read_text()[-2000:]
    assert len(done) == 3
    assert all(done), "somebody was there to be killed, each time"
    told = json.loads(training.stdout.read())
    assert told["steps"] == 3
    assert (tmp_path / "better" / "model.safetensors").is_file()
    with sqlite3.connect(database) as plain:
        whole = "SELECT count(*), sum(finished IS NOT NULL), sum(stop_reason = 'infrastructure') FROM trajectory"
        assert plain.execute(whole).fetchone() == (72, 72, 0)
        assert plain.execute(
            "SELECT count(*) FROM candidate WHERE verdict_id IS NULL"
        ).fetchone() == (0,)
