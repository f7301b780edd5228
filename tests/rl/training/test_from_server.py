"""`rl stats`, `rl rewards` and `rl train --from-trajectories` with the URL of a PostgreSQL server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.cli import main
from tests.postgres_server import PASSWORD, postgres_server
from tests.rl.training.test_from_log import logged
from tests.tiny_model import save_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def command(capsys, *words: str) -> str:
    """What `rl` prints."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    assert PASSWORD not in said.out + said.err
    return said.out


def test_a_log_on_a_server_is_counted_scored_and_trained_on_and_nothing_keeps_the_password(
    tmp_path, capsys
):
    tiny = save_tiny_model(tmp_path / "model")
    with postgres_server() as server:
        where = server.new_place()
        logged(tmp_path, tiny, samples=8, where=where)
        assert json.loads(command(capsys, "stats", "--db", where, "--json"))["turns"] == 32
        assert json.loads(command(capsys, "rewards", "--db", where, "--json"))["stored"] == 32
        asked = (
            "--policy",
            f"transformers:{tiny}",
            "--out",
            str(tmp_path / "better"),
            "--max-steps",
            "2",
            "--json",
        )
        told = json.loads(command(capsys, "train", "--from-trajectories", where, *asked))
    folder = Path(told["output"])
    assert (folder / "model.safetensors").is_file()
    written = [
        path for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"
    ]
    assert written
    assert not any(PASSWORD.encode() in path.read_bytes() for path in written)
    assert json.loads((folder / "kernelwright.json").read_text())["trained_from"].startswith(
        "postgresql+psycopg://tester:***@127.0.0.1"
    )
