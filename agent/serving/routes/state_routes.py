"""The service itself: queue, health, metrics, reward health, trajectories, the page for people."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, PlainTextResponse

from kernelwright.agent.judging.pool import DeviceKind, JudgeState
from kernelwright.agent.rewards.reward_parts import PRESET_WEIGHTS
from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.routes.context import (
    Client,
    ContextDependency,
    ServerContext,
    errors,
)
from kernelwright.agent.serving.service_wire import (
    DeviceQueue,
    Health,
    HealthStatus,
    JudgeCondition,
    JudgeEntry,
    JudgeList,
    QueueState,
    RunningVerdict,
)
from kernelwright.agent.serving.statistics.reward_health import RewardHealth
from kernelwright.agent.serving.statistics.service_history import ServiceHistory
from kernelwright.agent.serving.statistics.trajectories import TrajectoryList
from kernelwright.agent.serving.wire import Code
from kernelwright.tools.hardware.machine_info import version

router = APIRouter(tags=["service"])
PAGE_FOLDER = Path(__file__).with_name("page")
SCRIPTS = ("shared.js", "charts.js", "overview.js", "verdict.js", "main.js")
"""Scripts of the page, in the order of their dependencies."""
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""The content security policy of the page, which speaks to this server only."""


PAGE_HEADERS = {"Content-Security-Policy": CONTENT_POLICY, "X-Content-Type-Options": "nosniff"}

TRAJECTORY_HEADERS = {
    **PAGE_HEADERS,
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; sandbox allow-scripts",
}
"""A trajectory contains texts of models: opened directly, the page has no origin and loads nothing.
"""


@router.get("/v1/queue", responses=errors(401))
async def queue(client: Client, context: ContextDependency) -> QueueState:
    """Returns the numbers of waiting and running verdicts, and the estimated time to their end."""
    devices = tuple(_device_queue(context, device) for device in context.service.pool.devices)
    return QueueState(
        queued=sum(device_queue.queued for device_queue in devices),
        running=sum(device_queue.running for device_queue in devices),
        devices=devices,
    )


def _device_queue(context: ServerContext, device: DeviceKind) -> DeviceQueue:
    pool = context.service.pool
    judges = [judge for judge in pool.judges() if judge.device is device]
    queued, running = context.service.counts(device)
    seconds, capacity = context.service.seconds_per_verdict(device), pool.capacity(device)
    eta = None if seconds is None else seconds * -(-(queued + running) // max(1, capacity))
    return DeviceQueue(
        device=device, target=pool.target(device), judges=len(judges), judges_alive=sum(j.alive for j in judges),
        judges_ready=sum(j.ready for j in judges), capacity=capacity, queued=queued,
        running=running, seconds_per_verdict=seconds, eta_seconds=eta,
    )  # fmt: skip


@router.get("/v1/judges", response_model=JudgeList, responses=errors(401))
async def judges(request: Request, client: Client, context: ContextDependency) -> Response:
    """Returns every judge with state, start time, restarts and running verdicts."""
    return await context.snapshots.answer(request, client, partial(_judges, context, client))


def _judges(context: ServerContext, client: str) -> bytes:
    at_work = context.service.running_by_judge()
    states = context.service.pool.judges()
    entries = (_judge(context, client, state, at_work.get(state.name, [])) for state in states)
    return JudgeList(judges=tuple(entries)).model_dump_json().encode()


def _judge(
    context: ServerContext, client: str, judge: JudgeState, at_work: list[tuple[str, str, float]]
) -> JudgeEntry:
    verdicts = (
        RunningVerdict(
            verdict_id=verdict_id if context.may_see(client, verdict_id) else None,
            doing=doing,
            seconds=age,
        )
        for verdict_id, doing, age in at_work
    )
    return JudgeEntry(
        name=judge.name, device=judge.device, state=_condition(judge), capacity=judge.capacity, started=judge.started,
        restarts=judge.restarts, verdicts=tuple(verdicts),
    )  # fmt: skip


def _condition(judge: JudgeState) -> JudgeCondition:
    if not judge.alive:
        return JudgeCondition.DEAD
    return JudgeCondition.READY if judge.ready else JudgeCondition.STARTING


@router.get("/v1/history", response_model=ServiceHistory, responses=errors(401, 422))
async def history(
    request: Request,
    client: Client,
    context: ContextDependency,
    seconds: Annotated[
        float, Query(ge=60.0, le=30 * 86_400.0, description="How far back, in seconds.")
    ] = 3600.0,
) -> Response:
    """Returns throughput, latency and queue length of all clients over time."""
    compute = partial(context.statistics.history, seconds)
    return await context.snapshots.answer(request, client, compute)


@router.get("/v1/health", responses={503: {"model": Health}})
async def health(context: ContextDependency, response: Response) -> Health:
    """Returns the state of the service. Needs no token."""
    service = context.service
    alive = [judge for judge in service.pool.judges() if judge.alive]
    status = HealthStatus.OK if alive else HealthStatus.NO_JUDGES
    if service.closing or context.changes.closing:
        status = HealthStatus.CLOSING
    response.status_code = 200 if status is HealthStatus.OK else 503
    counts = [service.counts(device) for device in service.pool.devices]
    return Health(
        status=status,
        version=version("kernelwright") or "(not installed)",
        evaluator=service.pool.environment(service.pool.devices[0]).evaluator,
        devices=tuple(judge.name for judge in service.pool.judges()),
        judges_alive=len(alive),
        judges_ready=sum(judge.ready for judge in alive),
        queued=sum(queued for queued, _ in counts),
        running=sum(running for _, running in counts),
        uptime_seconds=time.time() - context.started,
    )


@router.get("/metrics", response_class=PlainTextResponse, responses=errors(401))
async def metrics(client: Client, context: ContextDependency) -> Response:
    """Returns the metrics of the service, for Prometheus; of submissions only those that the
    client may see.
    """
    viewer = None if context.sees_all(client) else client
    return Response(
        await run_sync(context.metrics.text, context.service, viewer),
        media_type="text/plain; version=0.0.4",
    )


@router.get("/v1/rewards", response_model=RewardHealth, responses=errors(401, 422))
async def rewards(
    request: Request,
    asking: Client,
    context: ContextDependency,
    problem: Annotated[str | None, Query(max_length=200)] = None,
    client: Annotated[str | None, Query(max_length=64)] = None,
    preset: Annotated[str, Query(max_length=64, description="The weights that pay.")] = "default",
) -> Response:
    """Returns reward health: rungs, reasons, distribution, flat groups, trend.

    Computed once for all requests within a few seconds.
    """
    if preset not in PRESET_WEIGHTS:
        raise RequestRefused(Code.INVALID, f"preset: choose {', '.join(PRESET_WEIGHTS)}")
    shown_client = client if context.sees_all(asking) else asking
    compute = partial(context.statistics.rewards, problem, shown_client, preset)
    return await context.snapshots.answer(request, asking, compute)


@router.get("/v1/trajectories", responses=errors(401, 403, 422))
async def trajectories(
    client: Client, context: ContextDependency, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> TrajectoryList:
    """Lists trajectories of the server's database (`--db`)."""
    context.check_sees_all(client)
    return await run_sync(context.trajectories.newest, limit)


@router.get(
    "/v1/trajectories/{trajectory_id}",
    response_class=HTMLResponse,
    responses=errors(401, 403, 404, 422),
)
async def trajectory(
    trajectory_id: Annotated[int, InPath(ge=1, lt=2**63)],
    client: Client,
    context: ContextDependency,
) -> HTMLResponse:
    """Returns a trajectory as a self-contained HTML page."""
    context.check_sees_all(client)
    html = await run_sync(context.trajectories.page, trajectory_id)
    return HTMLResponse(html, headers=TRAJECTORY_HEADERS)


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def page() -> HTMLResponse:
    """Returns the web page. Needs no token: the page asks for a token and loads all data with it."""
    return HTMLResponse(_page(), headers=PAGE_HEADERS)


@lru_cache(maxsize=1)
def _page() -> str:
    """Returns the page with its styles and scripts inlined, so nothing is loaded separately."""
    script = "".join(map(_page_part, SCRIPTS))
    page_html = _page_part("page.html").replace("/* page.css */\n", _page_part("page.css"))
    return page_html.replace("/* page.js */\n", script)


def _page_part(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")
