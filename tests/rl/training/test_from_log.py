"""`rl train --from-trajectories` on a real tiny policy: what it refuses, what it chooses, that it learns, and that
a killed run goes on as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.policies.base import (  # noqa: E402
    Completion,
    FinishReason,
    Message,
    Request,
    Role,
    Sampling,
)
from kernelwright.policies.opening.open_policy import open_policy  # noqa: E402
from kernelwright.policies.policy_card import PolicyCard, read_card, write_card  # noqa: E402
from kernelwright.rl.cli import main  # noqa: E402
from kernelwright.rl.command_line.show.training import trained_view  # noqa: E402
from kernelwright.rl.log.dataset import Sample  # noqa: E402
from kernelwright.rl.log.refusals import TurnRefusal  # noqa: E402
from kernelwright.rl.training.from_log import train_from_log  # noqa: E402
from kernelwright.rl.training.grpo.rows import ScoredCompletion  # noqa: E402
from kernelwright.rl.training.options import LogOptions, Method  # noqa: E402
from kernelwright.rl.training.other_methods import TurnTokenizer, select_samples  # noqa: E402
from kernelwright.rl.training.report import curve_panels, draw_curves  # noqa: E402
from kernelwright.rl.training.safety.alarms import TrainingAlarm  # noqa: E402
from kernelwright.rl.training.subject import open_subject  # noqa: E402
from kernelwright.store.database import Store  # noqa: E402
from kernelwright.store.models import Action  # noqa: E402
from kernelwright.store.records import TrajectoryStart  # noqa: E402
from kernelwright.tools.problem import Problem  # noqa: E402
from tests.rl.logged import REFERENCE, verdict  # noqa: E402
from tests.rl.tiny_rows import loaded, scored  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

LOW = 150
"""The toy task: at least five of ten tokens have a smaller number."""
PROMPTS = ("softmax", "add", "store", "load")


def ask(policy, name: str, seeds: range, tokens: int = 10) -> list[tuple[Request, Completion]]:
    messages = (Message(role=Role.USER, content=name),)
    requests = [
        Request(messages=messages, sampling=Sampling(max_tokens=tokens, seed=seed))
        for seed in seeds
    ]
    return list(zip(requests, policy.sample(requests), strict=True))


def worth(completion: Completion) -> bool:
    return sum(token < LOW for token in completion.token_ids or ()) >= 5


def logged(
    folder: Path, model: Path, samples: int = 24, where: str | None = None, **changes
) -> Path:
    """What the tiny policy really says to a few prompts, judged by the toy task."""
    path = folder / "runs.db"
    policy = open_policy(f"transformers:{model}", device="cpu", at_once=64)
    with Store.open(where or path) as store:
        for number, name in enumerate(PROMPTS):
            for sample, (request, completion) in enumerate(
                ask(policy, name, range(1000 * number, 1000 * number + samples))
            ):
                start = TrajectoryStart(
                    problem=Problem(name=name, source=REFERENCE.format(name)),
                    policy=policy.name,
                    options={"sample": sample},
                )
                trajectory = store.begin(start)
                row = store.draft(trajectory.id, request, action=Action.DRAFT)
                store.complete(row.id, completion.with_(**changes), completion.text)
                store.judge(row.id, verdict(worth(completion)))
                store.finish(trajectory.id, "turns")
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def log(tmp_path_factory, tiny) -> Path:
    return logged(tmp_path_factory.mktemp("log"), tiny)


def options(log: Path, tiny: Path, output: Path, **more) -> LogOptions:
    settings = {
        "per_device_train_batch_size": 16,
        "learning_rate": 2e-3,
        "warmup_steps": 0,
        **more.pop("settings", {}),
    }
    return LogOptions(
        db=str(log), policy=f"transformers:{tiny}", output=output, settings=settings, **more
    )


def train(*arguments, **more):
    plans = []
    trained = train_from_log(options(*arguments, **more), show=plans.append)
    return trained, plans[0]


def share_right(model: Path, count: int = 40) -> float:
    policy = open_policy(f"transformers:{model}", device="cpu", at_once=64)
    said = [
        completion
        for name in PROMPTS
        for _, completion in ask(policy, name, range(7_000, 7_000 + count // 4))
    ]
    return sum(map(worth, said)) / len(said)


@pytest.fixture(scope="module")
def improved(log, tiny, tmp_path_factory):
    return train(log, tiny, tmp_path_factory.mktemp("out") / "better", max_steps=12)


def advantage_of_right(model: Path, log: Path) -> float:
    """How much likelier the log's right replies are than its wrong ones, nats a token."""
    network, _ = loaded(model)
    sides: dict[bool, list[float]] = {True: [], False: []}
    with Store.open(log, readonly=True) as store, torch.no_grad():
        for turn in store.samples():
            row = ScoredCompletion(
                turn.completion.prompt_token_ids, turn.completion.token_ids, (), 0.0
            )
            sides[turn.report.correct].append(float(scored(network.eval(), row).mean()))
    return sum(sides[True]) / len(sides[True]) - sum(sides[False]) / len(sides[False])


@pytest.mark.slow
def test_training_makes_the_right_replies_of_the_log_likelier_and_the_policy_loads_at_once(
    improved, log, tiny
):
    trained, plan = improved
    assert plan.method is Method.GRPO
    assert plan.drift.effective == pytest.approx(1.0, abs=1e-3)
    assert plan.ages == {"0": plan.used}
    assert advantage_of_right(Path(trained.output), log) > advantage_of_right(tiny, log) + 0.1
    assert share_right(Path(trained.output)) > 0.0


def test_the_policy_brings_its_curves_its_report_and_its_lineage(improved, tiny):
    folder = Path(improved[0].output)
    notes = json.loads((folder / "kernelwright.json").read_text())
    assert notes["lineage"] == [improved[1].revision]
    assert notes["method"] == "grpo"
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "effective sample size" in (folder / "report.html").read_text()
    assert not folder.with_name("better.training").exists()


def test_on_its_own_old_log_the_new_policy_knows_how_old_it_is(improved, log, tmp_path):
    _, plan = train(
        log,
        Path(improved[0].output),
        tmp_path / "again",
        max_steps=1,
        method=Method.GRPO,
        force=True,
    )
    assert set(plan.ages) == {"1"}
    assert plan.drift.effective < 0.9
    with pytest.raises(InputError, match="too many revisions back"):
        train(
            log,
            Path(improved[0].output),
            tmp_path / "third",
            max_steps=1,
            method=Method.GRPO,
            max_age=0,
        )


@pytest.mark.parametrize("method", [Method.RFT, Method.DPO, Method.KTO])
def test_the_other_methods_train_on_the_same_log(log, tiny, tmp_path, method):
    trained, _ = train(
        log,
        tiny,
        tmp_path / method,
        method=method,
        max_steps=3,
        settings={"per_device_train_batch_size": 4},
    )
    assert (trained.steps, trained.method) == (3, method)
    assert share_right(Path(trained.output), 8) >= 0.0


def test_a_log_without_log_probs_is_for_fine_tuning_and_says_so(tiny, tmp_path):
    bare = logged(tmp_path, tiny, samples=4, logprobs=None, exact=False)
    trained, plan = train(bare, tiny, tmp_path / "out", max_steps=2)
    assert plan.method is Method.RFT
    assert "no log-probs were stored" in plan.why
    assert trained.method is Method.RFT
    with pytest.raises(InputError, match="16 turns: no log-probs were stored"):
        train(bare, tiny, tmp_path / "other", method=Method.GRPO)


@pytest.mark.slow
@pytest.mark.nightly
def test_lora_gives_an_adapter_that_the_agent_takes(log, tiny, tmp_path):
    trained, _ = train(log, tiny, tmp_path / "adapter", lora=True, max_steps=2)
    policy = open_policy(f"transformers:{tiny}", device="cpu", adapter=trained.output)
    [(_, completion)] = ask(policy, "softmax", range(1))
    assert completion.adapter_revision
    assert f"--policy transformers:{tiny} --adapter {trained.output}" in trained_view(trained)
    further, _ = train(
        log,
        tiny,
        tmp_path / "further",
        adapter=trained.output,
        max_steps=1,
        method=Method.GRPO,
        force=True,
    )
    assert (Path(further.output) / "adapter_config.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--filter", "problem=nothing"], "leaves none of the 96 turns"),
        (["--set", "learning_rat=1"], "near ones are learning_rate"),
        (["--set", "max_steps=1"], "--set max_steps=1: use --max-steps"),
        (["--set", "temperature=1.6"], "--set temperature=1.6: use --temperature instead"),
        (
            ["--set", "num_iterations=4"],
            "--set num_iterations=4: this command decides that field itself",
        ),
        (["--set", "vllm_importance_sampling_mode=token_truncate"], "add --decoupled"),
        (["--set", "max_length=64", "--method", "dpo"], "use --max-length instead"),
        (["--set", "packing=true", "--method", "rft"], "this command decides that field itself"),
        (["--top-p", "0.9"], "--top-p 0.9: the log-probs of a cut-off distribution are not exact"),
        (["--precision", "fp8"], "--precision 'fp8': choose auto, fp32, bf16"),
        (["--method", "ppo"], "choose grpo, rft, dpo, kto"),
        (["--reward", "kevin"], "judged on a CPU only"),
        (["--policy", "openai:gpt@http://h/v1"], "has no weights here"),
        (["--policy", "transformers:/nowhere"], "no model at /nowhere"),
        (["--set", "report_to=nonsense"], "nonsense is not supported"),
        (["--set", "learning_rate=fast"], "expected a number"),
        (["--set", "loss_type=nonsense"], "choose grpo, dapo"),
        (["--baseline", "median"], "choose leave-one-out, mean"),
        (["--max-length", "16", "--method", "grpo"], "do not fit --max-length"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(log, tiny, tmp_path, capsys, arguments, said):
    policy = [] if "--policy" in arguments else ["--policy", f"transformers:{tiny}"]
    method = [] if "--method" in arguments else ["--method", "grpo"]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "train",
                "--from-trajectories",
                str(log),
                "--out",
                str(tmp_path / "out"),
                *policy,
                *method,
                *arguments,
            ]
        )
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2
    assert said in error


def test_a_mistake_in_a_setting_stands_in_nobodys_way(log, tiny, tmp_path):
    with pytest.raises(InputError, match="near ones are learning_rate"):
        train(log, tiny, tmp_path / "out", method=Method.GRPO, settings={"learning_rat": 1})
    trained, _ = train(log, tiny, tmp_path / "out", method=Method.GRPO, max_steps=1)
    assert trained.steps == 1


def test_the_plan_of_fine_tuning_counts_what_it_learns_from(log, tiny, tmp_path):
    _, plan = train(log, tiny, tmp_path / "out", method=Method.RFT, max_steps=1)
    assert plan.correct == 1.0
    assert plan.used < plan.turns == 96
    assert {row.reason.value for row in plan.refused} <= {"incorrect", "repeated"}


@pytest.mark.parametrize("method", list(Method))
def test_every_turn_of_the_log_is_accounted_for_and_a_row_is_made_of_each_that_is_used(
    log, tiny, tmp_path, method
):
    trained, plan = train(log, tiny, tmp_path / "out", method=method, max_steps=1)
    assert plan.used + sum(row.turns for row in plan.refused) == plan.turns == 96
    assert trained.rows * (2 if method is Method.DPO else 1) == plan.used
    card = read_card(tmp_path / "out")
    assert sum(card.rows.values()) == 96
    assert card.rows["trained on"] == plan.used


def test_the_same_program_twice_is_one_row_and_one_that_is_too_long_is_none(tiny):
    subject = open_subject(f"transformers:{tiny}")
    same = [sample_of_turn(number, "x = 1\n") for number in range(3)]
    wrong, long = sample_of_turn(3, "y = 2\n", correct=False), sample_of_turn(4, "z = 3\n" * 200)
    chosen = select_samples(Method.RFT, [*same, wrong, long], TurnTokenizer(subject, 100))
    assert [sample.candidate_id for sample in chosen.samples] == [0]
    assert sorted(chosen.refused, key=lambda pair: pair[1]) == [
        (TurnRefusal.REPEATED, 1), (TurnRefusal.REPEATED, 2), (TurnRefusal.INCORRECT, 3), (TurnRefusal.TOO_LONG, 4)
    ]  # fmt: skip
    pairs = select_samples(
        Method.DPO, [same[0], wrong, sample_of_turn(5, "w = 4\n")], TurnTokenizer(subject, None)
    )
    assert {sample.candidate_id for sample in pairs.samples} == {0, 3}
    assert pairs.refused == [(TurnRefusal.UNPAIRED, 5)]


def sample_of_turn(number: int, text: str, correct: bool = True) -> Sample:
    return Sample(
        candidate_id=number, verdict_id=number, parent_id=None, problem="p", problem_hash="h", depth=0, revision="r",
        prompt_ids=(), completion_ids=(), logps=(), temperature=1.0, fingerprint="", parts={}, reward=float(correct),
        correct=correct, compiled=True, finish=FinishReason.STOP, source_hash=None, speedup=None,
        messages=(("user", "draft"),), text=text,
    )  # fmt: skip


def test_the_card_has_the_facts_of_this_training_and_those_of_the_one_before_beside_them(
    log, tiny, tmp_path
):
    base = tmp_path / "base"
    shutil.copytree(tiny, base)
    write_card(
        base,
        PolicyCard(
            method="sft", loss=0.00727, seed=5, rows={"read": 400_716}, created=1_795_828_101
        ),
    )
    trained, plan = train(log, base, tmp_path / "out", method=Method.RFT, max_steps=1, seed=3)
    card = read_card(tmp_path / "out")
    assert (card.method, card.seed, card.base, card.steps) == ("rft", 3, str(base), 1)
    assert card.loss == pytest.approx(trained.loss, abs=1e-6)
    assert card.rows == plan.accounting
    [before] = card.ancestors
    assert (before.method, before.loss, before.seed, before.rows) == (
        "sft",
        0.00727,
        5,
        {"read": 400_716},
    )
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "## The training before" in readme
    assert "| created | 2026-11-28T01:08:21+00:00 |" in readme
    assert re.search(
        r"\| created \| 20\d\d-\d\d-\d\dT", readme.partition("## The training before")[0]
    )


def test_curves_of_a_log_leave_out_what_the_log_fixed(improved, tmp_path):
    history = [
        {"step": step, "loss": 1.0 / step, "reward": 0.5, "reward/correct": 0.4}
        for step in (1, 2, 3)
    ]
    assert [names for _, names in curve_panels(history, from_log=True)] == [["loss"]]
    assert [names for _, names in curve_panels(history, from_log=False)] == [
        ["reward"],
        ["reward/correct"],
        ["loss"],
    ]
    assert not draw_curves(tmp_path / "none.png", [{"step": 1, "reward": 0.5}], from_log=True)
    page = (Path(improved[0].output) / "report.html").read_text()
    assert "pass_at_1 (of the log)" in page
    assert "were fixed before the training" in page


def unrelated_model(folder: Path) -> Path:
    """A model with the tiny one's tokenizer whose weights have nothing to do with it, and which is sure of itself."""
    model, tokenizer = loaded(save_tiny_model(folder / "other"))
    torch.manual_seed(99)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 2.0)
    model.save_pretrained(folder / "unrelated")
    tokenizer.save_pretrained(folder / "unrelated")
    return folder / "unrelated"


def test_a_short_log_of_an_unrelated_model_is_refused_by_its_kl_divergence(tiny, tmp_path):
    """Eighteen rows are too few for the effective sample size: one of them alone is a larger share than its limit."""
    short = logged(tmp_path, tiny, samples=6)
    other = unrelated_model(tmp_path)
    with pytest.raises(InputError, match=r"the log is worn out: .* nats a token"):
        train(short, other, tmp_path / "out", method=Method.GRPO, max_steps=1)
    plans = []
    train_from_log(options(short, other, tmp_path / "out"), show=plans.append, dry_run=True)
    assert plans[0].method is Method.RFT
    assert plans[0].drift.rows < 32
    assert "another policy wrote the log" in plans[0].why


@pytest.mark.parametrize(("max_steps", "warm_up"), [(1, 0), (6, 0), (10, 1), (60, 6)])
def test_the_warm_up_is_a_tenth_of_the_training(max_steps, warm_up, tmp_path):
    from kernelwright.rl.training.grpo.config import GRPOFacts, grpo_config

    facts = GRPOFacts(
        output_dir=str(tmp_path), max_steps=max_steps, seed=0, device="cpu", parameters=1, lora=False,
        temperature=1.0, longest_completion=8,
    )  # fmt: skip
    assert grpo_config({}, facts).warmup_steps == warm_up
    assert grpo_config({"warmup_steps": 3}, facts).warmup_steps == 3


def test_an_alarm_leaves_what_was_seen(log, tiny, tmp_path):
    settings = {"learning_rate": 1e38, "max_grad_norm": 1e38, "warmup_steps": 0}
    with pytest.raises(TrainingAlarm):
        train(log, tiny, tmp_path / "out", method=Method.GRPO, max_steps=12, settings=settings)
    assert (
        json.loads((tmp_path / "out.training" / "alarm.json").read_text())["alarm"] == "not_finite"
    )


def test_an_empty_database_is_refused(tiny, tmp_path):
    Store.open(tmp_path / "empty.db").close()
    with pytest.raises(InputError, match="holds no turn yet"):
        train(tmp_path / "empty.db", tiny, tmp_path / "out")


def test_another_tokenizers_log_is_refused(log, tmp_path):
    other = save_tiny_model(tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["normalized"] = not tokenizer["added_tokens"][0]["normalized"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match="written with another tokenizer"):
        train(log, other, tmp_path / "out", method=Method.GRPO)


def test_a_dry_run_says_what_would_be_used_and_writes_nothing(log, tiny, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(
            [
                "train",
                "--from-trajectories",
                str(log),
                "--policy",
                f"transformers:{tiny}",
                "--out",
                str(tmp_path / "out"),
                "--dry-run",
                "--json",
            ]
        )
    plan = json.loads(capsys.readouterr().out)
    assert plan["method"] == "grpo"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["grpo", "rft"])
def test_a_dry_run_refuses_a_field_that_the_trainer_has_not(log, tiny, tmp_path, method):
    settings = {"learning_rat": "1e-4"}
    wanted = options(log, tiny, tmp_path / "out", settings=settings, method=Method(method))
    with pytest.raises(
        InputError, match="has no field 'learning_rat': near ones are learning_rate"
    ):
        train_from_log(wanted, show=lambda plan: None, dry_run=True)


def command(log: Path, tiny: Path, output: Path, *more: str) -> list[str]:
    settings = [
        "per_device_train_batch_size=8",
        "gradient_accumulation_steps=2",
        "learning_rate=1e-3",
        "save_steps=2",
        "lr_scheduler_type=linear",
    ]
    return [
        sys.executable, "-m", "kernelwright.rl", "train", "--from-trajectories", str(log), "--policy",
        f"transformers:{tiny}", "--out", str(output),
        "--method", "grpo", "--max-steps", "8", "--device", "cpu", *[part for s in settings for part in ("--set", s)],
        *more,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.nightly
def test_a_training_that_is_killed_goes_on_to_the_very_same_weights(log, tiny, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        command(log, tiny, tmp_path / "whole"),
        check=True,
        capture_output=True,
        timeout=500,
        env=environment,
    )
    killed = subprocess.Popen(
        command(log, tiny, tmp_path / "cut"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    deadline = time.monotonic() + 400
    while (
        not list((tmp_path / "cut.training").glob("checkpoint-4/whole.json"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "cut").exists()
    done = subprocess.run(
        command(log, tiny, tmp_path / "cut", "--json"),
        check=True,
        capture_output=True,
        text=True,
        timeout=500,
        env=environment,
    )
    assert json.loads(done.stdout)["resumed_at"] >= 4
    whole, cut = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_a_training_whose_time_is_up_leaves_a_checkpoint_that_loads_and_goes_on(
    log, tiny, tmp_path
):
    paused, _ = train(
        log, tiny, tmp_path / "out", max_steps=3, max_minutes=0.00001, method=Method.GRPO
    )
    assert paused.paused
    assert not (tmp_path / "out").exists()
    assert open_policy(f"transformers:{paused.output}", device="cpu").prompt_form == "chat"
    assert share_right(Path(paused.output), 4) >= 0.0
    with pytest.raises(InputError, match="unfinished training with other settings"):
        train(log, tiny, tmp_path / "out", max_steps=3, method=Method.GRPO, gamma=0.9)
    done, _ = train(log, tiny, tmp_path / "out", max_steps=3, method=Method.GRPO)
    assert (done.paused, done.resumed_at, done.steps) == (False, paused.steps, 3)
    with pytest.raises(InputError, match="exists already"):
        train(log, tiny, tmp_path / "out", max_steps=3, method=Method.GRPO)


def test_a_checkpoint_that_was_cut_off_is_thrown_away(tmp_path):
    from kernelwright.rl.training.checkpoints import COMPLETE_FILE, newest_checkpoint

    for step in (2, 4, 6):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-2" / COMPLETE_FILE).write_text("{}")
    (tmp_path / "checkpoint-4" / COMPLETE_FILE).write_text("{}")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    assert not (tmp_path / "checkpoint-6").exists()


@pytest.mark.parametrize("arguments", [[], ["--online", "--from-trajectories", "x.db"]])
def test_a_training_is_either_online_or_from_a_log(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", *arguments])
    assert ended.value.code == 2
    assert "give --from-trajectories DB or --online" in capsys.readouterr().err
