"""Tracing and compiling as tasks on a real Ray cluster: two nodes on loopback, cores for tasks on one alone."""

import os
import signal
import time

import psutil
import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed here: pip install kernelwright[ray]")
pytestmark = [pytest.mark.slow, pytest.mark.nightly]

from kernelwright.agent.judging.evaluating import PoolEvaluator  # noqa: E402
from kernelwright.agent.judging.pool import DeviceKind, JudgeLost, VerdictCancelled  # noqa: E402
from kernelwright.agent.judging.ray_front import (  # noqa: E402
    STEP_ON_THE_CLUSTER,
    FrontRequest,
    FrontResult,
    trace_and_compile,
)
from kernelwright.agent.judging.ray_pool import RayPool  # noqa: E402
from kernelwright.agent.problems.finding import find_by_name  # noqa: E402
from kernelwright.tools.evaluation.pipeline import Evaluator  # noqa: E402
from kernelwright.tools.options import Options  # noqa: E402
from kernelwright.tools.sizing.selection import select_sizes  # noqa: E402

OPTIONS = Options(sizes=1, seed=1)
QUIET = {"object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    """127.0.0.2 has a core for its judge and no other, 127.0.0.3 one for its judge and two that are free."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    found = Cluster(
        initialize_head=True,
        head_node_args={"node_ip_address": "127.0.0.2", "num_cpus": 1, **QUIET},
    )
    found.add_node(node_ip_address="127.0.0.3", num_cpus=3, **QUIET)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture(scope="module")
def pool(cluster):
    found = RayPool(cluster.address, workers=1, tasks=True)
    deadline = time.monotonic() + 180
    while len(found.process_ids) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield found
    found.close()


@pytest.fixture(scope="module")
def right(request):
    return (request.config.rootpath / "tests" / "kernels" / "good" / "fused_silu.py").read_text()


def tasks():
    """Ray's worker processes that trace and compile now."""
    return [
        one
        for one in psutil.process_iter(["cmdline"])
        if "ray::trace_and_compile" in (one.info["cmdline"] or ())
    ]


def asked_of_a_task(problem, source):
    selection = select_sizes(problem, source, "cpu", 1, 1)
    ask = FrontRequest(
        problem=problem,
        source=source,
        selection=selection,
        options=OPTIONS,
        seed=1,
        device="cpu",
        target="sm_90",
    )
    return selection, ask.model_dump_json()


def without_seconds(value):
    """Of a value as JSON would hold it, all but what differs from run to run."""
    if isinstance(value, dict):
        return {
            k: without_seconds(v)
            for k, v in value.items()
            if k not in ("seconds", "cached", "isolation")
        }
    return [without_seconds(v) for v in value] if isinstance(value, list | tuple) else value


def test_a_task_s_answer_is_what_the_evaluator_s_own_processes_make_also_of_infinite_constants(
    right,
):
    infinite = right.replace("tl.store(", 'limit = float("inf")\n    tl.store(', 1)
    assert infinite != right
    problem = find_by_name("fused_silu")
    with Evaluator() as evaluator:
        for source in (right, infinite, right.replace("tl.load", "tl.lode", 1)):
            selection, ask = asked_of_a_task(problem, source)
            own = evaluator.front().traced_and_compiled(
                problem, source, selection, OPTIONS, 1, lambda doing: None
            )
            made = FrontResult.model_validate_json(trace_and_compile(ask))
            told = FrontResult(
                candidate=own[0], compiles=own[1], binaries=own[2], node="", versions=made.versions
            )
            same = ("candidate", "compiles", "binaries")
            assert without_seconds(made.model_dump(include=same)) == without_seconds(
                told.model_dump(include=same)
            )


def test_each_verdict_is_traced_on_the_node_that_has_free_cores_wherever_its_judge_is(pool, right):
    assert pool.capacity(DeviceKind.CPU) == 4, (
        "two judges, each with a verdict of its own and one at a task"
    )
    judges, steps = [], []
    texts = [right + f"\nNUMBER = {k}\n" for k in range(4)]
    futures = [
        pool.submit(find_by_name("fused_silu"), one, OPTIONS, steps.append, None, judges.append)
        for one in texts
    ]
    assert all(future.result(500).correct for future in futures)
    assert {name.partition("-")[0] for name in judges} == {"127.0.0.2", "127.0.0.3"}
    assert {step for step in steps if step.startswith("traced")} <= {
        "traced and compiled on 127.0.0.3"
    }
    broken = pool.submit(
        find_by_name("fused_silu"), right.replace("tl.load", "tl.lode", 1), OPTIONS
    ).result(500)
    assert (broken.correct, broken.failure.fault) == (False, "compile")
    assert broken.failure.where.text.strip().startswith("x = tl.lode")


def test_a_killed_task_loses_the_attempt_once_and_the_next_one_is_on_record(pool, right):
    killed, begun = [], []

    def kill(doing):
        if doing == STEP_ON_THE_CLUSTER and not killed:
            killed.extend(one.pid for one in tasks())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    slow = right + "\nimport time\ntime.sleep(4)\n"
    future = pool.submit(find_by_name("fused_silu"), slow, OPTIONS, kill, None, begun.append)
    with pytest.raises(JudgeLost, match="task that traced and compiled was lost"):
        future.result(500)
    assert len(killed) == len(begun) == 1, "Ray repeats nothing by itself"
    assert len(pool.process_ids) == 2, "the judge lives"
    killed.clear()
    report = PoolEvaluator(pool).evaluate(find_by_name("fused_silu"), slow, OPTIONS, kill)
    assert report.correct
    assert [
        one for one in report.warnings if one.startswith("attempt 1 was lost: the task that traced")
    ]


def test_a_verdict_that_nobody_wants_ends_while_its_task_is_at_work(pool, right):
    slow = right + "\nimport time\ntime.sleep(20)\n"
    began = time.monotonic()
    future = pool.submit(
        find_by_name("fused_silu"),
        slow,
        OPTIONS,
        lambda doing: doing == STEP_ON_THE_CLUSTER and pool.cancel(future),
    )
    with pytest.raises(VerdictCancelled):
        future.result(500)
    assert time.monotonic() - began < 15


def test_a_task_without_a_gpu_makes_the_binaries_that_a_gpu_s_judge_replays(right):
    problem = find_by_name("fused_silu")
    selection = select_sizes(problem, right, "cuda:0", 1, 2)
    ask = FrontRequest(
        problem=problem,
        source=right,
        selection=selection,
        options=OPTIONS,
        seed=1,
        device="cuda:0",
        target="sm_90",
    )
    made = FrontResult.model_validate_json(trace_and_compile(ask.model_dump_json()))
    assert len(made.candidate.traced.traces) == 1 + len(selection.others)
    assert made.compiles[0].passed
    assert made.binaries
    assert all(one.binary.startswith(b"\x7fELF") for one in made.binaries.values())
