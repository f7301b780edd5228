"""Defines `agent mcp`, which serves the judge to coding agents or installs it there."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kernelwright.agent.serving.routes.tokens import Tokens

MCP_ACTIONS = ("serve", "install")
TRANSPORTS = ("stdio", "http")
SOLE_CLIENT = ""
"""Client of `--token`, the same as of stdio, so it sees the history written by earlier servers."""
HISTORY_DATABASE = Path(".kernelwright") / "verdicts.db"
"""Default database, in the command's current folder."""

Action = Annotated[str, typer.Argument(help=", ".join(MCP_ACTIONS) + ".")]
Transport = Annotated[
    str, typer.Option(help="stdio (one client, which starts this command) or http.")
]
Host = Annotated[
    str, typer.Option(help="The address to listen on (http); any but loopback needs a token.")
]
Port = Annotated[
    int,
    typer.Option(
        min=1, max=65535, help="The port (http): clients connect to http://HOST:PORT/mcp."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        help="What http clients send as Bearer token.",
        envvar="KERNELWRIGHT_MCP_TOKEN",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with a line `CLIENT TOKEN` for each http client, then `seconds=N` for a budget of its own.",
        show_default="one client",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust-clients",
        help="Let http clients name files of this machine and hand in references, which the judge runs. stdio does.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.")]
Database = Annotated[
    Path, typer.Option("--db", help="Where verdicts are kept, in a file of SQLite.")
]
Verdicts = Annotated[int, typer.Option(min=1, help="Budget: verdicts made for each client.")]
Seconds = Annotated[
    float, typer.Option(min=1.0, help="Budget: seconds of judging for each client.")
]
KernelBench = Annotated[Path | None, typer.Option(help="A KernelBench checkout or parquet file.")]
TritonBench = Annotated[
    Path | None, typer.Option(help="A TritonBench checkout, for tritonbench-t:NAME.")
]
ClientName = Annotated[
    str,
    typer.Option(
        "--client",
        help="The coding agent to install for: claude, codex, cursor, vscode or gemini.",
        show_default=False,
    ),
]
Project = Annotated[Path, typer.Option(help="The project's folder to install in.")]
User = Annotated[bool, typer.Option("--user", help="Install for all projects of this user.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print what install wrote, as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]


def mcp(
    action: Action = "serve", transport: Transport = "stdio", host: Host = "127.0.0.1", port: Port = 8701,
    token: Token = "", token_file: TokenFile = None, trust_clients: Trust = False, device: Device = "auto",
    db: Database = HISTORY_DATABASE,
    verdicts: Verdicts = 1000, seconds: Seconds = 36000.0, kernelbench: KernelBench = None,
    tritonbench: TritonBench = None, client: ClientName = "", project: Project = Path("."), user: User = False,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Judge kernels for a coding agent over the Model Context Protocol, or install the server and its skill for one."""
    from kernelwright.agent.runtime.errors import require
    from kernelwright.errors import InputError

    if action not in MCP_ACTIONS:
        raise InputError(f"mcp {action}: choose {' or '.join(MCP_ACTIONS)}")
    if action == "install":
        options: dict[str, object] = {
            "device": device, "verdicts": verdicts, "seconds": seconds, "kernelbench": kernelbench,
            "tritonbench": tritonbench, "db": db,
        }  # fmt: skip
        _install(client, project, user, options, as_json)
        return
    if transport not in TRANSPORTS:
        raise InputError(f"unknown transport {transport!r}: choose {' or '.join(TRANSPORTS)}")
    require("mcp", "mcp_types", "tomlkit")
    from kernelwright.agent.mcp_server.budget import ClientBudgets
    from kernelwright.agent.mcp_server.history import History
    from kernelwright.agent.mcp_server.judging import ServerJudge
    from kernelwright.agent.mcp_server.requests import Access
    from kernelwright.agent.runtime.arguments import choose_device

    access = Access(
        local=transport == "stdio" or trust_clients,
        kernelbench=kernelbench,
        tritonbench=tritonbench,
    )
    tokens = _tokens(transport, host, token, token_file)
    budgets = ClientBudgets(verdicts, seconds, tokens.budget)
    judging = ServerJudge(choose_device(device), History(db.expanduser()), budgets, access)
    if token_file is not None:
        tokens.reload_at_hangup(token_file, partial(typer.echo, err=True))
    _serve(judging, transport, host, port, tokens)


def _serve(judging: object, transport: str, host: str, port: int, tokens: Tokens) -> None:
    from kernelwright import __version__
    from kernelwright.agent.mcp_server.judging import ServerJudge
    from kernelwright.agent.mcp_server.server import serve_http, serve_stdio

    assert isinstance(judging, ServerJudge)
    if transport == "stdio":
        typer.echo(
            f"agent mcp: stdio, device {judging.device}; the client or Ctrl-C ends it", err=True
        )
        serve_stdio(judging, __version__)
        return
    typer.echo(
        f"agent mcp: http://{host}:{port}/mcp, device {judging.device}; Ctrl-C ends it", err=True
    )
    serve_http(judging, __version__, host, port, tokens)


def _tokens(transport: str, host: str, token: str, token_file: Path | None) -> Tokens:
    """Returns the tokens of http clients. Raises InputError if other machines could connect without
    a token.
    """
    from kernelwright.agent.serving.routes.tokens import Tokens
    from kernelwright.errors import InputError

    if token and token_file is not None:
        raise InputError("--token and --token-file exclude each other: leave one out")
    if token_file is not None:
        return Tokens.read(token_file)
    if transport == "http" and host not in ("127.0.0.1", "localhost", "::1") and not token:
        raise InputError(
            f"--host {host} lets other machines in: give a --token (or KERNELWRIGHT_MCP_TOKEN) or a --token-file too"
        )
    return Tokens({token: SOLE_CLIENT} if token else {})


def _server_arguments(options: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the options that differ from the command's defaults, as its arguments; paths from the root, since a
    client starts the server in a folder of its own.
    """
    defaults = inspect.signature(mcp).parameters
    words: list[str] = []
    for name, value in options.items():
        if value != defaults[name].default:
            text = value.expanduser().resolve() if isinstance(value, Path) else value
            words += [f"--{name}", str(text)]
    return tuple(words)


def _install(
    client: str, project: Path, user: bool, options: Mapping[str, object], as_json: bool
) -> None:
    from kernelwright.agent.mcp_server.installing import ClientProgram, install
    from kernelwright.agent.runtime.errors import require
    from kernelwright.errors import InputError

    if client not in tuple(ClientProgram):
        raise InputError(f"mcp install needs --client {' or --client '.join(ClientProgram)}")
    require("mcp", "mcp_types", "tomlkit")
    root = Path.home() if user else project.expanduser().resolve()
    done = install(
        ClientProgram(client),
        root,
        user=user,
        arguments=_server_arguments(options),
    )
    if as_json:
        typer.echo(done.model_dump_json(indent=2))
        return
    typer.echo(
        f"{'replaced' if done.replaced else 'added'} the server kernelwright in {done.configuration}"
    )
    typer.echo(f"copied the skill to {done.skill}; restart {client} to see both")
