"""trl's losses on stored rows, against the formulas written out by hand."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.training.grpo.rows import ScoredCompletion  # noqa: E402
from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm  # noqa: E402
from tests.rl.tiny_rows import loaded, loss_of, on_policy, random_rows, scored, trainer  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

PARAMETER = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return loaded(save_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def rows():
    return random_rows(7)


def by_hand(model, rows, kind):
    """The loss over all rows, from log-probs computed a row at a time."""
    losses, tokens = [], sum(row.trained_tokens for row in rows)
    for row in rows:
        now = scored(model, row)
        ratio = (now - torch.tensor(list(row.logps))).exp()
        advantage = torch.tensor(row.advantage)
        if kind == "cispo":
            losses.append((-ratio.clamp(max=5.0).detach() * advantage * now).sum() / tokens)
            continue
        low, high = (3e-4, 4e-4) if kind == "gspo" else (0.2, 0.28)
        if kind == "gspo":
            ratio = (now - torch.tensor(list(row.logps))).mean().exp().expand_as(now)
        clipped = -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        divided = {
            "dapo": tokens,
            "grpo": len(rows) * len(now),
            "gspo": len(rows) * len(now),
            "dr_grpo": len(rows) * 16,
        }[kind]
        losses.append(clipped.sum() / divided)
    return torch.stack(losses).sum()


@pytest.mark.parametrize("kind", ["grpo", "dapo", "dr_grpo", "cispo", "gspo"])
def test_each_loss_and_its_gradient_equal_a_computation_by_hand(tiny, rows, tmp_path, kind):
    model, tokenizer = tiny
    loss, gradient = loss_of(trainer(model, tokenizer, rows, tmp_path, loss_type=kind))
    expected = by_hand(model, rows, kind)
    [wanted] = torch.autograd.grad(expected, dict(model.named_parameters())[PARAMETER])
    assert loss == pytest.approx(float(expected.detach()), abs=1e-6, rel=1e-6)
    assert float((gradient - wanted).abs().max()) < 1e-6 * max(1.0, float(wanted.abs().max()))
    assert float(wanted.abs().max()) > 1e-4


@pytest.mark.parametrize("kind", ["grpo", "dapo", "dr_grpo", "cispo", "gspo", "bnpo"])
def test_order_padding_and_the_way_a_batch_is_split_change_nothing(tiny, rows, tmp_path, kind):
    model, tokenizer = tiny
    whole = loss_of(trainer(model, tokenizer, rows, tmp_path, loss_type=kind))
    turned = loss_of(trainer(model, tokenizer, rows[::-1], tmp_path, loss_type=kind))
    parts = loss_of(
        trainer(model, tokenizer, rows, tmp_path, loss_type=kind, gradient_accumulation_steps=3)
    )
    stumps = loss_of(
        trainer(model, tokenizer, rows, tmp_path, loss_type=kind, gradient_accumulation_steps=9)
    )
    for loss, gradient in (turned, parts, stumps):
        assert loss == pytest.approx(whole[0], abs=1e-6, rel=1e-5)
        assert float((gradient - whole[1]).abs().max()) < 1e-6 + 1e-5 * float(whole[1].abs().max())


def test_rows_of_the_policy_itself_have_the_ratio_one(tiny, rows, tmp_path):
    """How exact: the log-probs of a padded batch and of single rows differ by rounding only, some 1e-6 in float32."""
    model, tokenizer = tiny
    run = trainer(model, tokenizer, on_policy(model, rows), tmp_path)
    loss_of(run)
    figures = run._metrics["train"]
    assert figures["drift/largest_log_ratio"][0] < 5e-6
    assert figures["drift/effective_sample_size"][0] == pytest.approx(1.0, abs=1e-9)
    assert figures["drift/kl"][0] < 1e-10
    assert figures["clip_ratio/region_mean"] == [0.0]


def test_on_policy_the_loss_is_the_plain_policy_gradient(tiny, rows, tmp_path):
    model, tokenizer = tiny
    own = on_policy(model, rows)
    loss, gradient = loss_of(trainer(model, tokenizer, own, tmp_path))
    tokens = sum(len(row.completion_ids) for row in own)
    plain = -sum(scored(model, row).sum() * row.advantage for row in own) / tokens
    [wanted] = torch.autograd.grad(plain, dict(model.named_parameters())[PARAMETER])
    assert loss == pytest.approx(
        -sum(len(row.completion_ids) * row.advantage for row in own) / tokens, abs=1e-5
    )
    assert float((gradient - wanted).abs().max()) < 1e-5 * float(wanted.abs().max()) + 1e-7


def test_what_the_environment_wrote_is_not_in_the_loss(tiny, tmp_path):
    model, tokenizer = tiny
    own = ScoredCompletion(
        [5, 6, 7], [10, 11, 12, 13, 14, 15], [-6.0] * 6, 1.0, mask=[1, 1, 0, 0, 1, 1]
    )
    masked = loss_of(trainer(model, tokenizer, [own, own], tmp_path))
    other = own._replace(logps=[-6.0, -6.0, -0.1, -9.0, -6.0, -6.0])
    assert loss_of(trainer(model, tokenizer, [other, other], tmp_path))[0] == pytest.approx(
        masked[0], abs=1e-7
    )
    assert loss_of(trainer(model, tokenizer, [own._replace(mask=None)] * 2, tmp_path))[
        0
    ] != pytest.approx(masked[0], abs=1e-3)


def test_an_advantage_a_token_is_taken_as_it_is(tiny, rows, tmp_path):
    model, tokenizer = tiny
    spread = [row._replace(advantage=[row.advantage] * len(row.completion_ids)) for row in rows]
    one, other = (loss_of(trainer(model, tokenizer, r, tmp_path)) for r in (rows, spread))
    assert one[0] == pytest.approx(other[0], abs=1e-7)


def test_the_temperature_of_the_log_is_that_of_the_loss(tiny, rows, tmp_path):
    model, tokenizer = tiny
    warm = [row._replace(logps=scored(model, row, 0.7).detach().tolist()) for row in rows]
    run = trainer(model, tokenizer, warm, tmp_path, temperature=0.7)
    loss_of(run)
    assert run._metrics["train"]["drift/largest_log_ratio"][0] < 5e-6


def test_a_decoupled_region_weighs_tokens_by_trls_own_correction(tiny, rows, tmp_path):
    model, tokenizer = tiny
    options = {
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    }
    loss, _ = loss_of(trainer(model, tokenizer, rows, tmp_path, decoupled=True, **options))
    tokens = sum(len(row.completion_ids) for row in rows)
    weighed = [
        (scored(model, row).detach() - torch.tensor(list(row.logps))).exp().clamp(max=2.0).sum()
        * row.advantage
        for row in rows
    ]
    assert loss == pytest.approx(-float(sum(weighed)) / tokens, abs=1e-5)


def test_a_loss_that_is_not_a_number_stops_before_the_weights_are_touched(tiny, rows, tmp_path):
    model, tokenizer = tiny
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    broken = [rows[0]._replace(advantage=float("nan")), *rows[1:]]
    with pytest.raises(TrainingAlarm) as stopped:
        trainer(model, tokenizer, broken, tmp_path).train()
    assert stopped.value.alarm is Alarm.NOT_FINITE
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_a_rewarded_completion_becomes_likelier_and_a_punished_one_less_likely(tmp_path):
    model, tokenizer = loaded(save_tiny_model(tmp_path / "tiny", seed=3))
    rows = on_policy(model, random_rows(8, seed=5))
    before = [float(scored(model, row).sum()) for row in rows]
    trainer(model, tokenizer, rows, tmp_path, steps=4, learning_rate=2e-3).train()
    moved = [
        float(scored(model.eval(), row).sum()) - was for row, was in zip(rows, before, strict=True)
    ]
    assert all(
        (change > 0) == (row.advantage > 0) for row, change in zip(rows, moved, strict=True)
    ), moved


def test_lora_trains_the_adapter_only(tiny, rows, tmp_path):
    peft = pytest.importorskip("peft")
    model, tokenizer = loaded(save_tiny_model(tmp_path / "tiny"))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    trainer(
        adapted, tokenizer, on_policy(model, rows), tmp_path, steps=2, learning_rate=1e-2, beta=0.01
    ).train()
    after = {
        name.replace(".base_layer", ""): weight
        for name, weight in adapted.get_base_model().state_dict().items()
        if "lora_" not in name
    }
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(
        weight.abs().max() > 0 for name, weight in adapted.named_parameters() if "lora_B" in name
    )


def test_the_same_number_gives_the_same_rows_and_an_epoch_gives_each_once():
    from kernelwright.rl.training.grpo.rows import LogBatches

    rows = [ScoredCompletion([1], [place], [0.0], 0.0) for place in range(23)]
    replay = LogBatches(rows, 5, seed=1)
    assert replay.steps_an_epoch == 5
    seen = [row.completion_ids[0] for number in range(5) for row in replay(number)]
    assert sorted(seen) == list(range(23))
    assert seen != [row.completion_ids[0] for number in range(5, 10) for row in replay(number)]
    assert replay(7) == LogBatches(rows, 5, seed=1)(7)
    random.shuffle(rows)
