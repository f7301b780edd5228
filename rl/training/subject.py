"""The policy that is trained: its folder, tokenizer, identity and lineage; its weights once they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.errors import InputError
from kernelwright.policies.base import PromptForm
from kernelwright.policies.model_identity import (
    Identity,
    adapter_folder,
    identity_of,
    model_config,
    weights_revision,
)
from kernelwright.policies.policy_card import PolicyCard, read_cards, trainings_of
from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS

if TYPE_CHECKING:
    from kernelwright.rl.training.options import TrainOptions
    from kernelwright.rl.training.precision.holding import HeldWeights

LOCAL_POLICY_PREFIXES = ("embedded", "transformers:", "vllm:")
MAX_LINEAGE_REVISIONS = 512
"""Revisions that a lineage keeps."""


class Subject(NamedTuple):
    """The policy that is trained."""

    name: str
    """The name as it was asked for."""
    path: str
    """A folder, or a hub name."""
    adapter: Path | None
    tokenizer: Any
    identity: Identity
    revision: str
    lineage: tuple[str, ...]
    """The oldest first, its own revision last."""
    prompt_form: PromptForm
    card: PolicyCard
    """The card of its folder, or of its adapter's."""
    context: int | None

    @property
    def base(self) -> str:
        """Returns the policy without its engine: `embedded`, a folder or a hub name."""
        return self.name.partition(":")[2] or self.name


def open_subject(policy: str, adapter: str | None = None) -> Subject:
    """Reads config and tokenizer, no weights. Raises InputError and PolicyRefused."""
    from kernelwright.rl.training.sft.base_model import load_tokenizer

    path = path_of(policy)
    config = model_config(path) or {}
    folder = Path(path).expanduser()
    path = str(folder.resolve()) if folder.exists() else path
    own = None if adapter is None else adapter_folder(adapter)
    tokenizer = load_tokenizer(path)
    card = read_cards(folder, own)
    revision = "+".join(
        part for part in (weights_revision(folder), weights_revision(own) if own else None) if part
    )
    return Subject(
        name=policy, path=path, adapter=own, tokenizer=tokenizer, identity=identity_of(tokenizer), revision=revision,
        lineage=(*card.lineage, revision),
        prompt_form=PromptForm.COMPACT if policy == "embedded" else card.prompt_form,
        card=card, context=config.get("max_position_embeddings"),
    )  # fmt: skip


def path_of(policy: str) -> str:
    """Returns the folder or hub name of a policy. Raises InputError where it cannot be trained."""
    if policy == "embedded":
        if not (EMBEDDED_WEIGHTS / "config.json").is_file():
            raise InputError(
                f"no embedded policy ships with this build ({EMBEDDED_WEIGHTS} holds no weights): "
                "name another with --policy"
            )
        return str(EMBEDDED_WEIGHTS)
    for form in LOCAL_POLICY_PREFIXES[1:]:
        if policy.startswith(form):
            return policy.removeprefix(form)
    if ":" in policy and not Path(policy).exists():
        raise InputError(
            f"{policy} has no weights here to train: name transformers:PATH, vllm:PATH or embedded, or a "
            "model with --base"
        )
    return policy


def load_weights(subject: Subject, device: str, lora: bool) -> Any:
    """Returns the model on a device, with its adapter or a new one where `lora`: float32, but as stored where an
    adapter is trained on a GPU. Raises InputError.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    from kernelwright.policies.local.quantised_weights import has_int8, read_int8

    folder = Path(subject.path)
    logging.disable_progress_bar()
    try:
        if has_int8(folder):
            model: Any = read_int8(folder)
        else:
            AutoConfig.from_pretrained(subject.path)
            model = AutoModelForCausalLM.from_pretrained(
                subject.path, dtype=torch.float32 if not lora else "auto"
            )
        if lora and device == "cpu":
            model = model.float()
        model = model.to(device)
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"{subject.path} does not fit on {device}: use --lora, or a smaller base"
        ) from error
    except Exception as error:  # whatever transformers meets first
        raise InputError(
            f"cannot load {subject.path}: {str(error).strip().splitlines()[0][:300]}"
        ) from error
    return _adapted(model, subject, lora)


def load_for_training(subject: Subject, options: TrainOptions) -> HeldWeights:
    """Returns the model on its device, and how its weights are held. Raises InputError where they do not fit."""
    from kernelwright.rl.training.precision.holding import HeldWeights, hold_weights

    if options.lora or subject.adapter is not None:
        model = load_weights(subject, options.device, lora=True)
        return HeldWeights(model, None, "adapter fp32")
    return hold_weights(load_weights(subject, "cpu", lora=False), options.device, options.precision)


def _adapted(model: Any, subject: Subject, lora: bool) -> Any:
    if subject.adapter is None and not lora:
        return model
    from peft import LoraConfig, PeftModel, get_peft_model

    if subject.adapter is not None:
        try:
            return PeftModel.from_pretrained(model, str(subject.adapter), is_trainable=True)
        except Exception as error:  # peft raises whatever the mismatch meets first
            raise InputError(
                f"the adapter {subject.adapter} does not fit {subject.path}: {str(error).strip().splitlines()[0][:200]}"
            ) from error
    from kernelwright.rl.training.sft.presets import Lora

    recipe = Lora()
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=0.0,
        target_modules=list(recipe.targets),
        task_type="CAUSAL_LM",
    )  # dropout would make the ratio of a policy to itself other than 1
    return get_peft_model(model, config)


def parameters(model: Any) -> int:
    """Counts the parameters of a model."""
    return sum(p.numel() for p in model.parameters())


def card_after(subject: Subject, more_lineage: tuple[str, ...] = (), **facts: Any) -> PolicyCard:
    """The card of what a training made of the subject: how it is asked, which revisions led to it, the facts of this
    training, and those of earlier trainings beside them.

    facts: fields of PolicyCard, or others that are kept beside them.
    """
    lineage = [*subject.lineage, *more_lineage][-MAX_LINEAGE_REVISIONS:]
    own: dict[str, Any] = {
        "prompt_form": subject.prompt_form,
        "lineage": lineage,
        "ancestors": trainings_of(subject.card),
    }
    if subject.card.parameters is not None:
        own["parameters"] = subject.card.parameters
    return PolicyCard.model_validate({**own, **facts})
