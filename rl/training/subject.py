"""The policy in training: its folder, tokenizer, identity and lineage, and the loading of its
weights.
"""

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
from kernelwright.rl.training.processes import is_sharded
from kernelwright.rl.training.sft.adapters import (
    add_new_adapter,
    add_stored_adapter,
    initial_weights,
    stored_weights,
)
from kernelwright.rl.training.sft.presets import Lora
from kernelwright.rl.training.sharding.loading import assign_whole, load_sharded

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from kernelwright.rl.training.options import TrainOptions
    from kernelwright.rl.training.precision.holding import HeldWeights

LOCAL_POLICY_PREFIXES = ("embedded", "transformers:", "vllm:")
MAX_LINEAGE_REVISIONS = 512
"""Number of revisions stored in a lineage."""
RL_LORA = Lora(dropout=0.0)
"""The adapter of `rl train --lora`. With dropout the ratio of a policy to itself would not be 1."""


class Subject(NamedTuple):
    """The policy in training."""

    name: str
    """The name given by the user."""
    path: str
    """A folder, or a hub name."""
    adapter: Path | None
    tokenizer: Any
    identity: Identity
    revision: str
    lineage: tuple[str, ...]
    """Revisions from the oldest to the policy's current one."""
    prompt_form: PromptForm
    card: PolicyCard
    """The card of the policy's folder, or of the adapter's folder."""
    context: int | None

    @property
    def base(self) -> str:
        """Returns the policy without its engine: `embedded`, a folder or a hub name."""
        return self.name.partition(":")[2] or self.name


def open_subject(policy: str, adapter: str | None = None) -> Subject:
    """Reads config and tokenizer, but no weights. Raises InputError and PolicyRefused."""
    from kernelwright.rl.training.sft.base_model import load_tokenizer

    path = path_of(policy)
    config = model_config(path) or {}
    folder = Path(path).expanduser()
    path = str(folder.resolve()) if folder.exists() else path
    adapter_path = None if adapter is None else adapter_folder(adapter)
    tokenizer = load_tokenizer(path)
    card = read_cards(folder, adapter_path)
    revisions = [weights_revision(folder)]
    if adapter_path is not None:
        revisions.append(weights_revision(adapter_path))
    revision = "+".join(part for part in revisions if part)
    return Subject(
        name=policy,
        path=path,
        adapter=adapter_path,
        tokenizer=tokenizer,
        identity=identity_of(tokenizer),
        revision=revision,
        lineage=(*card.lineage, revision),
        prompt_form=PromptForm.COMPACT if policy == "embedded" else card.prompt_form,
        card=card,
        context=config.get("max_position_embeddings"),
    )


def path_of(policy: str) -> str:
    """Returns the folder or hub name of a policy. Raises InputError for a policy without local
    weights.
    """
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


def load_weights(subject: Subject, device: str, lora: bool, seed: int = 0) -> PreTrainedModel:
    """Returns the model on a device, with its adapter, or with a new adapter if `lora`.

    Weights are float32, but keep their stored dtype for training an adapter on a GPU. Under a
    launcher that shards, each process has its part. seed: of a new adapter. Raises InputError.
    """
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        if is_sharded():
            return _load_sharded(subject, device, lora, seed)
        # Frozen weights under an adapter keep their stored dtype.
        model = _read_weights(subject.path, lora)
        if lora and device == "cpu":
            model = model.float()
        model = model.to(device)
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"{subject.path} does not fit on {device}: use --lora, more --gpus, or a smaller base"
        ) from error
    except InputError:
        raise
    except Exception as error:
        # A broken folder makes transformers raise errors of many kinds.
        raise InputError(
            f"cannot load {subject.path}: {str(error).strip().splitlines()[0][:300]}"
        ) from error
    return _adapted(model, subject, lora, seed)


def _load_sharded(subject: Subject, device: str, lora: bool, seed: int) -> Any:
    """Returns the model sharded over all processes, with the weights of its adapter."""
    import torch

    has_adapter = lora or subject.adapter is not None
    keeps_dtype = has_adapter and device.startswith("cuda")
    dtype = None if keeps_dtype else torch.float32
    if not has_adapter:
        return load_sharded(subject.path, device, dtype)
    if subject.adapter is None:
        model = load_sharded(
            subject.path, device, dtype, lambda base: add_new_adapter(base, RL_LORA)
        )
        assign_whole(model, initial_weights(model, seed))
        return model
    folder = subject.adapter
    model = load_sharded(subject.path, device, dtype, lambda base: add_stored_adapter(base, folder))
    assign_whole(model, stored_weights(folder))
    return model


def _read_weights(path: str, lora: bool) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from kernelwright.policies.local.quantised_weights import has_int8, read_int8

    if has_int8(Path(path)):
        return read_int8(Path(path))
    # A model of an unknown architecture fails here, before its weights are read.
    AutoConfig.from_pretrained(path)
    return AutoModelForCausalLM.from_pretrained(path, dtype="auto" if lora else torch.float32)


def load_for_training(subject: Subject, options: TrainOptions) -> HeldWeights:
    """Returns the model on its device, and how its weights are held. Raises InputError if memory
    does not suffice.
    """
    from kernelwright.rl.training.precision.holding import HeldWeights, hold_weights

    if options.lora or subject.adapter is not None:
        model = load_weights(subject, options.device, lora=True, seed=options.seed)
        return HeldWeights(model, None, "adapter fp32")
    if is_sharded():
        model = load_weights(subject, options.device, lora=False)
        return HeldWeights(model, None, "weights fp32, sharded over the processes by FSDP2")
    return hold_weights(load_weights(subject, "cpu", lora=False), options.device, options.precision)


def _adapted(model: PreTrainedModel, subject: Subject, lora: bool, seed: int) -> Any:
    if subject.adapter is None and not lora:
        return model
    from peft import PeftModel

    if subject.adapter is not None:
        try:
            return PeftModel.from_pretrained(model, str(subject.adapter), is_trainable=True)
        except Exception as error:
            # peft raises errors of many kinds for a mismatch.
            raise InputError(
                f"the adapter {subject.adapter} does not fit {subject.path}: {str(error).strip().splitlines()[0][:200]}"
            ) from error
    adapted = add_new_adapter(model, RL_LORA)
    assign_whole(adapted, initial_weights(adapted, seed))
    return adapted


def parameters(model: torch.nn.Module) -> int:
    """Counts the parameters of a model."""
    return sum(weight.numel() for weight in model.parameters())


def card_after(subject: Subject, more_lineage: tuple[str, ...] = (), **facts: object) -> PolicyCard:
    """Returns the card of a policy after training: prompt form, lineage, facts of this training,
    and facts of earlier trainings.

    facts: fields of PolicyCard, or further entries stored beside them.
    """
    lineage = [*subject.lineage, *more_lineage][-MAX_LINEAGE_REVISIONS:]
    fields: dict[str, Any] = {
        "prompt_form": subject.prompt_form,
        "lineage": lineage,
        "ancestors": trainings_of(subject.card),
    }
    if subject.card.parameters is not None:
        fields["parameters"] = subject.card.parameters
    return PolicyCard.model_validate({**fields, **facts})
