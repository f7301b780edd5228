"""Options of every command with a policy: its name, its sampling, and its server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kernelwright.policies.base import Policy
    from kernelwright.policies.http.server import ExtraFields
    from kernelwright.policies.prices import Prices

POLICY_PANEL = "Policy"

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="embedded, compiler, openai:MODEL@URL, anthropic:MODEL, vllm:PATH, transformers:PATH or scripted:FILE.",
        rich_help_panel=POLICY_PANEL,
    ),
]


@dataclass(frozen=True)
class SamplingOptions:
    """Options for sampling from the policy."""

    adapter: Annotated[
        str | None,
        typer.Option(help="A LoRA adapter (vllm, transformers).", rich_help_panel=POLICY_PANEL),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=2.0,
            help="Sampling temperature.",
            show_default="1; a small policy answers greedily first, then samples at 0.8",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None
    reply_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of one reply at most.", rich_help_panel=POLICY_PANEL),
    ] = None
    thinking: Annotated[
        bool | None,
        typer.Option(
            "--thinking/--no-thinking",
            help="Let the model think before it answers, by its chat template (enable_thinking).",
            show_default="as the template is",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None
    thinking_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens of a thought at most; then it is ended, and the model answers.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of the sampling.", rich_help_panel=POLICY_PANEL)
    ] = None
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            help="A folder with prompt templates of your own.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds to retry a server that became unavailable during the run.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = 600.0
    timeout: Annotated[
        float,
        typer.Option(
            min=1.0,
            help="Seconds that a server may take for one reply.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = 600.0
    reasoning_effort: Annotated[
        str | None,
        typer.Option(
            help="How much a server's model reasons: low, medium, high, or the server's own word.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None
    extra_body: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Fields that every request to a server has besides, as a JSON object or @FILE.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Prices of tokens of your own (TOML), before those that ship.",
            rich_help_panel=POLICY_PANEL,
        ),
    ] = None

    def open_policy(self, name: str) -> Policy:
        """Opens the policy.

        The hosted service (an `openai:` name without an address) is contacted first, and refused
        within five seconds if out of reach. A server of the user's own in this state is named on
        stderr, is asked again for `patience` seconds, and then pauses the run.

        Raises:
            InputError: The hosted service was named and OPENAI_API_KEY is not set, or the folder of prompts is missing.
            PolicyUnavailable: No connection to the hosted service could be made.
            PolicyRefused: No policy has this name.
        """
        from kernelwright.agent.command_line.policy.server_check import check_server
        from kernelwright.agent.prompts import Prompts
        from kernelwright.agent.runtime.errors import note
        from kernelwright.policies.base import PolicyUnavailable
        from kernelwright.policies.server_names import key_variable, server_name

        policy = self.open_unchecked(name)
        try:
            if self.prompts is not None:
                # Raises for an unusable folder before the server is contacted.
                Prompts(policy.prompt_form, self.prompts)
            check_server(name, os.environ.get(key_variable(name)))
        except PolicyUnavailable as error:
            # A server of the user's own may still be starting: only the hosted service is refused.
            parts = server_name(name)
            if parts is None or parts.is_hosted:
                policy.close()
                raise
            note(f"{error}; asked again for up to {self.patience:g} s (--patience)")
        except BaseException:
            policy.close()
            raise
        return policy

    def open_unchecked(self, name: str) -> Policy:
        """Opens the policy without contacting a server. Raises PolicyRefused, and InputError for
        its options.
        """
        from kernelwright.policies.opening.open_policy import open_policy
        from kernelwright.policies.server_names import key_variable

        return open_policy(
            name,
            key=os.environ.get(key_variable(name)),
            adapter=self.adapter,
            patience=self.patience,
            timeout=self.timeout,
            prices=self.prices,
            extra=self.extra_fields(name),
        )

    def extra_fields(self, policy: str) -> ExtraFields:
        """Returns the extra fields of every request. Raises InputError if the policy asks no
        server, or for invalid JSON.
        """
        from kernelwright.agent.runtime.arguments import json_object
        from kernelwright.errors import InputError
        from kernelwright.policies.http.server import ExtraFields
        from kernelwright.policies.server_names import server_name

        options = {
            "--reasoning-effort": self.reasoning_effort,
            "--extra-body": self.extra_body,
            "--prices": self.prices,
        }
        named = [option for option, value in options.items() if value is not None]
        if named and server_name(policy) is None:
            raise InputError(
                f"{' and '.join(named)}: {policy} asks no server, leave out what only servers take"
            )
        body = {} if self.extra_body is None else json_object("--extra-body", self.extra_body)
        return ExtraFields(reasoning_effort=self.reasoning_effort, body=body)

    def read_prices(self) -> Prices:
        """Returns the user's prices and the shipped prices. Raises PolicyRefused for an
        unreadable file.
        """
        from kernelwright.policies.prices import read_prices

        return read_prices(self.prices)

    def policy_label(self, name: str) -> str:
        """Returns the policy's stored name, with its adapter."""
        return name if self.adapter is None else f"{name} with {self.adapter}"
