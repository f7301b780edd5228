"""RFT, DPO and KTO from the same log, through trl's own trainers, on token ids: what was sampled is what is trained
on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kernelwright.errors import InputError
from kernelwright.rl.log.dataset import Sample
from kernelwright.rl.log.refusals import REFUSAL_TEXTS, Refusal
from kernelwright.rl.training.grpo.config import SMALL_MODEL_PARAMETERS
from kernelwright.rl.training.options import LogOptions, Method
from kernelwright.rl.training.subject import Subject, parameters
from kernelwright.rl.training.trl_settings import check_settings, make_config, warm_up_steps

SHARED_SETTINGS: dict[str, Any] = {
    "report_to": "none", "disable_tqdm": True, "logging_steps": 1, "save_total_limit": 2,
    "logging_nan_inf_filter": False, "adam_beta2": 0.95,
    "max_grad_norm": 0.5, "lr_scheduler_type": "constant_with_warmup", "weight_decay": 0.0, "save_steps": 20,
}  # fmt: skip

LEARNING_RATES = {Method.RFT: (1e-4, 1e-5), Method.DPO: (2e-5, 5e-7), Method.KTO: (2e-5, 5e-7)}
"""Learning rates for a small model and for a larger one."""


class TurnTokenizer:
    """Prompt and reply as ids: the stored ones where tokenizer and template are the policy's own, else written anew
    from the text.
    """

    def __init__(self, subject: Subject, longest: int | None) -> None:
        self._tokenizer, self._longest = subject.tokenizer, longest

    def __call__(self, sample: Sample) -> tuple[list[int], list[int]] | None:
        """Returns the row's training example; None where it does not fit."""
        prompt, reply = list(sample.prompt_ids), list(sample.completion_ids)
        if not prompt or not reply or not self._own(sample):
            messages = [{"role": role, "content": text} for role, text in sample.messages]
            prompt = list(
                self._tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=True, return_dict=False
                )
            )
            reply = [*self._tokenizer(sample.text, add_special_tokens=False)["input_ids"], self._tokenizer.eos_token_id]
        return (prompt, reply) if self._longest is None or len(prompt) + len(reply) <= self._longest else None

    def _own(self, sample: Sample) -> bool:
        return self._tokenizer.decode(sample.completion_ids, skip_special_tokens=True).startswith(sample.text[:200])


def rft_rows(samples: Sequence[Sample], tokens: TurnTokenizer) -> list[dict[str, Any]]:
    """Each correct program of a prompt once."""
    rows, seen = [], set()
    for sample in samples:
        key = (sample.problem_hash, sample.messages, sample.source_hash or sample.text)
        if not sample.correct or key in seen or (ids := tokens(sample)) is None:
            continue
        seen.add(key)
        prompt, reply = ids
        rows.append({"input_ids": prompt + reply, "completion_mask": [0] * len(prompt) + [1] * len(reply)})
    return rows


def prompts_of(samples: Sequence[Sample]) -> list[tuple[list[Sample], list[Sample]]]:
    """Returns for every prompt with both: the good replies and the others, the best and the worst first, each program
    once.
    """
    prompts: dict[Any, dict[str, Sample]] = defaultdict(dict)
    for sample in samples:
        prompts[(sample.problem_hash, sample.messages)].setdefault(sample.source_hash or sample.text, sample)
    found = []
    for replies in prompts.values():
        ordered = sorted(replies.values(), key=lambda s: s.reward, reverse=True)
        good, bad = [s for s in ordered if s.correct], [s for s in reversed(ordered) if not s.correct]
        if good and bad:
            found.append((good, bad))
    return found


def dpo_rows(samples: Sequence[Sample], tokens: TurnTokenizer) -> list[dict[str, Any]]:
    """The best with the worst, the second best with the second worst ... of each prompt."""
    rows = []
    for good, bad in prompts_of(samples):
        for chosen, rejected in zip(good, bad, strict=False):
            ids, other = tokens(chosen), tokens(rejected)
            if ids is not None and other is not None:
                rows.append({"prompt_ids": ids[0], "chosen_ids": ids[1], "rejected_ids": other[1]})
    return rows


def kto_rows(samples: Sequence[Sample], tokens: TurnTokenizer) -> list[dict[str, Any]]:
    """Every reply to a prompt that has both kinds, with its label; good and bad ones in turn, so that each batch
    holds both.
    """
    good = [s for goods, _ in prompts_of(samples) for s in goods]
    bad = [s for _, bads in prompts_of(samples) for s in bads]
    mixed = [s for pair in zip(good, bad, strict=False) for s in pair]
    mixed += good[len(bad) :] + bad[len(good) :]
    found = [(s, ids) for s in mixed if (ids := tokens(s)) is not None]
    return [{"prompt_ids": ids[0], "completion_ids": ids[1], "label": s.correct} for s, ids in found]


def config_class(method: Method) -> Any:
    """trl's config of RFT, DPO or KTO."""
    import trl

    return {Method.RFT: trl.SFTConfig, Method.DPO: trl.DPOConfig, Method.KTO: trl.KTOConfig}[method]


def make_trainer(
    method: Method, model: Any, subject: Subject, samples: Sequence[Sample], options: LogOptions
) -> tuple[Any, int]:
    """Returns trl's trainer of that method on these samples, and how many rows it has.

    Raises InputError where there are fewer than two rows.
    """
    from datasets import Dataset

    builders = {Method.RFT: rft_rows, Method.DPO: dpo_rows, Method.KTO: kto_rows}
    longest = options.max_length or subject.context
    rows = builders[method](samples, TurnTokenizer(subject, longest))
    if len(rows) < 2:
        found, remedy = REFUSAL_TEXTS[Refusal.INCORRECT if method is Method.RFT else Refusal.ONE_SIDED]
        raise InputError(f"{len(rows)} rows for {method}: {found} ({remedy})")
    config = _config(method, parameters(model), len(rows), options, longest)
    return _trainer(method, model, subject, Dataset.from_list(rows), config), len(rows)


def _config(method: Method, size: int, rows: int, options: LogOptions, longest: int | None) -> Any:
    """Returns trl's config for a model of `size` parameters. Raises InputError."""
    given, on_gpu = options.settings, options.device.startswith("cuda")
    check_settings(config_class(method), given)
    is_small = size <= SMALL_MODEL_PARAMETERS
    small_rate, large_rate = LEARNING_RATES[method]
    defaults = {
        **SHARED_SETTINGS,
        "learning_rate": small_rate if is_small else large_rate,
        "per_device_train_batch_size": min(32 if is_small else 2, rows),
        "bf16": on_gpu,
        "gradient_checkpointing": False,
    }
    settings = {**defaults, **given}
    batch = settings["per_device_train_batch_size"] * settings.get("gradient_accumulation_steps", 1)
    decided: dict[str, Any] = {
        "output_dir": str(options.work),
        "use_cpu": not on_gpu,
        "seed": options.seed,
        "max_steps": options.max_steps or max(1, round(options.epochs * rows / batch)),
        "max_length": longest,
    }
    if method is Method.RFT:
        decided |= {"packing": False, "completion_only_loss": True}
    defaults |= warm_up_steps(decided["max_steps"], given)
    return make_config(config_class(method), defaults=defaults, given=given, decided=decided)


def _trainer(method: Method, model: Any, subject: Subject, rows: Any, config: Any) -> Any:
    from kernelwright.rl.training.safety.gradients import FiniteGradients
    from kernelwright.rl.training.tokenized import TokenizedDPOTrainer, TokenizedKTOTrainer, TokenizedSFTTrainer

    kinds = {Method.RFT: TokenizedSFTTrainer, Method.DPO: TokenizedDPOTrainer, Method.KTO: TokenizedKTOTrainer}
    trainer = kinds[method](model=model, args=config, train_dataset=rows, processing_class=subject.tokenizer)
    trainer.add_callback(FiniteGradients())
    return trainer
