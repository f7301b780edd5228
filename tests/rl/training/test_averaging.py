"""The mean of several policies' weights: what it is, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from kernelwright.errors import InputError
from kernelwright.policies.model_identity import weights_revision
from kernelwright.policies.policy_card import CARD_FILE
from kernelwright.rl.cli import build
from kernelwright.rl.training.averaging import average_policies
from kernelwright.rl.training.options import Storage
from kernelwright.rl.training.subject import open_subject
from tests.tiny_model import save_tiny_model


def trained(folder: Path, ancestor: Path, by: float) -> str:
    """The ancestor with every weight moved, as a training leaves it."""
    save_tiny_model(folder)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {n: v + by for n, v in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    notes = {"prompt_form": "compact", "lineage": [weights_revision(ancestor)], "step": 3}
    (folder / CARD_FILE).write_text(json.dumps(notes))
    return f"transformers:{folder}"


@pytest.fixture
def policies(tmp_path) -> list[str]:
    ancestor = save_tiny_model(tmp_path / "ancestor")
    return [trained(tmp_path / f"seed{n}", ancestor, by) for n, by in enumerate((0.5, -0.2, 0.3))]


def test_the_mean_is_written_whole_and_knows_where_it_comes_from(tmp_path, policies):
    done = average_policies(policies, tmp_path / "mean")
    ancestor, mean = (
        load_file(tmp_path / name / "model.safetensors") for name in ("ancestor", "mean")
    )
    for name, value in ancestor.items():
        assert (mean[name] - value - 0.2).abs().max() < 1e-6
    subject = open_subject(f"transformers:{done.output}")
    assert subject.lineage[0] == done.ancestor == weights_revision(tmp_path / "ancestor")
    assert [one.step for one in subject.card.averaged] == [3, 3, 3]
    assert done.distances[0] > done.distances[2], "0.3 and 0.1 from the mean"
    assert list(tmp_path.glob(".mean*")) == []


def test_it_answers_as_a_policy(tmp_path, policies):
    from kernelwright.policies.base import Message, Request, Role, Sampling
    from kernelwright.policies.local.transformers_policy import TransformersPolicy

    average_policies(policies, tmp_path / "mean", storage=Storage.BF16)
    asked = Request(
        messages=(Message(role=Role.USER, content="import"),),
        sampling=Sampling(max_tokens=4, seed=1),
    )
    policy = TransformersPolicy(str(tmp_path / "mean"), device="cpu")
    [completion] = policy.sample([asked])
    policy.close()
    assert completion.token_ids


def test_what_cannot_be_averaged_is_refused(tmp_path, policies):
    stranger = save_tiny_model(tmp_path / "stranger", seed=1)
    refusals = {
        "two policies or more": policies[:1],
        "not trained from one policy": [policies[0], f"transformers:{stranger}"],
    }
    for words, asked in refusals.items():
        with pytest.raises(InputError, match=words):
            average_policies(asked, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()
    average_policies(refusals["not trained from one policy"], tmp_path / "mean", force=True)
    with pytest.raises(InputError, match="exists already"):
        average_policies(policies, tmp_path / "mean")


def test_the_command(tmp_path, policies):
    asked = ["average", *policies, "--out", str(tmp_path / "mean")]
    done = CliRunner().invoke(build(), [*asked, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["parameters"] > 0
    assert isinstance(
        CliRunner()
        .invoke(build(), [*asked[:-1], str(tmp_path / "b"), "--storage", "int3"])
        .exception,
        InputError,
    )


@pytest.mark.parametrize(
    ("storage", "kind"), [(Storage.BF16, "bfloat16"), (Storage.FP32, "float32")]
)
def test_its_config_names_the_type_that_is_stored(tmp_path, policies, storage, kind):
    average_policies(policies, tmp_path / "mean", storage=storage)
    stored = load_file(tmp_path / "mean" / "model.safetensors")
    assert json.loads((tmp_path / "mean" / "config.json").read_text())["dtype"] == kind
    assert {str(value.dtype) for value in stored.values()} == {f"torch.{kind}"}


def test_an_option_by_its_old_name_is_accepted_for_a_release_with_a_warning(capsys):
    from kernelwright.agent.runtime.command_class import RENAMED_IN_RL, with_current_names

    assert with_current_names(["train", "--output=x", "--output", "y"], RENAMED_IN_RL["train"]) == [
        "train",
        "--out=x",
        "--out",
        "y",
    ]
    assert "--output is now called --out" in capsys.readouterr().err
