"""A database of two trajectories, with right and wrong candidates, for the tests of the viewer."""

from pathlib import Path

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.report import (
    Environment,
    Failure,
    Fault,
    ProfileResult,
    Report,
    Rung,
    SourceLine,
    Timing,
)

ROOT = Path(__file__).parents[3]

SILU = (ROOT / "tests" / "kernels" / "good" / "fused_silu.py").read_text()

ENVIRONMENT = Environment(evaluator="1", torch="2.13.0", triton="3.9.0", gpu="NVIDIA H200")


def fast(problem, speedup):
    """A verdict as a GPU gives it."""
    time = Timing(median=1 / speedup, low=0.9, high=1.1, mean=1.0, std=0.01, minimum=0.9, calls=50)
    profile = ProfileResult(
        device="NVIDIA H200", candidate=time, speedup=speedup, speedup_low=speedup
    )
    return Report(
        problem=problem.name, problem_hash=problem.hash, candidate_hash=str(speedup), rung=Rung.PROFILE, correct=True,
        judged_on="NVIDIA H200",
        profile=profile, environment=ENVIRONMENT,
    )  # fmt: skip


def broken(problem, fault, rung=Rung.COMPILE):
    where = SourceLine(line=3, text="import triton.language as tl")
    failure = Failure(
        fault=fault, message=f"it is a {fault.value}, and zanzibar is why", where=where
    )
    return Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=fault.value,
        rung=rung,
        failure=failure,
        environment=ENVIRONMENT,
    )


def turn(store, trajectory, action, parent, source, report, reply=None):
    asked = Message(
        role=Role.USER, content=f"please {action.value} it\x1b[2J [bold]not markup[/bold]"
    )
    row = store.draft(
        trajectory.id,
        Request(messages=(asked,)),
        action=action,
        parent_id=parent,
        prompt_version="v1",
    )
    if reply is None:
        reply = f"Here it is.\n```python\n{source}\n```\n"
    usage = Usage(prompt_tokens=100, completion_tokens=50, dollars=0.01)
    store.complete(
        row.id,
        Completion(text=reply, finish=FinishReason.STOP, usage=usage, policy="m", latency=1.5),
        source,
    )
    store.judge(row.id, report, tool_seconds=0.5)
    return row.id


def fill(store, finished=True):
    """Trajectory 1: five turns that branch at the third. 2: a reply without code. 3: asked, not answered."""
    silu, adding = find_by_name("fused_silu"), find_by_name("vector_add")
    run = store.open_run("night")
    one = store.begin(
        TrajectoryStart(problem=silu, policy="openai:m", options={"targets": ["sm_90"]}),
        run_id=run.id,
    )
    sources = [
        SILU.replace("import triton\n", f"import triton\n\nNUMBER = {number}\n", 1)
        for number in range(5)
    ]
    a = turn(
        store, one, Action.DRAFT, None, sources[0], broken(silu, Fault.MISMATCH, Rung.INTERPRETED)
    )
    b = turn(store, one, Action.REPAIR, a, sources[1], fast(silu, 0.9))
    c = turn(store, one, Action.REFINE, b, sources[2], fast(silu, 1.5))
    turn(store, one, Action.REFINE, c, sources[3], broken(silu, Fault.COMPILE))
    e = turn(store, one, Action.REFINE, c, sources[4], fast(silu, 2.25))
    if finished:
        store.finish(one.id, "turns", best_id=e, spent={"turns": 5})
    two = store.begin(TrajectoryStart(problem=adding, policy="embedded"))
    turn(
        store,
        two,
        Action.DRAFT,
        None,
        None,
        broken(adding, Fault.NO_CODE, Rung.SOURCE),
        reply="I would rather not.",
    )
    store.finish(two.id, "turns")
    three = store.begin(TrajectoryStart(problem=find_by_name("row_sum"), policy="embedded"))
    store.draft(
        three.id, Request(messages=(Message(role=Role.USER, content="sum"),)), action=Action.DRAFT
    )
