"""From the store to samples: each refusal with its reason, and what is left exactly as it was sampled."""

from __future__ import annotations

import json

import pytest

from kernelwright.agent.rewards.formula import FORMULA_PRESETS
from kernelwright.errors import InputError
from kernelwright.policies.base import FinishReason, Origin
from kernelwright.rl.cli import main
from kernelwright.rl.log.dataset import SampleRequirements, age_of, load_log
from kernelwright.rl.log.defaults import choose_formula, parse_filter
from kernelwright.rl.log.refusals import REFUSAL_TEXTS, TurnRefusal
from kernelwright.rl.log.statistics import stats_of
from kernelwright.tools.report import Fault
from tests.rl.logged import TEMPLATE, TOKENIZER, answer, verdict

EXECUTION = FORMULA_PRESETS["execution"]
WANTED = SampleRequirements(
    formula=EXECUTION, tokenizer_hash=TOKENIZER, chat_template_hash=TEMPLATE
)


def reasons(log):
    return {row.reason: row.turns for row in log.refused}


def pair(tell, problem="exp"):
    """A group that gives a gradient."""
    return [
        tell(problem, (answer(), verdict(True)))[0],
        tell(problem, (answer((8, 9)), verdict()))[0],
    ]


def test_samples_carry_the_stored_ids_and_log_probs(store, tell):
    ids = pair(tell)
    log = load_log(store, WANTED)
    assert [s.candidate_id for s in log.samples] == ids
    assert log.samples[1].completion_ids == (8, 9)
    assert log.samples[1].logps == (-0.5, -0.5)
    assert [s.advantage for s in log.samples] == pytest.approx(
        [1.05 - 0.03 * 0.75, -(1.05 - 0.03 * 0.75)], abs=0.05
    )
    assert sum(s.advantage for s in log.samples) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"token_ids": None, "logprobs": None, "exact": False}, TurnRefusal.NO_TOKENS),
        ({"prompt_token_ids": None}, TurnRefusal.NO_TOKENS),
        ({"logprobs": None, "exact": False}, TurnRefusal.NO_LOGPROBS),
        ({"logprobs": (-0.5, float("-inf"), -0.1)}, TurnRefusal.NON_FINITE),
        ({"exact": False}, TurnRefusal.INEXACT),
        ({"tokenizer_hash": "another"}, TurnRefusal.TOKENIZER),
        ({"chat_template_hash": "another"}, TurnRefusal.TEMPLATE),
        (
            {"origin": Origin.COMPILER, "token_ids": None, "logprobs": None, "exact": False},
            TurnRefusal.NOT_SAMPLED,
        ),
        ({"origin": Origin.FILE}, TurnRefusal.NOT_SAMPLED),
        ({"text": "", "token_ids": None, "logprobs": None}, TurnRefusal.UNANSWERED),
    ],
)
def test_what_cannot_be_trained_on_is_refused_with_its_reason(store, tell, changes, reason):
    pair(tell)
    tell("exp", (answer(**changes), verdict(True)))
    log = load_log(store, WANTED)
    assert reasons(log) == {reason: 1}
    assert len(log.samples) == 2


def test_greedy_and_truncated_sampling_are_not_the_policys_own_distribution(store, tell):
    tell("exp", (answer(), verdict(True)), temperature=0.0)
    tell("exp", (answer(), verdict()), top_p=0.9)
    assert reasons(load_log(store, WANTED)) == {TurnRefusal.INEXACT: 2}


def test_a_turn_that_was_never_judged_is_no_sample(store, tell):
    tell("exp", (answer(), None))
    assert reasons(load_log(store, WANTED)) == {TurnRefusal.UNJUDGED: 1}


def test_a_degenerate_problem_earns_nothing(store, tell):
    tell("exp", (answer(), verdict(True, degenerate=("zeros",))))
    assert reasons(load_log(store, WANTED)) == {TurnRefusal.DEGENERATE: 1}


def test_a_cpu_verdict_is_refused_where_the_reward_needs_speed(store, tell):
    tell("exp", (answer(), verdict(True)))
    assert reasons(load_log(store, WANTED.with_(formula=FORMULA_PRESETS["kevin"]))) == {
        TurnRefusal.CPU_ONLY: 1
    }


def test_the_wrong_turns_beside_right_ones_without_a_speed_are_refused_too(store, tell):
    """Alone they would be trained on, and say that whatever was tried is wrong."""
    tell("exp", (answer(), verdict(True)))
    tell("exp", (answer((8, 9)), verdict()))
    tell("exp", (answer((7,)), verdict(False, Fault.COMPILE)))
    assert reasons(load_log(store, WANTED.with_(formula=FORMULA_PRESETS["default"]))) == {
        TurnRefusal.CPU_ONLY: 3
    }


def test_a_right_turn_that_no_gpu_timed_is_refused_with_its_group_where_the_reward_needs_speed(
    store, tell
):
    tell("exp", (answer(), verdict(True, gpu=True, profile=None)))
    tell("exp", (answer((8, 9)), verdict(gpu=True)))
    assert reasons(load_log(store, WANTED.with_(formula=FORMULA_PRESETS["kevin"]))) == {
        TurnRefusal.UNTIMED: 2
    }


def test_what_a_gpus_judge_refused_before_a_launch_stays_beside_what_it_timed(store, tell):
    on_gpu = verdict(gpu=True).environment
    tell("exp", (answer(), verdict(True, gpu=True)))
    tell("exp", (answer((8, 9)), verdict(False, Fault.SYNTAX, environment=on_gpu)))
    assert len(load_log(store, WANTED.with_(formula=FORMULA_PRESETS["kevin"])).samples) == 2


def test_speeds_of_two_machines_are_never_compared(store, tell):
    for gpu in ("NVIDIA H100", "NVIDIA H200"):
        tell(
            "exp",
            (answer(), verdict(True, gpu=True, environment=verdict().environment.with_(gpu=gpu))),
        )
    assert reasons(load_log(store, WANTED.with_(formula=FORMULA_PRESETS["kevin"]))) == {
        TurnRefusal.ALONE: 2
    }


def test_a_group_of_one_is_refused_and_a_group_without_variance_dropped(store, tell):
    tell("exp", (answer(), verdict(True)))
    for _ in range(3):
        tell("sin", (answer(), verdict(True)))
    log = load_log(store, WANTED)
    assert reasons(log) == {TurnRefusal.ZERO_VARIANCE: 3, TurnRefusal.ALONE: 1}
    assert (log.groups, log.zero_variance, log.samples) == (2, 1, [])


def test_turns_of_two_policies_are_not_one_group(store, tell):
    tell("exp", (answer(revision="r0"), verdict(True)))
    tell("exp", (answer(revision="r1"), verdict()))
    assert reasons(load_log(store, WANTED)) == {TurnRefusal.ALONE: 2}


def test_a_policy_that_is_too_many_revisions_back_is_refused(store, tell):
    pair(tell)
    lineage = ("r0", "r1", "r2")
    assert age_of("r0", lineage) == 2
    assert reasons(load_log(store, WANTED.with_(lineage=lineage, max_age=1))) == {
        TurnRefusal.TOO_OLD: 2
    }
    assert len(load_log(store, WANTED.with_(lineage=lineage, max_age=2)).samples) == 2
    assert reasons(load_log(store, WANTED.with_(lineage=("another",), max_age=2))) == {
        TurnRefusal.TOO_OLD: 2
    }, "of unknown age"


def test_turns_sampled_at_another_temperature_are_left_out(store, tell):
    pair(tell)
    tell("exp", (answer(), verdict(True)), temperature=0.7)
    log = load_log(store, WANTED)
    assert (log.temperature, reasons(log)) == (1.0, {TurnRefusal.TEMPERATURE: 1})


def test_what_does_not_fit_the_context_is_left_out(store, tell):
    pair(tell)
    tell("exp", (answer(tuple(range(90))), verdict(True)))
    assert reasons(load_log(store, WANTED.with_(max_length=50))) == {TurnRefusal.TOO_LONG: 1}


def test_a_repair_is_compared_with_repairs_and_pays_its_draft(store, tell):
    tell("exp", (answer(), verdict()), (answer(), verdict(True)))
    tell("exp", (answer(), verdict()), (answer(), verdict()))
    log = load_log(store, WANTED)
    assert [s.depth for s in log.samples] == [0, 1, 0, 1]
    first, second = log.samples[0], log.samples[2]
    assert first.reward == second.reward
    assert first.advantage == pytest.approx(0.4 * log.samples[1].advantage)


def test_methods_without_log_probs_take_what_grpo_refuses(store, tell):
    tell(
        "exp",
        (answer(token_ids=None, prompt_token_ids=None, logprobs=None, exact=False), verdict(True)),
    )
    log = load_log(store, WANTED.with_(exact=False))
    assert log.samples[0].messages == (("user", "draft exp"),)
    assert log.samples[0].text.startswith("```python")


def test_every_refusal_says_what_was_found_and_what_to_do():
    assert set(REFUSAL_TEXTS) == set(TurnRefusal)


def test_the_formula_follows_the_log_where_none_is_named(store, tell):
    pair(tell)
    assert choose_formula(store, "auto").name == "execution"
    tell("exp", (answer(), verdict(True, gpu=True)))
    assert choose_formula(store, "auto").name == "default"
    for _ in range(3):
        tell("sin", (answer(), verdict(True)))
    assert choose_formula(store, "auto").name == "execution", "one of five right turns has a speed"
    assert choose_formula(store, "kevin").name == "kevin"


@pytest.mark.parametrize("text", ["run", "size=3", "run=", "since=soon", "action=sing"])
def test_a_filter_that_means_nothing_is_refused(text):
    with pytest.raises(InputError, match="--filter"):
        parse_filter([text])


def test_a_filter_narrows_the_log(store, tell):
    pair(tell)
    pair(tell, "sin")
    assert len(load_log(store, WANTED, parse_filter(["problem=sin"])).samples) == 2
    assert load_log(store, WANTED, parse_filter(["problem=cos"])).turns == 0


def test_stats_say_what_a_log_is_good_for(store, tell):
    pair(tell)
    tell(
        "exp",
        (answer(finish=FinishReason.LENGTH), verdict()),
        (answer(revision="r1", exact=False), verdict(True)),
    )
    stats = stats_of(store, EXECUTION)
    assert (stats.turns, stats.trajectories, stats.problems, stats.trainable) == (4, 3, 1, 3)
    assert stats.faults == {"correct": 2, "mismatch": 2}
    assert [policy.revision for policy in stats.policies] == ["r0", "r1"]
    assert stats.rewards is not None
    assert stats.rewards.within > 0
    assert [row.depth for row in stats.depths] == [0, 1]


@pytest.fixture
def run_rl(capsys):
    """The command line in this process: exit code, stdout, stderr."""

    def ran(*arguments) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return ran


def test_rl_stats_prints_tables_and_json(store, tell, tmp_path, run_rl):
    pair(tell)
    assert "exact GRPO: 2 turns" in run_rl("stats", "--db", tmp_path / "runs.db")[1]
    assert json.loads(run_rl("stats", "--db", tmp_path / "runs.db", "--json")[1])["trainable"] == 2


def test_rl_stats_of_an_empty_database_says_so_in_one_line(store, tmp_path, run_rl):
    code, _, error = run_rl("stats", "--db", tmp_path / "runs.db")
    assert (code, error.count("\n")) == (2, 1)
    assert "holds no turn" in error


def test_rl_rewards_explains_and_scores(store, tell, tmp_path, run_rl):
    [good, _] = pair(tell)
    db = tmp_path / "runs.db"
    assert "right on every check" in run_rl("rewards", "--db", db, "--explain", good)[1]
    assert (
        "2 of 2 verdicts scored by autotriton@1"
        in run_rl("rewards", "--db", db, "--reward", "autotriton")[1]
    )
    assert "nothing suspicious" in run_rl("rewards", "--db", db, "--quarantine")[1]
    assert "arXiv:2507.11948" in run_rl("rewards", "--presets", "--json")[1]
