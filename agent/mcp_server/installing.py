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
    CURSOR = "cursor"
    VSCODE = "vscode"
    GEMINI = "gemini"


class ClientFiles(Value):
    """The files in which a client looks for servers and skills."""

    project: str
    """The configuration of one project, from its folder."""
    user: str
    """The configuration of all projects, from the home folder."""
    servers: str
    """The object or table of that file that names the servers."""
    skills: str
    """The folder of skills, from the project's or the home folder."""
    names_transport: bool = False
    """Whether an entry says that the server speaks over stdio."""


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
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        by_hand = json.dumps({SERVER_NAME: entry})
        raise InputError(
            f"{path} is not JSON ({error}): correct the file, then install again; or add to its {servers_name} by "
            f"hand, where it has comments: {by_hand}"
        ) from None
    servers = found.setdefault(servers_name, {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise InputError(
            f"{path} has no object {servers_name}: correct the file, then install again"
        )
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
