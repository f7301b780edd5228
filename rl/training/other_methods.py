"""RFT, DPO and KTO on a log through trl's own trainers. Rows are token ids, so the sampled tokens
are the trained tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.errors import InputError
from kernelwright.rl.log.dataset import Sample
from kernelwright.rl.log.refusals import REFUSAL_TEXTS, TurnRefusal
from kernelwright.rl.training.grpo.config import SMALL_MODEL_PARAMETERS
from kernelwright.rl.training.options import LogOptions, Method
from kernelwright.rl.training.processes import sharding_fields
from kernelwright.rl.training.sft.thinking import answer_mask
from kernelwright.rl.training.subject import Subject, parameters
from kernelwright.rl.training.trl_settings import check_settings, make_config, warm_up_steps

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, Trainer, TrainingArguments

SHARED_SETTINGS: dict[str, Any] = {
    "report_to": "none", "disable_tqdm": True, "logging_steps": 1, "save_total_limit": 2,
    "logging_nan_inf_filter": False, "adam_beta2": 0.95,
    "max_grad_norm": 0.5, "lr_scheduler_type": "constant_with_warmup", "weight_decay": 0.0, "save_steps": 20,
}  # fmt: skip

LEARNING_RATES = {Method.RFT: (1e-4, 1e-5), Method.DPO: (2e-5, 5e-7), Method.KTO: (2e-5, 5e-7)}
"""Learning rates of each method for a small model and for a larger model."""


class TurnTokenizer:
    """Converts a turn to token ids: the stored ids if the policy's own tokenizer and template
    wrote them, otherwise ids encoded from the text.
    """

    def __init__(
        self, subject: Subject, longest: int | None, *, mask_thoughts: bool = False
    ) -> None:
        self._tokenizer, self._longest = subject.tokenizer, longest
        self._mask_thoughts = mask_thoughts

    def trained(self, reply: list[int]) -> list[int]:
        """Returns 1 for each token of a reply in the loss, and 0 for those of a masked thought."""
        return answer_mask(reply, self._tokenizer) if self._mask_thoughts else [1] * len(reply)

    def __call__(self, sample: Sample) -> tuple[list[int], list[int]] | None:
        """Returns the ids of prompt and reply, or None if both together are too long."""
        prompt, reply = self.encoded(sample)
        if self._longest is not None and len(prompt) + len(reply) > self._longest:
            return None
        return prompt, reply

    def encoded(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Returns the ids of prompt and reply, of any length."""
        prompt, reply = list(sample.prompt_ids), list(sample.completion_ids)
        # Another tokenizer wrote the ids: encode the texts again.
        if not prompt or not reply or not self._has_own_tokens(sample):
            messages = [{"role": role, "content": text} for role, text in sample.messages]
            prompt = list(
                self._tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=True, return_dict=False
                )
            )
            reply = [
                *self._tokenizer(sample.text, add_special_tokens=False)["input_ids"],
                self._tokenizer.eos_token_id,
            ]
        return prompt, reply

    def _has_own_tokens(self, sample: Sample) -> bool:
        return self._tokenizer.decode(sample.completion_ids, skip_special_tokens=True).startswith(
            sample.text[:200]
        )


class TurnSelection(NamedTuple):
    """The turns a method learns from, and the reason against each other turn."""

    samples: list[Sample]
    refused: list[tuple[TurnRefusal, int]]
    """Reason and candidate's id of every unused sample. Each sample is in exactly one of the two
    lists.
    """


def select_samples(
    method: Method, samples: Sequence[Sample], tokens: TurnTokenizer
) -> TurnSelection:
    """Chooses each correct program once (RFT), pairs of a good and a bad reply (DPO), or all
    replies to prompts with both good and bad replies (KTO).
    """
    chosen: list[Sample] = []
    refused: list[tuple[TurnRefusal, int]] = []
    for replies in _by_prompt(samples):
        usable = _usable(method, replies, tokens, refused)
        if method is Method.RFT:
            chosen += usable
            continue
        good, bad = _sides(usable)
        if method is Method.DPO and good and bad:
            # The best replies are paired with the worst; surplus replies of a side are unused.
            pairs = min(len(good), len(bad))
            chosen += [*good[:pairs], *bad[:pairs]]
            refused += [
                (TurnRefusal.UNPAIRED, sample.candidate_id)
                for sample in (*good[pairs:], *bad[pairs:])
            ]
        elif good and bad:
            chosen += usable
        else:
            refused += [(TurnRefusal.ONE_SIDED, sample.candidate_id) for sample in usable]
    return TurnSelection(chosen, refused)


def _by_prompt(samples: Sequence[Sample]) -> Iterable[list[Sample]]:
    prompts: dict[Any, list[Sample]] = defaultdict(list)
    for sample in samples:
        prompts[(sample.problem_hash, sample.messages)].append(sample)
    return prompts.values()


def _usable(
    method: Method,
    replies: Sequence[Sample],
    tokens: TurnTokenizer,
    refused: list[tuple[TurnRefusal, int]],
) -> list[Sample]:
    """Returns each program of one prompt once. Refuses repeated and too long programs, and for
    RFT incorrect ones.
    """
    programs: set[str] = set()
    usable = []
    for sample in replies:
        program = sample.source_hash or sample.text
        if method is Method.RFT and not sample.correct:
            refused.append((TurnRefusal.INCORRECT, sample.candidate_id))
        elif program in programs:
            refused.append((TurnRefusal.REPEATED, sample.candidate_id))
        elif tokens(sample) is None:
            refused.append((TurnRefusal.TOO_LONG, sample.candidate_id))
        else:
            programs.add(program)
            usable.append(sample)
    return usable


def _sides(replies: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Returns the good replies, the best first, and the bad replies, the worst first."""
    ordered = sorted(replies, key=lambda sample: sample.reward, reverse=True)
    good = [sample for sample in ordered if sample.correct]
    return good, [sample for sample in reversed(ordered) if not sample.correct]


def rft_rows(samples: Sequence[Sample], tokens: TurnTokenizer) -> list[dict[str, Any]]:
    """Returns a row for each selected sample. The mask selects the reply for the loss."""
    rows = []
    for sample in samples:
        prompt, reply = tokens.encoded(sample)
        rows.append(
            {
                "input_ids": prompt + reply,
                "completion_mask": [0] * len(prompt) + tokens.trained(reply),
            }
        )
    return rows


def dpo_rows(samples: Sequence[Sample], tokens: TurnTokenizer) -> list[dict[str, Any]]:
    """Returns the pairs of each prompt: the best reply with the worst, the second best with the
    second worst, and so on.
    """
    rows = []
    for replies in _by_prompt(samples):
        for chosen, rejected in zip(*_sides(replies), strict=True):
            prompt, good = tokens.encoded(chosen)
            _, bad = tokens.encoded(rejected)
            rows.append({"prompt_ids": prompt, "chosen_ids": good, "rejected_ids": bad})
    return rows


def kto_rows(samples: Sequence[Sample], tokens: TurnTokenizer) -> list[dict[str, Any]]:
    """Returns a labelled row for each selected sample, alternating good and bad replies so that
    each batch holds both.
    """
    good: list[Sample] = []
    bad: list[Sample] = []
    for replies in _by_prompt(samples):
        good_replies, bad_replies = _sides(replies)
        good += good_replies
        bad += bad_replies
    # Alternating good and bad rows, then the surplus of the longer side.
    mixed = [sample for pair in zip(good, bad, strict=False) for sample in pair]
    mixed += good[len(bad) :] + bad[len(good) :]
    rows = []
    for sample in mixed:
        prompt, reply = tokens.encoded(sample)
        rows.append({"prompt_ids": prompt, "completion_ids": reply, "label": sample.correct})
    return rows


def config_class(method: Method) -> type[Any]:
    """Returns trl's config class of RFT, DPO or KTO."""
    import trl

    return {Method.RFT: trl.SFTConfig, Method.DPO: trl.DPOConfig, Method.KTO: trl.KTOConfig}[method]


def longest_row(options: LogOptions, subject: Subject) -> int | None:
    """Returns the largest number of tokens of prompt and reply together: the smaller of
    --max-length and the policy's context.
    """
    limits = [limit for limit in (options.max_length, subject.context) if limit]
    return min(limits) if limits else None


def make_trainer(
    method: Method,
    model: PreTrainedModel,
    subject: Subject,
    samples: Sequence[Sample],
    options: LogOptions,
) -> tuple[Trainer, int]:
    """Returns trl's trainer of a method on these samples, and its number of rows.

    Raises InputError for fewer than two rows.
    """
    from datasets import Dataset

    builders = {Method.RFT: rft_rows, Method.DPO: dpo_rows, Method.KTO: kto_rows}
    longest = longest_row(options, subject)
    if options.mask_thoughts and method is not Method.RFT:
        raise InputError(f"--mask-thoughts goes with grpo and rft: leave it out with {method}")
    tokens = TurnTokenizer(subject, longest, mask_thoughts=options.mask_thoughts)
    rows = builders[method](samples, tokens)
    if len(rows) < 2:
        refusal = TurnRefusal.INCORRECT if method is Method.RFT else TurnRefusal.ONE_SIDED
        reason, remedy = REFUSAL_TEXTS[refusal]
        raise InputError(f"{len(rows)} rows for {method}: {reason} ({remedy})")
    config = _config(method, parameters(model), len(rows), options, longest)
    return _trainer(method, model, subject, Dataset.from_list(rows), config), len(rows)


def _config(method: Method, size: int, rows: int, options: LogOptions, longest: int | None) -> Any:
    """Returns trl's config for a model of `size` parameters. Raises InputError."""
    user_settings, on_gpu = options.settings, options.device.startswith("cuda")
    check_settings(config_class(method), user_settings)
    is_small = size <= SMALL_MODEL_PARAMETERS
    small_rate, large_rate = LEARNING_RATES[method]
    defaults = {
        **SHARED_SETTINGS,
        **sharding_fields(),
        "learning_rate": small_rate if is_small else large_rate,
        "per_device_train_batch_size": min(32 if is_small else 2, rows),
        "bf16": on_gpu,
        "gradient_checkpointing": False,
    }
    settings = {**defaults, **user_settings}
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
    defaults |= warm_up_steps(decided["max_steps"], user_settings)
    return make_config(
        config_class(method), defaults=defaults, user_settings=user_settings, decided=decided
    )


def _trainer(
    method: Method,
    model: PreTrainedModel,
    subject: Subject,
    rows: Dataset,
    config: TrainingArguments,
) -> Trainer:
    from kernelwright.rl.training.safety.gradients import FiniteGradients
    from kernelwright.rl.training.tokenized import (
        TokenizedDPOTrainer,
        TokenizedKTOTrainer,
        TokenizedSFTTrainer,
    )

    classes: dict[Method, Any] = {
        Method.RFT: TokenizedSFTTrainer,
        Method.DPO: TokenizedDPOTrainer,
        Method.KTO: TokenizedKTOTrainer,
    }
    trainer: Trainer = classes[method](
        model=model, args=config, train_dataset=rows, processing_class=subject.tokenizer
    )
    trainer.add_callback(FiniteGradients())
    return trainer
