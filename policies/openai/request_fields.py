"""Fields of a chat request, and the fields that can be omitted for servers that refuse them."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from kernelwright.policies.base import Request, Sampling
from kernelwright.policies.openai.served_model import ServedModel

_STEPS = (frozenset({"seed"}), frozenset({"max_tokens"}), frozenset({"temperature", "top_p"}))
"""Groups of fields to omit, in order, if a server refuses a request without naming a field."""


def chat_body(
    request: Request,
    sampling: Sampling,
    model: str,
    served: ServedModel,
    without: Set[str],
    extra: dict[str, Any],
) -> dict[str, Any]:
    """Returns the arguments of a chat request.

    Args:
        request: Conversation and adapter; the adapter is requested as a model.
        sampling: Sampling settings.
        model: Name of the model at the server.
        served: Facts from the server's listing.
        without: Fields to omit; `max_completion_tokens` replaces an omitted `max_tokens`.
        extra: Fields of the user, which override all others.
    """
    body: dict[str, Any] = {
        "model": request.adapter or model,
        "messages": [
            {"role": str(message.role), "content": message.content} for message in request.messages
        ],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": min(sampling.max_tokens, served.context or sampling.max_tokens),
    }
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if "max_tokens" in without:
        body["max_completion_tokens"] = sampling.max_tokens
    extension_fields = sampling.model_dump(
        include={"top_k", "min_p", "repetition_penalty"}, exclude_defaults=True
    )
    if sampling.thinking is not None:
        extension_fields["chat_template_kwargs"] = {"enable_thinking": sampling.thinking}
    if sampling.thinking_tokens is not None:
        extension_fields["thinking_token_budget"] = sampling.thinking_tokens
    if served.is_vllm:
        # vLLM takes missing fields from the model's generation_config.json, so every field is sent.
        body["logprobs"] = True
        extension_fields = (
            {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
            | extension_fields
            | {"return_token_ids": True}
        )
    fields = {
        name: value for name, value in body.items() if name not in without and name not in extra
    }
    return fields | {"extra_body": extension_fields | extra}


def removable_fields(sampling: Sampling) -> set[str]:
    """Returns the fields whose omission changes no answer, or only its reproducibility (the
    seed).
    """
    fields = {"max_tokens"} if sampling.seed is None else {"seed", "max_tokens"}
    fields |= {"temperature"} if sampling.temperature == 1.0 else set()
    fields |= {"top_p"} if sampling.top_p == 1.0 else set()
    return fields


def next_without(named: str, without: Set[str], sampling: Sampling) -> frozenset[str] | None:
    """Returns the fields to omit after a refusal; None if nothing more can be omitted.

    `named`: field named by the server; empty if there is none.
    """
    removable = removable_fields(sampling) - without
    if named:
        return frozenset(without | {named}) if named in removable else None
    step = next((fields & removable for fields in _STEPS if fields & removable), None)
    return frozenset(without | step) if step else None
