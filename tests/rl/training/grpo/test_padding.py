"""Padding on the left spoils no gradient, and changes nothing for the tokens beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.training.grpo.padding import unmask_padding, visible_pairs  # noqa: E402
from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm  # noqa: E402
from tests.rl.tiny_rows import loaded, random_rows, trainer  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402

MASK = torch.tensor([[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]])


def test_every_column_sees_itself_and_what_was_before_it_but_no_padding():
    seen = visible_pairs(MASK)[:, 0]
    assert seen[0].tolist() == [
        [True, False, False, False, False, False],
        [False, True, False, False, False, False],
        [False, False, True, False, False, False],
        [False, False, True, True, False, False],
        [False, False, True, True, True, False],
        [False, False, True, True, True, True],
    ]
    assert torch.equal(seen[1], torch.ones(6, 6).tril().bool())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_what_is_not_padding_comes_out_as_before(tmp_path, attention):
    model, _ = loaded(save_tiny_model(tmp_path / "tiny"))
    model.set_attn_implementation(attention)
    ids = torch.arange(12).reshape(2, 6) + 5
    with torch.no_grad():
        before = model.eval()(input_ids=ids, attention_mask=MASK).logits
        handle = unmask_padding(model)
        after = model(input_ids=ids, attention_mask=MASK).logits
        handle.remove()
    own = MASK.bool()
    assert torch.allclose(before[own], after[own], atol=1e-5)
    assert not torch.allclose(before[~own], after[~own], atol=1e-5), "the hook was not asked"
    assert bool(torch.isfinite(after).all())


def test_a_gradient_that_is_not_finite_never_reaches_the_weights(tmp_path):
    model, tokenizer = loaded(save_tiny_model(tmp_path / "tiny"))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.model.norm.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(TrainingAlarm) as stopped:
        trainer(model, tokenizer, random_rows(6), tmp_path / "out").train()
    assert stopped.value.alarm is Alarm.NOT_FINITE
    assert "gradient" in str(stopped.value)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


@pytest.mark.gpu
def test_no_width_of_padding_gives_a_gradient_that_is_not_finite(tmp_path):
    """Seen on an H200: 33 rows of one width among dozens, and every weight was NaN after the step."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from transformers import AutoModelForCausalLM

    weights = Path(__file__).parents[4] / "policies" / "weights"
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32).cuda()
    unmask_padding(model)
    for width in range(128, 520, 8):
        ids = torch.randint(5, 1000, (33, width), device="cuda")
        mask = torch.ones_like(ids)
        for row in range(33):
            mask[row, : row * (width // 40)] = 0
            mask[row, width - row :] = 0
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(input_ids=ids, attention_mask=mask).logits
        model.zero_grad()
        logits[mask.bool()].float().logsumexp(-1).sum().backward()
        gradients = [p.grad for p in model.parameters()]
        assert bool(torch.isfinite(torch.nn.utils.get_total_norm(gradients))), width
