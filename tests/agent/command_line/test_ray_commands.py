"""`agent batch --ray` and `agent serve --ray` as a user types them, on a real cluster of two nodes on loopback."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here: pip install kernelwright[ray]")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]

QUIET = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
SECONDS = 400


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = Cluster(initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", **QUIET})
    found.add_node(node_ip_address="127.0.0.3", **QUIET)
    yield found.address
    found.shutdown()


@pytest.fixture(scope="module")
def right(request):
    return request.config.rootpath / "tests" / "kernels" / "good" / "fused_silu.py"


def agent(folder, *words):
    command = [sys.executable, "-m", "kernelwright.agent", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)


def test_a_batch_is_judged_on_the_cluster_and_stored_here(cluster, right, tmp_path):
    asked = (
        "batch",
        "--problems",
        "fused_silu",
        "--samples",
        "3",
        "--policy",
        f"scripted:{right}",
        "--draft",
        "policy",
    )
    done = agent(tmp_path, *asked, "--ray", cluster, "--db", "runs.db", "--json")
    assert done.returncode == 0, done.stderr
    standing = json.loads(done.stdout)["standing"]
    assert (standing["done"], standing["correct"]) == (3, 3)
    with sqlite3.connect(tmp_path / "runs.db") as store:
        assert store.execute("SELECT count(*) FROM trajectory").fetchone() == (3,)


def test_a_server_judges_on_both_nodes_for_agent_check(cluster, right, tmp_path):
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "serve",
        "--no-token",
        "--ray",
        cluster,
        "--port",
        "0",
    ]
    log = tmp_path / "serve.log"
    with log.open("w") as said:
        server = subprocess.Popen(command, cwd=tmp_path, stderr=said)
    try:
        ends = time.monotonic() + SECONDS
        while "http://" not in (told := log.read_text()):
            assert time.monotonic() < ends, told
            assert server.poll() is None, told
            time.sleep(0.1)
        address = told[told.index("http://") :].split()[0]
        checked = agent(
            tmp_path, "check", str(right), "--problem", "fused_silu", "--server", address, "--json"
        )
        assert (checked.returncode, json.loads(checked.stdout)["correct"]) == (0, True)
        import httpx2

        judges = httpx2.get(f"{address}/v1/health", verify=False).json()["devices"]
        assert {name.partition("-")[0] for name in judges} == {"127.0.0.2", "127.0.0.3"}
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
