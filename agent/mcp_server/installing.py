"""Installs the server in a coding agent: its entry in the client's configuration, and the skill."""

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
"""Time limit for the server's start in Codex's configuration, in seconds. Codex's default is 10."""


class ClientProgram(StrEnum):
    """Program to be configured."""

    CLAUDE = "claude"
    CODEX = "codex"
    CURSOR = "cursor"
    VSCODE = "vscode"
    GEMINI = "gemini"


class ClientFiles(Value):
    """Files of a client for servers and skills."""

    project: str
    """Configuration file of a project, relative to the project's folder."""
    user: str
    """Configuration file of all projects, relative to the home folder."""
    servers: str
    """Name of the JSON object or TOML table of servers."""
    skills: str
    """Folder of skills, relative to the project's or the home folder."""
    names_transport: bool = False
    """Whether the entry needs `"type": "stdio"`."""


VSCODE_USER_FOLDERS = {"darwin": "Library/Application Support/Code/User"}
"""The folder of a user's settings of VS Code by platform, from the home folder."""
CLIENT_FILES = {
    ClientProgram.CLAUDE: ClientFiles(
        project=".mcp.json", user=".claude.json", servers="mcpServers", skills=".claude/skills", names_transport=True,
    ),
    ClientProgram.CODEX: ClientFiles(
        project=".codex/config.toml", user=".codex/config.toml", servers="mcp_servers", skills=".agents/skills",
    ),
    ClientProgram.CURSOR: ClientFiles(
        project=".cursor/mcp.json", user=".cursor/mcp.json", servers="mcpServers", skills=".agents/skills",
    ),
    ClientProgram.VSCODE: ClientFiles(
        project=".vscode/mcp.json", user=VSCODE_USER_FOLDERS.get(sys.platform, ".config/Code/User") + "/mcp.json",
        servers="servers", skills=".agents/skills", names_transport=True,
    ),
    ClientProgram.GEMINI: ClientFiles(
        project=".gemini/settings.json", user=".gemini/settings.json", servers="mcpServers", skills=".agents/skills",
    ),
}  # fmt: skip


class Installed(Value):
    """Files written by an installation."""

    client: ClientProgram
    configuration: Path
    skill: Path
    replaced: bool
    """Whether an earlier entry of this server was replaced."""


def install(
    client: ClientProgram, root: Path, *, user: bool, arguments: tuple[str, ...] = ()
) -> Installed:
    """Writes the configuration and the skill of a client.

    root: the project's folder, or the home folder if `user` is set. arguments: command-line
    arguments after `agent mcp`.

    Raises InputError without writing anything if the client's configuration is malformed.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: name the project's folder with --project")
    command = [sys.executable, "-m", "kernelwright.agent", "mcp", *arguments]
    files = CLIENT_FILES[client]
    configuration = root / (files.user if user else files.project)
    entry: dict[str, Any] = {"command": command[0], "args": command[1:]}
    if files.names_transport:
        entry = {"type": "stdio", **entry}
    if configuration.suffix == ".toml":
        replaced = _write_toml(configuration, command)
    else:
        replaced = _write_json(configuration, files.servers, entry)
    skill = _copy_skill(root / files.skills)
    return Installed(client=client, configuration=configuration, skill=skill, replaced=replaced)


def _write_json(path: Path, servers_name: str, entry: dict[str, Any]) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        by_hand = json.dumps({SERVER_NAME: entry})
        raise InputError(
            f"{path} is not JSON ({error}): correct the file, then install again; or add to its {servers_name} by "
            f"hand, where it has comments: {by_hand}"
        ) from None
    servers = content.setdefault(servers_name, {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise InputError(
            f"{path} has no object {servers_name}: correct the file, then install again"
        )
    replaced = SERVER_NAME in servers
    servers[SERVER_NAME] = entry
    _write(path, json.dumps(content, indent=2) + "\n")
    return replaced


def _write_toml(path: Path, command: list[str]) -> bool:
    """Writes the entry; comments and the order of the other entries stay as they are."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8") if path.exists() else "")
    except TOMLKitError as error:
        raise InputError(
            f"{path} is not TOML ({error}): correct the file, then install again"
        ) from None
    servers = document.setdefault("mcp_servers", tomlkit.table(is_super_table=True))
    if not isinstance(servers, dict):
        raise InputError(f"{path} has no table mcp_servers: correct the file, then install again")
    replaced = SERVER_NAME in servers
    entry = tomlkit.table()
    entry.update({"command": command[0], "args": command[1:], "startup_timeout_sec": CODEX_SECONDS})
    servers[SERVER_NAME] = entry
    _write(path, tomlkit.dumps(document))
    return replaced


def _write(path: Path, text: str) -> None:
    """Replaces a file in one step, so no client reads a half-written file.

    The mode of the file is kept, because configurations hold keys. A symbolic link (from a folder
    of dotfiles) stays one.
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
