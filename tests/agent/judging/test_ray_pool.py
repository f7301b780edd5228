"""Judges on a real Ray cluster of two nodes on loopback."""

import os
import signal
import time

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here: pip install kernelwright[ray]")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]

from kernelwright.agent.judging.evaluating import PoolEvaluator  # noqa: E402
from kernelwright.agent.judging.pool import DeviceKind, JudgeLost, VerdictCancelled  # noqa: E402
from kernelwright.agent.judging.ray_pool import RayPool  # noqa: E402
from kernelwright.agent.problems.finding import find_by_name  # noqa: E402
from kernelwright.errors import InputError  # noqa: E402
from kernelwright.tools.options import Options  # noqa: E402
from kernelwright.tools.problem import Problem, ProblemError  # noqa: E402

OPTIONS = Options(sizes=1, seed=1)
QUIET = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    """127.0.0.2 and 127.0.0.3: Ray replaces 127.0.0.1 by the machine's own address, and nothing here listens there."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = Cluster(initialize_head=True, head_node_args={"node_ip_address": "127.0.0.2", **QUIET})
    found.lost = found.add_node(node_ip_address="127.0.0.3", **QUIET)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture(scope="module")
def pool(cluster):
    found = RayPool(cluster.address)
    yield found
    found.close()


@pytest.fixture(scope="module")
def right(request):
    return (request.config.rootpath / "tests" / "kernels" / "good" / "fused_silu.py").read_text()


def wait_for(what, seconds=180):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_each_cpu_slot_of_each_node_has_a_judge(pool):
    names = [judge.name.partition("-")[0] for judge in pool.judges()]
    assert sorted(names) == ["127.0.0.2", "127.0.0.3"]
    assert (pool.devices, pool.capacity(DeviceKind.CPU)) == ((DeviceKind.CPU,), 2)
    assert pool.environment(DeviceKind.CPU).torch
    assert pool.target(DeviceKind.CPU) == "sm_90"


def test_verdicts_are_made_on_both_nodes_and_are_the_evaluator_s(pool, right):
    wait_for(lambda: len(pool.process_ids) == 2)
    judges, steps = [], []
    asked = [right + f"\nNUMBER = {k}\n" for k in range(4)]
    futures = [
        pool.submit(find_by_name("fused_silu"), one, OPTIONS, steps.append, None, judges.append)
        for one in asked
    ]
    assert all(future.result(500).correct for future in futures)
    assert len(set(judges)) == 2
    assert {"tracing", "compiling for sm_90"} & set(steps), "what a verdict that takes longer is at"
    with pytest.raises(ProblemError, match="lacks"):
        pool.submit(Problem(name="none", source="x = 1"), right).result(500)
    slow = right + "\nimport time\ntime.sleep(5)\n"
    stopped = pool.submit(
        find_by_name("fused_silu"), slow, OPTIONS, lambda doing: pool.cancel(stopped)
    )
    with pytest.raises(VerdictCancelled):
        stopped.result(500)


def test_a_killed_worker_loses_its_verdict_once_and_the_evaluator_s_second_attempt_is_on_record(
    pool, right
):
    wait_for(lambda: len(pool.process_ids) == 2)
    judges, killed = [], []

    def kill(doing):
        if doing == "tracing" and not killed:
            killed.append(pool.process_ids[judges[0]])
            os.kill(killed[0], signal.SIGKILL)

    slow = right + "\nimport time\ntime.sleep(5)\n"
    future = pool.submit(find_by_name("fused_silu"), slow, OPTIONS, kill, None, judges.append)
    with pytest.raises(JudgeLost, match="died"):
        future.result(500)
    assert len(judges) == 1, "Ray repeats nothing by itself"
    wait_for(lambda: len(pool.process_ids) == 2)
    assert killed[0] not in pool.process_ids.values()
    killed.clear()
    judges.clear()

    def kill_any(doing):
        if doing == "tracing" and not killed:
            killed.append(
                [os.kill(process, signal.SIGKILL) for process in pool.process_ids.values()]
            )

    report = PoolEvaluator(pool).evaluate(find_by_name("fused_silu"), slow, OPTIONS, kill_any)
    assert [
        warning
        for warning in report.warnings
        if warning.startswith("attempt 1 was lost: the judge 127.0.0.")
    ]


def test_a_lost_node_s_verdict_is_lost_and_the_other_node_goes_on(cluster, pool, right):
    wait_for(lambda: len(pool.process_ids) == 2)
    begun, judges = [], {}
    slow = [right + f"\nimport time\ntime.sleep(8)\nNODE = {k}\n" for k in range(2)]
    futures = [
        pool.submit(
            find_by_name("fused_silu"),
            one,
            OPTIONS,
            begun.append,
            None,
            lambda name, k=k: judges.update({k: name}),
        )
        for k, one in enumerate(slow)
    ]
    wait_for(lambda: begun.count("tracing") == 2)
    cluster.remove_node(cluster.lost, allow_graceful=False)
    [gone] = [k for k, name in judges.items() if name.startswith("127.0.0.3")]
    with pytest.raises(JudgeLost):
        futures[gone].result(500)
    assert futures[1 - gone].result(500).rung != "source"
    wait_for(lambda: [judge.name[:9] for judge in pool.judges()] == ["127.0.0.2"])
    assert pool.submit(find_by_name("fused_silu"), right, OPTIONS).result(500).correct


def test_an_address_without_a_cluster_is_an_input_error_at_once():
    began = time.monotonic()
    with pytest.raises(InputError, match="there is no cluster"):
        RayPool("127.0.0.9:1")
    assert time.monotonic() - began < 10
