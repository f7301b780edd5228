"""`--dry-run`: the prompt, the plan, and an estimate of the costs. The reference is tried, as
before every run; no policy is asked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.agent.loop.policy_question import QuestionWriter
from kernelwright.agent.loop.search import NextTurn
from kernelwright.agent.loop.settings import REPLY_TOKENS, Settings
from kernelwright.agent.loop.stopping import Spent
from kernelwright.policies.base import Message, Policy, Sampling, Usage, Value
from kernelwright.policies.prices import Prices
from kernelwright.store.models import Action
from kernelwright.tools.problem import Problem

CHARACTERS_A_TOKEN = 3.5
"""Approximate number of characters of English and Python in a token."""


class DryRun(Value):
    """The first request of a run, and an estimate of the run's costs."""

    problem: str
    policy: str
    prompt_version: str
    messages: tuple[Message, ...]
    sampling: Sampling
    goal: str
    search: str
    turns: int | None
    targets: tuple[str, ...]
    device: str
    prompt_tokens: int
    """Tokens of the first turn's prompt, estimated from its length."""
    most_tokens: int | None
    """Tokens if every turn uses its whole limit; None without a limit of turns."""
    most_dollars: float | None
    """Dollars if every turn uses its whole limit; None if the price or the number of turns is not
    known.
    """
    note: str = ""


def dry_run(
    problem: Problem, policy: Policy, settings: Settings, prices: Prices | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> DryRun:  # fmt: skip
    """Makes a run's first request without sending it.

    prices: None for the shipped price list. Raises ProblemError if a run would refuse the
    problem: its reference fails, or is random.
    """
    from kernelwright.agent.solve.solving import embedded_policy_note
    from kernelwright.tools.reference_trials.trials import reference_trials

    say("running the reference")
    reference_trials().require_working(problem, train_mode=settings.train_mode)
    asking = QuestionWriter(problem, policy, settings, 0)
    request = asking.request(NextTurn(action=Action.DRAFT), (), Spent())
    prompt = round(sum(len(message.content) for message in request.messages) / CHARACTERS_A_TOKEN)
    turns = settings.budgets.turns
    reply = settings.reply_tokens or REPLY_TOKENS[policy.prompt_form]
    # A repair repeats the code: its prompt is as long as the first one and a reply together.
    usage = None
    if turns is not None:
        usage = Usage(prompt_tokens=turns * (prompt + reply), completion_tokens=turns * reply)
    return DryRun(
        problem=problem.name,
        policy=settings.policy,
        prompt_version=asking.version,
        messages=request.messages,
        sampling=request.sampling,
        goal=str(settings.goal),
        search=settings.search.value,
        turns=turns,
        targets=settings.targets,
        device=settings.device,
        prompt_tokens=prompt,
        most_tokens=None if usage is None else usage.prompt_tokens + usage.completion_tokens,
        most_dollars=None if usage is None else _dollars(settings.policy, usage, prices),
        note=embedded_policy_note(settings.policy),
    )


def _dollars(policy: str, usage: Usage, prices: Prices | None) -> float | None:
    """Returns the maximum cost in dollars; None if no price is known. Policies in this process
    cost nothing.
    """
    from kernelwright.policies.prices import read_prices
    from kernelwright.policies.server_names import server_name

    name = server_name(policy)
    if name is None:
        return 0.0
    price_list = prices or read_prices()
    dollars = [price_list.dollars(url, name.model, usage) for url in name.urls]
    return None if None in dollars else max(amount for amount in dollars if amount is not None)
