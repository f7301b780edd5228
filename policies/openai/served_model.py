"""Facts in a server's listing about a model: whether vLLM serves it, and from which folder."""

from __future__ import annotations

from pathlib import Path

from kernelwright.policies.base import PolicyRefused, PromptForm, Trouble, Value
from kernelwright.policies.model_identity import Identity, identity_of, weights_revision
from kernelwright.policies.openai.reply import Models
from kernelwright.policies.policy_card import read_cards


class ServedModel(Value):
    """The properties a server reports of itself and its model."""

    is_vllm: bool = False
    """Whether the server accepts vLLM's own fields: token ids, top_k, and a seed for each request."""
    context: int | None = None
    root: str | None = None
    """The folder or hub name the server was started with."""
    revision: str | None = None
    """Revision of the weights, if the server's model folder is on this machine."""
    adapter_revisions: dict[str, str | None] = {}
    identity: Identity = Identity()
    prompt_form: PromptForm = PromptForm.CHAT


class ModelNotServed(PolicyRefused):
    """The server lists its models, and this is none of them."""


def served_model(models: Models, model: str, url: str) -> ServedModel:
    """Returns the listing's facts: none, unless a vLLM server lists the model. Reads its folder on this machine.

    Raises ModelNotServed.
    """
    listed = {entry.id: entry for entry in models.data}
    if not any(entry.owned_by == "vllm" for entry in models.data):
        return ServedModel()
    if model not in listed:
        raise ModelNotServed(
            f"{url} has no model {model!r}: it serves {', '.join(sorted(listed))}", Trouble.MODEL
        )
    base = listed.get(listed[model].parent or model, listed[model])
    folder = Path(base.root or "")
    is_here = bool(base.root) and (folder / "config.json").is_file()
    return ServedModel(
        is_vllm=True,
        context=base.max_model_len,
        root=base.root,
        revision=weights_revision(folder) if is_here else None,
        adapter_revisions={
            entry.id: weights_revision(Path(entry.root or ""))
            for entry in models.data
            if entry.parent
        },
        identity=_identity_of_folder(folder) if is_here else Identity(),
        prompt_form=read_cards(folder).prompt_form if is_here else PromptForm.CHAT,
    )


def _identity_of_folder(folder: Path) -> Identity:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return Identity()
    return identity_of(AutoTokenizer.from_pretrained(folder))
