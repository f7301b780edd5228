"""Sets a coding agent up to use the server: its entry in the client's configuration, and the skill."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.tools.report import Value

SERVER_NAME = "kernelwright"
CODEX_SECONDS = 60
"""Time limit in seconds that is written into the configuration of Codex. Its defaults: 10 for a server's start, 60 for
a tool.
"""


class ClientProgram(StrEnum):
    """The program whose configuration is written."""

    CLAUDE = "claude"
    CODEX = "codex"


class Installed(Value):
    """The files that were written."""

    client: ClientProgram
    configuration: Path
    skill: Path
    replaced: bool
    """Whether an entry of that name was there before."""


def install(
    client: ClientProgram, root: Path, *, user: bool, arguments: tuple[str, ...] = ()
) -> Installed:
    """Writes the configuration and the skill of one client.

    root: the project's folder, or the home folder where `user` is set. arguments: what follows `agent mcp`.

    Raises InputError where the client's configuration is not what it should be: nothing is written then.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: name the project's folder with --project")
    command = [sys.executable, "-m", "kernelwright.agent", "mcp", *arguments]
    if client is ClientProgram.CLAUDE:
        configuration = root / (".claude.json" if user else ".mcp.json")
        replaced = _write_json(
            configuration, {"type": "stdio", "command": command[0], "args": command[1:]}
        )
        skills = root / ".claude" / "skills"
    else:
        configuration = root / ".codex" / "config.toml"
        replaced = _write_toml(configuration, command)
        skills = root / ".agents" / "skills"
    return Installed(
        client=client, configuration=configuration, skill=_copy_skill(skills), replaced=replaced
    )


def _write_json(path: Path, entry: dict[str, Any]) -> bool:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise InputError(
            f"{path} is not JSON ({error}): correct the file, then install again"
        ) from None
    servers = found.setdefault("mcpServers", {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise InputError(f"{path} has no object mcpServers: correct the file, then install again")
    replaced = SERVER_NAME in servers
    servers[SERVER_NAME] = entry
    _write(path, json.dumps(found, indent=2) + "\n")
    return replaced


def _write_toml(path: Path, command: list[str]) -> bool:
    """Writes the entry; comments and the order of the other entries stay as they are."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        found = tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    except TOMLKitError as error:
        raise InputError(
            f"{path} is not TOML ({error}): correct the file, then install again"
        ) from None
    servers = found.setdefault("mcp_servers", tomlkit.table(is_super_table=True))
    if not isinstance(servers, dict):
        raise InputError(f"{path} has no table mcp_servers: correct the file, then install again")
    replaced = SERVER_NAME in servers
    entry = tomlkit.table()
    entry.update({"command": command[0], "args": command[1:], "startup_timeout_sec": CODEX_SECONDS})
    servers[SERVER_NAME] = entry
    _write(path, tomlkit.dumps(found))
    return replaced


def _write(path: Path, text: str) -> None:
    """Writes the file in one step, so that a client never reads half of it.

    The file keeps its mode, because configurations hold keys, and a link to it (of a folder of dotfiles) stays a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()
    beside = target.with_name(target.name + ".new")
    beside.unlink(missing_ok=True)
    if target.exists():
        beside.touch(mode=0o600)
        beside.chmod(stat.S_IMODE(target.stat().st_mode))
    beside.write_text(text, encoding="utf-8")
    beside.replace(target)


def _copy_skill(skills: Path) -> Path:
    folder = skills / SERVER_NAME
    with resources.as_file(
        resources.files("kernelwright.agent.mcp_server") / "skills" / SERVER_NAME
    ) as shipped:
        shutil.copytree(shipped, folder, dirs_exist_ok=True)
    return folder
