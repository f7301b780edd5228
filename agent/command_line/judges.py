"""Judges that are not in this process: `--server URL` and `--ray ADDRESS`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kernelwright.agent.command_line.options import JUDGING_PANEL, Elsewhere

if TYPE_CHECKING:
    from kernelwright.agent.judging.pool import DeviceKind
    from kernelwright.agent.loop.run_verdicts import Evaluates
    from kernelwright.agent.serving.client import JudgeClient
    from kernelwright.tools.problem import Problem
    from kernelwright.tools.report import Report

TOKEN_VARIABLE = "KERNELWRIGHT_TOKEN"
"""The environment variable that holds a client's token."""

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


class JudgesElsewhere(NamedTuple):
    """The judges of a service or of a Ray cluster."""

    evaluates: Evaluates
    place: Elsewhere
    capacity: int
    """Verdicts that they make at the same time."""


@contextmanager
def judges_elsewhere(
    server: str | None, ray: str | None, device: str
) -> Iterator[JudgesElsewhere | None]:
    """Opens the judges of a server or of Ray; None where neither was asked for. Raises InputError, and
    InfrastructureError where they cannot be reached.
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
            yield JudgesElsewhere(
                PoolEvaluator(pool, kind), _place(kind, pool.target(kind)), pool.capacity(kind)
            )
        finally:
            pool.close()
    else:
        yield None


def open_client(url: str) -> JudgeClient:
    """Opens a client, its token from the environment. Raises InfrastructureError where the service does not answer."""
    from kernelwright.agent.serving.client import JudgeClient

    client = JudgeClient(url, token=os.environ.get(TOKEN_VARIABLE))
    try:
        client.health()
    except BaseException:
        client.close()
        raise
    return client


def _at_server(client: JudgeClient, device: str) -> JudgesElsewhere:
    from kernelwright.agent.serving.evaluating import ServiceEvaluator

    queues = {one.device: one for one in client.queue().devices}
    kind = _kind(device, list(queues))
    return JudgesElsewhere(
        ServiceEvaluator(client, kind), _place(kind, queues[kind].target), 4 * queues[kind].capacity
    )


def _kind(device: str, there: list[DeviceKind] | Any) -> DeviceKind:
    """Returns the kind of device that `--device` names; `auto` takes the first that is there. Raises InputError."""
    from kernelwright.agent.judging.pool import DeviceKind
    from kernelwright.errors import InputError

    if device == "auto":
        return DeviceKind(there[0])
    asked = device.partition(":")[0]
    if asked not in [str(kind) for kind in there]:
        raise InputError(
            f"--device {device}: the judges there have {' and '.join(there)} only: choose one of these"
        )
    return DeviceKind(asked)


def _place(kind: DeviceKind, target: str) -> Elsewhere:
    return Elsewhere("cpu" if kind.value == "cpu" else "cuda:0", target)


def judge_at_server(
    url: str, problem: Problem, source: str, device: str, asked: Mapping[str, Any], quiet: bool
) -> Report:
    """Returns one verdict of the service. Raises InputError, ProblemError and InfrastructureError."""
    from kernelwright.agent.viewing.show.progress import progress

    with open_client(url) as client, progress(quiet) as say:
        kind = (
            None
            if device == "auto"
            else _kind(device, [one.device for one in client.queue().devices]).value
        )
        verdict = client.score(problem, source, device=kind, progress=say, **asked)
        return verdict.report.with_(cached=verdict.known)
