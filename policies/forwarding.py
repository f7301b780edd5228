"""A policy round another one: what it is comes from the one inside."""

from __future__ import annotations

from kernelwright.policies.base import Capabilities, Policy, PromptForm


class Forwarding:
    """All of a policy but `sample`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def capabilities(self) -> Capabilities:
        return self.policy.capabilities

    @property
    def prompt_form(self) -> PromptForm:
        return self.policy.prompt_form

    def close(self) -> None:
        self.policy.close()
