"""The circle in miniature: a tiny policy is sampled by the agent's own machine, judged by the real tools, logged,
trained, and is better.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.agent.rewards.formula import FORMULA_PRESETS  # noqa: E402
from kernelwright.errors import InputError  # noqa: E402
from kernelwright.policies.base import Message, Request, Role, Sampling  # noqa: E402
from kernelwright.rl.training.from_log import train_from_log  # noqa: E402
from kernelwright.rl.training.online.folder_samplers import FolderSampler  # noqa: E402
from kernelwright.rl.training.online.problem_source import ProblemSource  # noqa: E402
from kernelwright.rl.training.online.rounds import RoundContext, Rounds  # noqa: E402
from kernelwright.rl.training.online.sampler import InProcessSampler, open_samplers, whole_weights  # noqa: E402
from kernelwright.rl.training.online.training import train_online  # noqa: E402
from kernelwright.rl.training.options import LogOptions, Method  # noqa: E402
from kernelwright.rl.training.subject import load_weights, open_subject  # noqa: E402
from kernelwright.store.database import Store  # noqa: E402
from kernelwright.store.records import CandidateFilter  # noqa: E402
from tests.rl.novice import KERNEL, OPERATIONS, problem  # noqa: E402
from tests.rl.training.online.online_options import options  # noqa: E402


def right(path: Path | str, samples: int = 20) -> float:
    """Share of drafts at temperature 1 that are the right program, on seeds that no round draws."""
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.policies.base import PromptForm
    from kernelwright.policies.local.in_process_policy import InProcessPolicy
    from kernelwright.store.models import Action

    prompts, policy = Prompts(PromptForm.COMPACT), InProcessPolicy(str(path), device="cpu")
    asked = [
        (name, prompts.messages(PromptFields(problem=problem(name), action=Action.DRAFT)))
        for name in OPERATIONS
    ]
    requests = [
        Request(messages=messages, sampling=Sampling(max_tokens=40, seed=10**8 + seed))
        for _, messages in asked
        for seed in range(samples)
    ]
    wanted = [
        KERNEL.format(OPERATIONS[name][1]).strip() for name, _ in asked for _ in range(samples)
    ]
    return sum(
        c.text.strip() == w for c, w in zip(policy.sample(requests), wanted, strict=True)
    ) / len(wanted)


@pytest.fixture(scope="module")
def round_of_the_novice(novice, judges, problems, tmp_path_factory):
    """One round, logged."""
    asked = options(novice, problems, tmp_path_factory.mktemp("round") / "out", group=10)
    subject = open_subject(asked.policy)
    with Store.open(asked.db) as store:
        context = RoundContext(store, judges, asked, FORMULA_PRESETS["execution"])
        rounds = Rounds(context, InProcessSampler(subject, asked).policy, "first")
        yield asked, rounds.run(0, ProblemSource(asked.problems, 0).at(0, 3)), rounds, store


@pytest.mark.slow
def test_a_round_is_drafted_judged_repaired_and_logged_by_the_agents_own_machine(
    round_of_the_novice, judges
):
    _, found, _, store = round_of_the_novice
    trajectories = store.trajectories(limit=None)
    assert len(trajectories) == 30
    assert {row.stop_reason for row in trajectories} <= {
        "target_reached",
        "turns",
        "stuck",
        "format_errors",
    }
    assert 0.2 < found.figures["pass_at_1"] < 0.8
    assert "repair_rate" in found.figures
    assert sum(
        sample.advantage for sample in found.log.samples if sample.depth == 0
    ) == pytest.approx(0.0, abs=1e-9)


def test_identical_candidates_are_judged_once(round_of_the_novice, judges):
    figures = judges.figures
    assert figures.requested >= 30
    assert figures.judged <= figures.requested // 2


def test_a_round_that_is_done_is_not_done_again(round_of_the_novice, judges):
    asked, found, rounds, store = round_of_the_novice
    before = store.count()
    again = rounds.run(0, ProblemSource(asked.problems, 0).at(0, 3))
    assert store.count() == before
    assert [s.candidate_id for s in again.log.samples] == [
        s.candidate_id for s in found.log.samples
    ]


def test_trained_from_its_own_log_and_loaded_again_the_policy_is_better(
    round_of_the_novice, novice, tmp_path
):
    """The circle: sampled by the agent, logged, trained from the log alone, reloaded."""
    asked, _, _, _ = round_of_the_novice
    settings = {"per_device_train_batch_size": 32, "learning_rate": 1e-3, "warmup_steps": 0}
    trained = train_from_log(
        LogOptions(db=asked.db, policy=f"transformers:{novice}", output=tmp_path / "better", settings=settings,
        max_steps=6, method=Method.GRPO),
        show=lambda plan: None,
    )  # fmt: skip
    assert trained is not None
    assert right(trained.output, 100) > right(novice, 100) + 0.1


@pytest.fixture(scope="module")
def trained_online(novice, problems, tmp_path_factory):
    folder, lines = tmp_path_factory.mktemp("online"), []
    trained = train_online(
        options(novice, problems, folder / "better", max_steps=5, lag=1),
        watch=lambda step, of, figures: lines.append(figures),
    )
    return trained, lines, folder


@pytest.mark.slow
@pytest.mark.nightly
def test_a_temperature_is_that_of_the_sampling_and_of_the_loss(novice, problems, tmp_path):
    lines, asked = (
        [],
        options(novice, problems, tmp_path / "warm", max_steps=1, turns=1, temperature=1.6),
    )
    train_online(asked, watch=lambda step, of, figures: lines.append(figures))
    assert lines[0]["drift/largest_log_ratio"] < 1e-3, (
        "the loss divides by the temperature that was sampled at"
    )
    with Store.open(asked.db, readonly=True) as store:
        assert {turn.sampling.temperature for turn in store.samples(CandidateFilter())} == {1.6}


@pytest.mark.slow
@pytest.mark.nightly
def test_trained_online_the_policy_is_better_and_says_how_it_went(trained_online, novice):
    trained, lines, folder = trained_online
    assert trained.steps == 5
    assert right(trained.output) > right(novice) + 0.2
    assert {
        "reward",
        "pass_at_1",
        "compile_rate",
        "drift/kl",
        "entropy",
        "completion_length",
        "zero_variance",
        "seconds/training",
    } <= set(lines[-1])
    assert lines[0]["drift/effective_sample_size"] > 0.99
    notes = json.loads((Path(trained.output) / "kernelwright.json").read_text())
    assert len(set(notes["lineage"])) == len(notes["lineage"]) == 4, (
        "its own, and those of three steps that were sampled from"
    )
    assert (folder / "runs.db").is_file()


@pytest.mark.slow
@pytest.mark.nightly
def test_two_rounds_under_way_each_come_from_one_revision_and_are_two_steps_old(
    novice, problems, tmp_path, monkeypatch
):
    lines, said = [], []
    monkeypatch.setattr("kernelwright.rl.training.online.batches.SILENCE_SECONDS", 0.05)
    asked = options(novice, problems, tmp_path / "better", max_steps=5, lag=2, group=4)
    trained = train_online(
        asked, watch=lambda step, of, figures: lines.append(figures), say=said.append
    )
    waiting = [line for line in said if line.startswith("waiting for round 1 ")]
    assert any("CPU rungs: " in line and "policy: " in line for line in waiting), (
        "who waits long is told where its runs are"
    )
    lineage = json.loads((Path(trained.output) / "kernelwright.json").read_text())["lineage"]
    with Store.open(asked.db) as store:
        entries = store.candidates(limit=None)
        runs = {t.id: t.run_id for t in store.trajectories(limit=None)}
        used: dict[int, set[str | None]] = {run: set() for run in runs.values()}
        for e in entries:
            used[runs[e.candidate.trajectory_id]].add(e.candidate.policy_revision)
    assert all(len(revisions) == 1 for revisions in used.values())
    by_round = [revisions.pop() for _, revisions in sorted(used.items())]
    sampled = [revision for revision in lineage if revision in by_round]
    assert by_round[0] == open_subject(asked.policy).revision, (
        "so a log says of its first rounds how old they are"
    )
    assert by_round[0] == by_round[1] == by_round[2], (
        "all were started before the first step had been made"
    )
    assert by_round[2:] == sampled, "then each comes from the weights two steps before its own"
    assert len(set(sampled)) == 3
    assert len(lines) == 5
    assert lines[-1]["verdicts"] >= 0


@pytest.mark.slow
@pytest.mark.nightly
def test_the_same_command_does_not_write_over_a_policy_that_is_there(
    trained_online, novice, problems
):
    folder = trained_online[2]
    with pytest.raises(InputError, match="exists already"):
        train_online(options(novice, problems, folder / "better", max_steps=5, lag=1))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["transformers", "process"])
def test_the_next_round_comes_from_the_weights_that_were_trained(novice, tmp_path, engine):
    subject = open_subject(f"transformers:{novice}")
    [sampler] = open_samplers(subject, options(novice, "synth", tmp_path / "out", engine=engine))
    model = load_weights(subject, "cpu", False)
    request = Request(
        messages=(Message(role=Role.USER, content="draft"),),
        sampling=Sampling(max_tokens=4, seed=1),
    )
    assert sampler.follow(model, "known") == "known" == sampler.policy.sample([request])[0].revision
    first = sampler.follow(model)
    assert sampler.policy.sample([request])[0].revision == first
    with torch.no_grad():
        model.get_input_embeddings().weight.add_(0.01)
    assert sampler.follow(model) != first
    assert sampler.policy.sample([request])[0].revision != first
    assert sampler.drawn()[0] > 0
    sampler.close()


@pytest.mark.slow
@pytest.mark.nightly
def test_sampled_in_a_process_of_its_own_a_training_is_the_same(novice, problems, tmp_path):
    """Seeds decide what is drawn, so the first round is the same one; later ones as far as floating point goes,
    since which rows meet in a batch is a matter of time.
    """
    ways = {}
    for engine in ("transformers", "process"):
        lines = []
        asked = options(novice, problems, tmp_path / engine / "better", max_steps=2, engine=engine)
        train_online(asked, watch=lambda step, of, figures, lines=lines: lines.append(figures))
        ways[engine] = [
            (line["reward"], line["pass_at_1"], line["completion_length"]) for line in lines
        ]
    # A mean's last bit depends on which trajectory was begun first.
    assert ways["process"][0] == pytest.approx(ways["transformers"][0], rel=1e-12)
    assert ways["process"][1] == pytest.approx(ways["transformers"][1], rel=0.5)


def test_an_adapter_is_folded_into_the_weights_that_sample(novice, tmp_path):
    subject = open_subject(f"transformers:{novice}")
    model = load_weights(subject, "cpu", lora=True).eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    sampler = InProcessSampler(subject, options(novice, "synth", tmp_path / "out"))
    sampler.follow(model)
    ids = torch.tensor([[3, 4, 5, 6]])
    sampled = sampler.policy._loaded.base
    assert torch.allclose(sampled(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-4)
    assert set(whole_weights(model)) == set(sampled.state_dict())


def test_a_policy_that_takes_adapters_follows_by_a_folder_a_round(novice, tmp_path):
    from kernelwright.policies.local.transformers_policy import TransformersPolicy

    subject = open_subject(f"transformers:{novice}")
    model = load_weights(subject, "cpu", lora=True)
    under = TransformersPolicy(str(novice), device="cpu")
    sampler = FolderSampler(under, tmp_path, subject, lora=True, take=str, together=True)
    request = Request(
        messages=(Message(role=Role.USER, content="draft"),),
        sampling=Sampling(max_tokens=4, seed=1),
    )
    revisions = [sampler.follow(model)]
    said = sampler.policy.sample([request])[0]
    assert f"{said.revision}+{said.adapter_revision}" == revisions[0], (
        "as a log and a lineage name it"
    )
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    revisions.append(sampler.follow(model))
    said = sampler.policy.sample([request])[0]
    assert f"{said.revision}+{said.adapter_revision}" == revisions[1] != revisions[0]
    assert sampler.drawn()[0] == 8


@pytest.mark.slow
@pytest.mark.nightly
def test_a_loop_promotes_a_candidate_that_is_better_and_does_no_cycle_twice(
    novice, problems, tmp_path
):
    from kernelwright.rl.training.online.loop_folder import POLICY
    from kernelwright.rl.training.online.looping import run_loop
    from kernelwright.rl.training.online.options import LoopOptions

    fields = options(novice, problems, tmp_path / "loop").model_dump()
    asked = LoopOptions(
        **{**fields, "held_out": (problems,), "cycles": 1, "steps": 4, "samples": 16}
    )
    [cycle] = run_loop(asked)
    assert cycle.promoted, cycle.why
    assert cycle.compared[0].after > cycle.compared[0].before
    assert right(tmp_path / "loop" / POLICY) > right(novice)
    assert run_loop(asked) == [cycle]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_loop_can_train_from_what_each_cycle_logged(novice, problems, tmp_path):
    from kernelwright.rl.training.online.looping import run_loop
    from kernelwright.rl.training.online.options import LoopOptions

    fields = options(novice, problems, tmp_path / "loop", group=16).model_dump()
    fields["settings"] = {
        "per_device_train_batch_size": 32,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
    }
    asked = LoopOptions(
        **{**fields, "held_out": (problems,), "cycles": 1, "steps": 6, "samples": 16, "how": "log"}
    )
    [cycle] = run_loop(asked)
    assert cycle.compared[0].after > cycle.compared[0].before
