"""Opens remote judges: `--server URL` and `--ray ADDRESS`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kernelwright.agent.command_line.options import JUDGING_PANEL, RemoteDevice

if TYPE_CHECKING:
    from kernelwright.agent.judging.pool import DeviceKind
    from kernelwright.agent.loop.run_verdicts import Evaluates
    from kernelwright.agent.serving.client import JudgeClient
    from kernelwright.tools.problem import Problem
    from kernelwright.tools.report import Report

TOKEN_VARIABLE = "KERNELWRIGHT_TOKEN"
"""Environment variable with a client's token."""

QUEUED_PER_JUDGE = 4
"""Verdicts under way at a service for each of its judges."""

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help=f"Judge at this agent serve; its token is read from {TOKEN_VARIABLE}.",
        rich_help_panel=JUDGING_PANEL,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Judge on this Ray cluster: HOST:PORT, auto, or local.",
        rich_help_panel=JUDGING_PANEL,
    ),
]


class RemoteJudges(NamedTuple):
    """The judges of a service or of a Ray cluster."""

    evaluates: Evaluates
    device: RemoteDevice
    capacity: int
    """Number of verdicts at the same time."""


@contextmanager
def open_remote_judges(
    server: str | None, ray: str | None, device: str
) -> Iterator[RemoteJudges | None]:
    """Opens the judges of a server or of Ray; yields None if both are None. Raises InputError,
    and InfrastructureError if the judges cannot be reached.
    """
    from kernelwright.errors import InputError

    if server is not None and ray is not None:
        raise InputError("--server and --ray: choose one")
    if server is not None:
        with open_client(server) as client:
            yield _at_server(client, device)
    elif ray is not None:
        from kernelwright.agent.judging.evaluating import PoolEvaluator
        from kernelwright.agent.judging.ray_pool import RayPool

        pool = RayPool(ray)
        try:
            kind = _kind(device, pool.devices)
            yield RemoteJudges(
                PoolEvaluator(pool, kind),
                _remote_device(kind, pool.target(kind)),
                pool.capacity(kind),
            )
        finally:
            pool.close()
    else:
        yield None


def open_client(url: str) -> JudgeClient:
    """Opens a client with the token of the environment. Raises InfrastructureError if the service
    does not answer.
    """
    from kernelwright.agent.serving.client import JudgeClient

    client = JudgeClient(url, token=os.environ.get(TOKEN_VARIABLE))
    try:
        client.health()
    except BaseException:
        client.close()
        raise
    return client


def _at_server(client: JudgeClient, device: str) -> RemoteJudges:
    from kernelwright.agent.serving.evaluating import ServiceEvaluator

    queues = {queue.device: queue for queue in client.queue().devices}
    kind = _kind(device, list(queues))
    return RemoteJudges(
        ServiceEvaluator(client, kind),
        _remote_device(kind, queues[kind].target),
        QUEUED_PER_JUDGE * queues[kind].capacity,
    )


def _kind(device: str, kinds: Sequence[DeviceKind]) -> DeviceKind:
    """Returns the kind of device named by `--device`; `auto` takes the first kind of the judges.
    Raises InputError.
    """
    from kernelwright.agent.judging.pool import DeviceKind
    from kernelwright.errors import InputError

    if device == "auto":
        return DeviceKind(kinds[0])
    kind_name = device.partition(":")[0]
    if kind_name not in [str(kind) for kind in kinds]:
        raise InputError(
            f"--device {device}: the judges there have {' and '.join(kinds)} only: choose one of these"
        )
    return DeviceKind(kind_name)


def _remote_device(kind: DeviceKind, target: str) -> RemoteDevice:
    return RemoteDevice("cpu" if kind.value == "cpu" else "cuda:0", target)


def judge_at_server(
    url: str, problem: Problem, source: str, device: str, options: Mapping[str, Any], quiet: bool
) -> Report:
    """Returns a verdict of the service. Raises InputError, ProblemError and InfrastructureError."""
    from kernelwright.agent.viewing.show.progress import progress

    with open_client(url) as client, progress(quiet) as say:
        kind = None
        if device != "auto":
            kinds = [queue.device for queue in client.queue().devices]
            kind = _kind(device, kinds).value
        verdict = client.score(problem, source, device=kind, progress=say, **options)
        return verdict.report.with_(cached=verdict.known)
