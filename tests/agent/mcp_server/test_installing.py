"""The server and the skill, installed as a client reads them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from kernelwright.agent.mcp_server.installing import CLIENT_FILES, install
from kernelwright.agent.mcp_server.installing import ClientProgram as Coding
from kernelwright.errors import InputError

from .conftest import ROOT, TOOLS, environment


def tool_names(entry: dict, folder: Path) -> set[str]:
    """Starts the server as the client would, from its own configuration."""

    async def ask() -> set[str]:
        params = StdioServerParameters(
            command=entry["command"], args=entry["args"], env=environment(), cwd=str(folder)
        )
        async with Client(params) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    return asyncio.run(ask())


def test_claude_code_finds_the_server_and_the_skill_beside_what_was_there(tmp_path):
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "other"}}}')
    done = install(Coding.CLAUDE, tmp_path, user=False, arguments=("--device", "cpu"))
    servers = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]
    assert servers["other"] == {"command": "other"}
    assert "check" in tool_names(servers["kernelwright"], tmp_path)
    assert done.skill == tmp_path / ".claude" / "skills" / "kernelwright"
    assert not done.replaced
    assert install(Coding.CLAUDE, tmp_path, user=False).replaced


def test_the_servers_options_are_in_the_entry(tmp_path):
    (tmp_path / "KernelBench").mkdir()
    words = ["install", "--client", "claude", "--verdicts", "7", "--kernelbench", "KernelBench"]
    subprocess.run(
        [sys.executable, "-m", "kernelwright.agent", "mcp", *words],
        cwd=tmp_path, env=environment(), check=True, capture_output=True,
    )  # fmt: skip
    entry = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["kernelwright"]
    given = entry["args"][entry["args"].index("mcp") + 1 :]
    assert given == ["--verdicts", "7", "--kernelbench", str(tmp_path / "KernelBench")]


def test_codex_finds_the_server_and_the_skill_and_comments_stay(tmp_path):
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(
        '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "other"\n'
    )
    install(Coding.CODEX, tmp_path, user=False, arguments=("--device", "cpu"))
    text = (tmp_path / ".codex" / "config.toml").read_text()
    assert text.startswith("# mine")
    servers = tomllib.loads(text)["mcp_servers"]
    assert servers["other"] == {"command": "other"}
    assert "check" in tool_names(servers["kernelwright"], tmp_path)
    assert (tmp_path / ".agents" / "skills" / "kernelwright" / "SKILL.md").is_file()


JSON_CLIENTS = {
    Coding.CLAUDE: (".mcp.json", ".claude.json", "mcpServers"),
    Coding.CURSOR: (".cursor/mcp.json", ".cursor/mcp.json", "mcpServers"),
    Coding.VSCODE: (".vscode/mcp.json", ".config/Code/User/mcp.json", "servers"),
    Coding.GEMINI: (".gemini/settings.json", ".gemini/settings.json", "mcpServers"),
}
"""The files of each client by its documentation: of a project, of a user, and the object that names servers."""


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_each_client_reads_its_entry_where_its_documentation_says(tmp_path, monkeypatch, client):
    project, user, servers = JSON_CLIENTS[client]
    (tmp_path / project).parent.mkdir(exist_ok=True)
    (tmp_path / project).write_text('{"theme": "dark"}')
    install(client, tmp_path, user=False)
    written = json.loads((tmp_path / project).read_text())
    assert written["theme"] == "dark"
    entry = written[servers]["kernelwright"]
    assert (entry["command"], entry["args"][-1]) == (sys.executable, "mcp")
    assert entry.get("type", "stdio") == "stdio"
    done = install(client, tmp_path, user=True)
    assert (done.skill / "SKILL.md").is_file()
    if sys.platform == "linux":
        assert done.configuration == tmp_path / user


@pytest.mark.parametrize("client", Coding)
def test_a_configuration_keeps_its_mode_and_stays_a_link(tmp_path, client):
    home, dotfiles = tmp_path / "home", tmp_path / "dotfiles"
    name = CLIENT_FILES[client].user
    (home / name).parent.mkdir(parents=True)
    dotfiles.mkdir()
    secret = dotfiles / "secret"
    secret.write_text("key = 1\n" if client is Coding.CODEX else '{"key": 1}')
    secret.chmod(0o600)
    (home / name).symlink_to(secret)
    install(client, home, user=True)
    assert (home / name).is_symlink()
    assert secret.stat().st_mode & 0o777 == 0o600
    assert "kernelwright" in secret.read_text()
    assert "key" in secret.read_text()
    assert [path.name for path in dotfiles.iterdir()] == ["secret"]


@pytest.mark.parametrize(
    ("client", "name", "text"),
    [
        (Coding.CLAUDE, ".mcp.json", "{"),
        (Coding.CLAUDE, ".mcp.json", '{"mcpServers": []}'),
        (Coding.VSCODE, ".vscode/mcp.json", '// mine\n{"servers": {}}'),
        (Coding.CODEX, ".codex/config.toml", "mcp_servers = ["),
    ],
)
def test_a_configuration_that_cannot_be_read_is_left_alone(tmp_path, client, name, text):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(InputError, match="correct the file"):
        install(client, tmp_path, user=False)
    assert file.read_text() == text
    assert not (tmp_path / ".agents").exists()


def test_the_skill_is_named_as_its_folder_and_names_only_tools_that_exist():
    folder = ROOT / "skills" / "kernelwright"
    text = (folder / "SKILL.md").read_text()
    front = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", text)
    assert front is not None
    assert front[1] == folder.name
    assert len(front[2]) <= 1024  # the most that a client reads of a description
    tools = (ROOT / "agent" / "mcp_server" / "tools.py").read_text()
    for name in TOOLS:
        assert f"`{name}`" in text
        assert re.search(rf"def {name}\(", tools)
