"""Defines `agent serve`, the judge service over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kernelwright.agent.judging.pool import JudgePool
    from kernelwright.agent.serving.server import References, ServerOptions

Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME[,NAME]",
        help="cuda:0,cuda:1, cpu or auto; the first is the default.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Candidates that are compiled or interpreted at once.",
        show_default="one a core",
    ),
]
JudgesPerGpu = Annotated[
    int,
    typer.Option(
        min=1,
        help="Judge processes for each GPU: they check answers side by side, and time one by one.",
    ),
]
Host = Annotated[
    str, typer.Option(help="The address to listen on; beyond loopback --token-file is needed.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with a line `CLIENT TOKEN` for each client, then `names-only`, `admin` or `seconds=N`.",
        show_default="one token is made",
    ),
]
NoToken = Annotated[
    bool,
    typer.Option(
        "--no-token", help="Everyone on this machine may ask, and so run code as this user."
    ),
]
ReferencesOption = Annotated[
    str | None,
    typer.Option(
        "--references",
        metavar="refuse|trusted",
        help="Whether clients may send references: trusted, but with --ray and a token file refuse.",
    ),
]
RecordFile = Annotated[
    Path, typer.Option("--store", help="The file that verdicts and the queue are kept in.")
]
Database = Annotated[
    str | None, typer.Option("--db", help="A database whose trajectories the page shows.")
]
KernelBench = Annotated[Path | None, typer.Option(help="A KernelBench checkout or parquet file.")]
AllowImport = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-import",
        metavar="NAME[,NAME]",
        help="Installed packages whose kernels may be used.",
    ),
]
Queue = Annotated[int, typer.Option(min=1, help="Verdicts that may wait.")]
ClientPending = Annotated[
    int, typer.Option(min=1, help="Verdicts of one client that may wait or be under way.")
]
ClientPerMinute = Annotated[
    int | None,
    typer.Option(min=1, help="Submissions of one client within a minute.", show_default="no limit"),
]
ClientSeconds = Annotated[
    float | None,
    typer.Option(
        min=1.0, help="Judge seconds of one client within an hour.", show_default="no limit"
    ),
]
VerdictSeconds = Annotated[
    float,
    typer.Option(
        min=1.0, help="Wall-clock seconds of one verdict; then its judge process is ended."
    ),
]
Keep = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="DAYS",
        help="Delete verdicts this long after they ended.",
        show_default="never",
    ),
]
Private = Annotated[bool, typer.Option("--private", help="Clients see their own verdicts only.")]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp", metavar="URL", help="Send verdicts as traces to this OpenTelemetry collector."
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Judge on this Ray cluster, a judge for each GPU."
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def serve(
    device: Devices = None, workers: Workers = None, judges_per_gpu: JudgesPerGpu = 1,
    host: Host = "127.0.0.1", port: Port = 8700,
    token_file: TokenFile = None, no_token: NoToken = False, references: ReferencesOption = None,
    store: RecordFile = Path(".kernelwright/service.db"), db: Database = None,
    kernelbench: KernelBench = None, allow_import: AllowImport = None, queue: Queue = 4096,
    client_pending: ClientPending = 512, client_per_minute: ClientPerMinute = None,
    client_seconds: ClientSeconds = None, verdict_seconds: VerdictSeconds = 600.0,
    keep: Keep = None, private: Private = False,
    otlp: Otlp = None, ray: Ray = None,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Answer verdicts over HTTP: submit, follow, cancel; a page for people at /. Routes:
    docs/reference/service.md.

    Equal candidates are judged once, also across a restart. Ctrl-C or SIGTERM stops the server; the
    next server begins open verdicts again.
    """
    from kernelwright.agent.runtime.errors import require

    require("fastapi", "uvicorn", "prometheus_client")
    from kernelwright.agent.command_line.check import allowed_packages
    from kernelwright.agent.runtime.output_files import refuse_unwritable_folder
    from kernelwright.agent.serving.queueing.quotas import QuotaLimits
    from kernelwright.agent.serving.server import ServerOptions, devices_of
    from kernelwright.errors import InputError

    if otlp is not None and not otlp.startswith(("http://", "https://")):
        raise InputError(
            f"--otlp {otlp}: give a collector's address, such as http://127.0.0.1:4318"
        )
    if no_token and token_file is not None:
        raise InputError("--no-token and --token-file exclude each other: leave one out")

    if store.is_dir():
        raise InputError(
            f"--store {store} is a folder: name a file in it, such as --store {store / 'service.db'}"
        )
    refuse_unwritable_folder(store.parent, "--store")
    plan = ServerOptions(
        host=host, port=port, store=store, token_file=token_file, needs_token=not no_token,
        references=who_sends_references(references, ray is not None, token_file is not None),
        database=db, kernelbench=kernelbench,
        allow_import=allowed_packages(allow_import or []),
        limits=QuotaLimits(
            queue=queue, client_pending=client_pending, client_per_minute=client_per_minute,
            client_seconds=client_seconds,
        ),
        verdict_seconds=verdict_seconds, keep_days=keep, is_private=private, otlp=otlp,
    )  # fmt: skip
    capacity = workers or os.cpu_count() or 2
    if ray is None:
        from kernelwright.agent.judging.local_judge import JudgeWalls
        from kernelwright.agent.judging.local_pool import LocalPool

        devices, walls = devices_of(device or []), JudgeWalls.around(plan.hidden_paths)
        _run(plan, lambda: LocalPool(devices, capacity, judges_per_gpu, walls))
        return
    from kernelwright.agent.judging.ray_pool import RayPool

    if device or judges_per_gpu > 1:
        raise InputError(
            "--ray: the cluster has a judge for each of its GPUs; leave out --device and --judges-per-gpu"
        )
    _run(plan, lambda: RayPool(ray, workers))


def who_sends_references(choice: str | None, on_ray: bool, has_tokens: bool) -> References:
    """Returns whether clients may send references. choice: value of `--references`; None if not
    given.

    Judges on Ray have no walls: a reference can read every file of the server's user. Raises
    InputError.
    """
    from kernelwright.agent.serving.server import References
    from kernelwright.errors import InputError

    if choice is None:
        return References.REFUSE if on_ray and has_tokens else References.TRUSTED
    if choice not in list(References):
        raise InputError(f"--references {choice!r}: choose refuse or trusted")
    return References(choice)


def _run(plan: ServerOptions, open_pool: Callable[[], JudgePool]) -> None:
    """Runs the server. Shows progress until the judges are ready, then a line with the address."""
    from kernelwright.agent.serving.server import serve as run
    from kernelwright.agent.viewing.show.progress import progress

    with ExitStack() as starting:
        starting.enter_context(progress())("starting the judges")

        def started(line: str) -> None:
            starting.close()
            typer.echo(line, err=True)

        run(plan, open_pool, started)
