"""The judge service as a process: uvicorn over the application, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import ipaddress
import resource
import socket
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from types import FrameType

import uvicorn
from pydantic import BaseModel, ConfigDict

from kernelwright.agent.judging.pool import JudgePool
from kernelwright.agent.serving.app import make_app
from kernelwright.agent.serving.content import Preparing
from kernelwright.agent.serving.queueing.quotas import QuotaLimits
from kernelwright.agent.serving.queueing.running_verdicts import DEFAULT_VERDICT_SECONDS
from kernelwright.agent.serving.record import VerdictDatabase
from kernelwright.agent.serving.retention import Retention
from kernelwright.agent.serving.routes.connections import (
    BODY_SECONDS,
    MAX_CONNECTIONS,
    READER_SECONDS,
    DeadlineConnection,
)
from kernelwright.agent.serving.routes.context import ServerContext
from kernelwright.agent.serving.routes.tokens import ANONYMOUS, ClientTerms, Right, Tokens
from kernelwright.agent.serving.service import JudgeService
from kernelwright.agent.serving.statistics.metrics import ServiceMetrics
from kernelwright.agent.serving.statistics.record_statistics import RecordStatistics
from kernelwright.agent.serving.statistics.trace_export import TraceExport
from kernelwright.agent.serving.statistics.trajectories import Trajectories
from kernelwright.errors import InputError
from kernelwright.tools.hardware.open_files import raise_open_files_limit

SHUTDOWN_SECONDS = 5
"""Seconds for answers under way after the server is stopped."""
CONNECTION_IDLE_SECONDS = 65
"""Seconds a connection is kept open between two requests. Must exceed the clients' own limit (httpx
5, others up to 60); otherwise a client would send its next request into a connection about to
close.
"""
MAX_WAITING_CONNECTIONS = 2048
"""Length of the socket's queue of connections not yet accepted."""


class References(StrEnum):
    """Whether clients may send references, which run as the server's user."""

    REFUSE = "refuse"
    TRUSTED = "trusted"


class ServerOptions(BaseModel):
    """Options of a server."""

    model_config = ConfigDict(frozen=True)

    host: str = "127.0.0.1"
    port: int = 8700
    store: Path
    token_file: Path | None = None
    needs_token: bool = True
    """Whether a server without a token file generates a token. If False, every user of this machine
    may send requests.
    """
    references: References = References.TRUSTED
    database: str | None = None
    kernelbench: Path | None = None
    allow_import: tuple[str, ...] = ()
    limits: QuotaLimits = QuotaLimits()
    keep_days: float | None = None
    """Days for which verdicts are kept; None keeps them all."""
    is_private: bool = False
    """Whether a client sees only the verdicts of its own submissions."""
    verdict_seconds: float = DEFAULT_VERDICT_SECONDS
    """Wall-clock limit of a verdict in seconds; afterwards the judge's process is ended."""
    otlp: str | None = None
    """Base address of an OpenTelemetry collector for traces of verdicts."""
    body_seconds: float = BODY_SECONDS
    header_seconds: float = BODY_SECONDS
    reader_seconds: float = READER_SECONDS
    most_connections: int | None = None
    """None: as many as MAX_CONNECTIONS and this process's open files allow."""

    @property
    def hidden_paths(self) -> tuple[Path, ...] | None:
        """Returns the files to hide from references: the record and the tokens.

        None if only the server's owner can send references: such references need no walls.
        """
        if self.token_file is None or self.references is not References.TRUSTED:
            return None
        return self.store.resolve(), self.token_file.resolve()


class JudgeServer(uvicorn.Server):
    """uvicorn server: wakes requests waiting for a verdict when the server is stopped."""

    def __init__(self, config: uvicorn.Config, context: ServerContext) -> None:
        super().__init__(config)
        self._context = context

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the streams of events, which would be waited for, then stops as uvicorn does."""
        self._context.changes.close()
        super().handle_exit(sig, frame)


def _is_loopback(host: str) -> bool:
    """Returns whether an address is reachable from this machine only. A name with the prefix of a
    loopback address is not.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(plan: ServerOptions) -> socket.socket:
    """Returns the listening socket; port 0 takes any free port. Raises InputError."""
    if plan.token_file is None and not _is_loopback(plan.host):
        raise InputError(
            f"--host {plan.host} can be reached from elsewhere: give --token-file, or listen on 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off for sockets of this protocol only; with it the second write of an answer (its
    # body) waits for the acknowledgement of the first, which a client delays by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((plan.host, plan.port))
        listening.listen(MAX_WAITING_CONNECTIONS)  # connections before the server's start wait
    except OSError as error:
        listening.close()
        wrong_option = "--host" if isinstance(error, socket.gaierror) else "--port"
        raise InputError(
            f"cannot listen on {plan.host}:{plan.port} ({error.strerror}): give another {wrong_option}"
        ) from None
    return listening


def serve(
    plan: ServerOptions, open_pool: Callable[[], JudgePool], print_line: Callable[[str], None]
) -> None:
    """Serves until stopped. Raises InputError, InfrastructureError and, after Ctrl-C,
    KeyboardInterrupt.
    """
    raise_open_files_limit()
    tokens, fragment = _tokens(plan)
    listening = listen(plan)
    with listening:
        record = VerdictDatabase(plan.store)
        try:
            pool = open_pool()
        except BaseException:
            record.close()
            raise
        context = _context(plan, record, pool, tokens)
        server = JudgeServer(_config(plan, context), context)
        address = listening.getsockname()
        print_line(
            f"judging on {' and '.join(pool.devices)} at http://{_url_host(plan.host)}:{address[1]}{fragment}"
        )
        _tell_readable_tokens(plan, print_line)
        if plan.token_file is not None:
            tokens.reload_at_hangup(plan.token_file, print_line)
        try:
            server.run(sockets=[listening])
        finally:
            if not context.service.closing:
                context.service.close()


def _tokens(plan: ServerOptions) -> tuple[Tokens, str]:
    """Returns the tokens, and the URL fragment with the token for the page and the clients. Raises
    InputError.

    A browser never sends the fragment after `#` to a server.
    """
    if plan.token_file is not None:
        return Tokens.read(plan.token_file), ""
    if not plan.needs_token:
        return Tokens({}, {ANONYMOUS: ClientTerms(frozenset({Right.ADMIN}))}), ""
    tokens, token = Tokens.generate()
    return tokens, f"/#token={token}"


def _tell_readable_tokens(plan: ServerOptions, print_line: Callable[[str], None]) -> None:
    """Prints a warning about a token file readable by other users of this machine."""
    if plan.token_file is not None and plan.token_file.stat().st_mode & 0o077:
        print_line(f"other users can read {plan.token_file}: chmod 600 {plan.token_file}")


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _context(
    plan: ServerOptions, record: VerdictDatabase, pool: JudgePool, tokens: Tokens
) -> ServerContext:
    metrics = ServiceMetrics()

    def may_send_references(client: str) -> bool:
        return plan.references is References.TRUSTED and not tokens.has(client, Right.NAMES_ONLY)

    preparing = Preparing(
        pool, plan.kernelbench, plan.allow_import, may_send_references,
        has_one_client=plan.token_file is None,
    )  # fmt: skip
    service = JudgeService(
        record, pool, preparing, plan.limits, metrics, plan.verdict_seconds, tokens.budget
    )
    retention = Retention(service.deletion, plan.keep_days) if plan.keep_days is not None else None
    trace_export = TraceExport(record, plan.otlp) if plan.otlp is not None else None
    return ServerContext(
        service=service, trace_export=trace_export, tokens=tokens,
        trajectories=Trajectories(plan.database), metrics=metrics,
        statistics=RecordStatistics(plan.store.resolve()), is_private=plan.is_private, retention=retention,
    )  # fmt: skip


def _config(plan: ServerOptions, context: ServerContext) -> uvicorn.Config:
    bounds = {
        "header_seconds": plan.header_seconds, "reader_seconds": plan.reader_seconds,
        "most_connections": plan.most_connections or most_connections(),
    }  # fmt: skip
    protocol: type[DeadlineConnection] = type("BoundedConnection", (DeadlineConnection,), bounds)
    return uvicorn.Config(
        make_app(context, plan.body_seconds), http=protocol, ws="none", loop="asyncio", lifespan="on",
        log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        timeout_keep_alive=CONNECTION_IDLE_SECONDS, backlog=MAX_WAITING_CONNECTIONS,
    )  # fmt: skip


def most_connections() -> int:
    """Returns half of this process's limit of open files, because judges and the record need files,
    too.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        MAX_CONNECTIONS
        if files == resource.RLIM_INFINITY
        else max(1, min(MAX_CONNECTIONS, files // 2))
    )


def devices_of(device_options: Sequence[str]) -> list[str]:
    """Reads the devices of `--device`, comma-separated or repeated, and checks them. Raises InputError."""
    from kernelwright.agent.runtime.arguments import choose_device

    names = [name.strip() for part in device_options for name in part.split(",") if name.strip()]
    return list(dict.fromkeys(choose_device(name) for name in names or ["auto"]))
