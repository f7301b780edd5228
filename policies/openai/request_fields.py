"""The fields of a chat request, and those that can be left out for a server that does not take them."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from kernelwright.policies.base import Request, Sampling
from kernelwright.policies.openai.served_model import ServedModel

_STEPS = (frozenset({"seed"}), frozenset({"max_tokens"}), frozenset({"temperature", "top_p"}))
"""Fields in the order in which they are left out where a server refuses a request and names no field."""


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
        request: The conversation, and the adapter that is asked for as a model.
        sampling: The sampling settings.
        model: The model's name at the server.
        served: What the server's listing says of it.
        without: Fields to leave out; `max_completion_tokens` takes the place of `max_tokens`.
        extra: Fields of the user, which go over all others.
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
    more = sampling.model_dump(
        include={"top_k", "min_p", "repetition_penalty"}, exclude_defaults=True
    )
    if served.is_vllm:
        # vLLM takes missing fields from the model's generation_config.json, so every field is sent.
        body["logprobs"] = True
        more = (
            {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
            | more
            | {"return_token_ids": True}
        )
    fields = {
        name: value for name, value in body.items() if name not in without and name not in extra
    }
    return fields | {"extra_body": more | extra}


def removable_fields(sampling: Sampling) -> set[str]:
    """Returns the fields that change no answer, or only its repetition (the seed), where a server does without."""
    fields = {"max_tokens"} if sampling.seed is None else {"seed", "max_tokens"}
    fields |= {"temperature"} if sampling.temperature == 1.0 else set()
    fields |= {"top_p"} if sampling.top_p == 1.0 else set()
    return fields


def next_without(named: str, without: Set[str], sampling: Sampling) -> frozenset[str] | None:
    """Returns the fields to leave out after a refusal; None where nothing more can be left out.

    `named`: the field that the server names; empty where it names none.
    """
    removable = removable_fields(sampling) - without
    if named:
        return frozenset(without | {named}) if named in removable else None
    step = next((fields & removable for fields in _STEPS if fields & removable), None)
    return frozenset(without | step) if step else None
