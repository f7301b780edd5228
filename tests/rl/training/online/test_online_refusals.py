"""What an online training cannot do is refused before anything starts."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.policies.base import PolicyError, PolicyRefused  # noqa: E402
from kernelwright.rl.training.online.training import formula_of, train_online  # noqa: E402
from kernelwright.rl.training.options import Method  # noqa: E402
from tests.rl.training.online.online_options import options  # noqa: E402


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"reward": "kevin"}, "needs a GPU's speed"),
        ({"judge": "guess"}, "choose interpreted, compiled or cuda"),
        ({"judge": "cuda:0"}, "GPU"),
        ({"method": Method.RFT}, "--online trains by grpo"),
        ({"engine": "steam"}, "choose auto"),
        ({"settings": {"temperature": 1.6}}, "--set temperature=1.6: use --temperature instead"),
        ({"settings": {"top_k": 5}}, "--set top_k=5: use --temperature instead"),
        ({"engine": "openai:m@nowhere"}, "http://HOST:PORT/v1"),
        ({"engine": "openai:m@http://127.0.0.1:9/v1"}, "is the server up"),
    ],
)
def test_what_an_online_training_cannot_do_is_refused_before_anything_starts(
    novice, problems, tmp_path, more, said
):
    with pytest.raises((InputError, PolicyError), match=said):
        train_online(options(novice, problems, tmp_path / "out", **more))
    assert not (tmp_path / "out.training").exists()


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_an_engine_that_is_not_installed_is_named_as_a_missing_package(novice, problems, tmp_path):
    with pytest.raises(ModuleNotFoundError, match="vllm"):
        train_online(options(novice, problems, tmp_path / "out", engine="vllm"))


def test_a_launcher_with_deepspeed_is_refused_with_what_shards_here(
    novice, problems, tmp_path, monkeypatch
):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(InputError, match="shard with --gpus N"):
        train_online(options(novice, problems, tmp_path / "out"))
    assert not (tmp_path / "out.training").exists()


def test_the_reward_of_a_gpus_verdicts_counts_speed_where_none_is_named(novice, problems, tmp_path):
    assert formula_of(options(novice, problems, tmp_path / "out")).name == "execution"
    assert formula_of(options(novice, problems, tmp_path / "out", judge="cuda:0")).name == "default"


def test_a_loop_of_another_policy_or_of_none_is_refused(novice, problems, tmp_path):
    from kernelwright.rl.training.online.loop_folder import begin
    from kernelwright.rl.training.online.looping import run_loop
    from kernelwright.rl.training.online.options import LoopOptions

    fields = {
        **options(novice, problems, tmp_path / "loop").model_dump(),
        "held_out": (problems,),
        "cycles": 1,
    }
    with pytest.raises(PolicyRefused, match="no model at"):
        run_loop(LoopOptions(**{**fields, "policy": "transformers:/nowhere"}))
    assert begin(LoopOptions(**fields)) == []
    assert begin(LoopOptions(**{**fields, "cycles": 9})) == []
    with pytest.raises(InputError, match="another --out"):
        begin(LoopOptions(**{**fields, "group": 99}))


def test_what_rl_loop_asks_of_its_rollouts_is_what_rl_train_asks(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from kernelwright.rl.cli import build

    asked = []
    monkeypatch.setattr(
        "kernelwright.rl.command_line.loop._looped", lambda options, as_json: asked.append(options)
    )
    words = ["loop", "--out", str(tmp_path / "loop"), "--own-work", "share:0.8", "--lag", "2"]
    assert CliRunner().invoke(build(), words).exit_code == 0
    assert (asked[0].own_work, asked[0].lag) == ("share:0.8", 2)
    assert asked[0].temperature == 1.0
    assert CliRunner().invoke(build(), [*words, "--temperature", "1.6"]).exit_code == 0
    assert asked.pop().temperature == 1.6
    wrong = CliRunner().invoke(build(), [*words, "--own-work", "maybe"])
    assert isinstance(wrong.exception, InputError)
    assert len(asked) == 1
