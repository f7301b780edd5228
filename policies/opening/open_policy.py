"""A policy by its name, as a user writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelwright.policies.anthropic.anthropic_policy import AnthropicPolicy
from kernelwright.policies.base import Policy, PolicyRefused, Trouble
from kernelwright.policies.failover import FailoverPolicy
from kernelwright.policies.http.server import ExtraFields
from kernelwright.policies.openai.openai_policy import OpenAIPolicy
from kernelwright.policies.prices import read_prices
from kernelwright.policies.retrying import RetryingPolicy
from kernelwright.policies.scripted import open_scripted
from kernelwright.policies.server_names import server_name

POLICY_FORMS = {
    "embedded": "the small policy that ships with the project: no GPU, no key, no network",
    "compiler": "no model: the draft of torch's compiler (Inductor), rewritten",
    "openai:MODEL@URL": "a server of /v1/chat/completions (URL left out: api.openai.com; URL1,URL2: the next where one "
    "fails)",
    "anthropic:MODEL": "a model of Anthropic, by its Messages API (another server: anthropic:MODEL@URL)",
    "vllm:PATH": "vLLM in this process, on a folder or a hub name",
    "transformers:PATH": "transformers in this process, on a folder or a hub name",
    "scripted:FILE": "answers given beforehand (.json, .jsonl, or one kernel as .py)",
}


def open_policy(
    name: str,
    *,
    key: str | None = None,
    adapter: str | None = None,
    device: str = "auto",
    at_once: int | None = None,
    timeout: float = 600.0,
    patience: float = 600.0,
    prices: Path | None = None,
    engine: dict[str, Any] | None = None,
    extra: ExtraFields | None = None,
) -> Policy:
    """Opens a policy without loading weights or asking a server. Raises PolicyRefused for an
    invalid name.

    Args:
        name: A form of POLICY_FORMS.
        key: Key for servers.
        adapter: LoRA folder (vllm, transformers).
        device: Device for policies in this process.
        at_once: Number of parallel requests.
        timeout: Seconds for a whole answer.
        patience: Seconds in which a failed request is repeated (0: never).
        prices: Price file of the user.
        engine: Arguments of vLLM's engine.
        extra: Fields added to every request to a server.
    """
    if adapter is not None and name.partition(":")[0] not in ("vllm", "transformers"):
        raise PolicyRefused(
            f"{name} takes no adapter here: name one that the server serves as MODEL", Trouble.NAME
        )
    if name == "embedded":
        from kernelwright.policies.small.embedded import open_embedded

        return open_embedded(device=device)
    if name == "compiler":
        from kernelwright.policies.inductor.policy import CompilerPolicy

        return CompilerPolicy()
    server = server_name(name)
    if server is not None:
        kind = OpenAIPolicy if server.form == "openai" else AnthropicPolicy
        price_table = read_prices(prices)
        servers = [
            kind(
                server.model,
                url,
                key=key,
                at_once=at_once or 16,
                timeout=timeout,
                prices=price_table,
                extra=extra,
            )
            for url in server.urls
        ]
        return RetryingPolicy(
            servers[0] if len(servers) == 1 else FailoverPolicy(servers, name), budget=patience
        )
    return _open_in_this_process(
        name, adapter=adapter, device=device, at_once=at_once, engine=engine
    )


def _open_in_this_process(
    name: str,
    *,
    adapter: str | None,
    device: str,
    at_once: int | None,
    engine: dict[str, Any] | None,
) -> Policy:
    """Opens a policy that needs no server. Raises PolicyRefused for an unknown form."""
    form, _, target = name.partition(":")
    if form == "vllm" and target:
        from kernelwright.policies.vllm.engine_policy import VLLMPolicy

        return VLLMPolicy(target, adapter=adapter, engine=engine)
    if form == "transformers" and target:
        from kernelwright.policies.small.small_policy import open_local

        return open_local(target, adapter=adapter, device=device, at_once=at_once)
    if form == "scripted" and target:
        return open_scripted(Path(target).expanduser())
    raise PolicyRefused(
        f"no policy {name!r}: the forms are {', '.join(POLICY_FORMS)}", Trouble.NAME
    )
